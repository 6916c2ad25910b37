"""Figures in the text format that Prometheus reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, kw_only=True)
class MetricFamily:
    """One metric with its values by labels."""

    name: str
    kind: Literal["gauge", "counter"]
    help: str
    values: tuple[tuple[Mapping[str, str], float], ...]

    def lines(self) -> Iterable[str]:
        """Its lines; none where there is no value."""
        if self.values:
            yield f"# HELP {self.name} {self.help}"
            yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values:
            inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{inside}}} {_number(value)}"


def metrics_text(families: Iterable[MetricFamily]) -> str:
    """All families, one below the other."""
    return "".join(f"{line}\n" for family in families for line in family.lines())


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


__all__ = ["MEDIA_TYPE", "MetricFamily", "metrics_text"]

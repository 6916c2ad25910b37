"""What the user runs today, in the terms of an estimate: a row of its own, and what holds in the rows next to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autoscout.core.config import Config, Value
from autoscout.estimate.deployments import SEQS, STEP
from autoscout.estimate.pins import SERVING_NAMES
from autoscout.simulators.serving.job import precision_named
from autoscout.simulators.serving.read import KNOBS

LAYOUT = ("tp", "pp", "dp", "expert_parallel", "max_requests", "max_step_tokens")
"""What is varied, or would hold every row to one layout: such values are those of the user's own row alone."""
FORMATS = ("kv_dtype", "precision")
"""What changes answers: the user's choice, which holds in the row of the engine's default too."""
_FIELDS = {name: field for field, names in KNOBS.items() for name in names}


@dataclass(frozen=True, kw_only=True)
class ServedBaseline:
    """A launch as the model of servers reads it; empty for none.

    Attributes:
        layout: Values of what is varied, by the names it is varied by.
        formats: Formats of weights and cache.
        others: Values of what is not varied, such as the share of the memory.
    """

    layout: Mapping[str, Value] = field(default_factory=dict)
    formats: Mapping[str, Value] = field(default_factory=dict)
    others: Mapping[str, Value] = field(default_factory=dict)

    def config(self, default: Mapping[str, Value]) -> Config:
        """The user's own row: what the launch leaves out is as in the row of the engine's default."""
        return Config({**default, **self.formats, **self.others, **self.layout})

    def without(self, pins: Mapping[str, Value], *, lossy: bool) -> ServedBaseline:
        """What holds in the other rows: not what is pinned, and no format where formats are compared."""
        pinned = {_FIELDS.get(name, name) for name in pins}
        formats = {} if lossy else {name: value for name, value in self.formats.items() if _FIELDS[name] not in pinned}
        others = {name: value for name, value in self.others.items() if _FIELDS[name] not in pinned}
        return ServedBaseline(layout=self.layout, formats=formats, others=others)


def served_baseline(knobs: Mapping[str, Value]) -> ServedBaseline:
    """The knobs of a launch in the terms of the model of servers; those that it does not read are left out.

    >>> served_baseline({"tp_size": 2, "chunked_prefill_size": -1, "mem_fraction_static": 0.8}).layout
    {'tensor_parallel_size': 2, 'enable_chunked_prefill': False}
    """
    layout: dict[str, Value] = {}
    formats: dict[str, Value] = {}
    others: dict[str, Value] = {}
    for name, value in knobs.items():
        kind = _FIELDS.get(name)
        if kind is None or value is None or isinstance(value, list | dict):
            continue
        usual = SERVING_NAMES.get(kind, name)
        if usual in (SEQS, STEP) and isinstance(value, int) and value <= 0:
            layout |= {"enable_chunked_prefill": False} if usual == STEP else {}  # SGLang's way to say that prompts are not cut
        elif kind in LAYOUT:
            layout[usual] = value
        elif kind not in FORMATS:
            others[name] = value
        elif _is_format(kind, value) and value != "auto":
            formats[name] = value
    return ServedBaseline(layout=layout, formats=formats, others=others)


def unread(knobs: Mapping[str, Value]) -> tuple[str, ...]:
    """Knobs that change no prediction, as NAME=VALUE."""
    kinds = {name: _FIELDS.get(name) for name in knobs}
    return tuple(f"{name}={value}" for name, value in knobs.items() if kinds[name] is None or not _is_format(kinds[name], value))


def _is_format(kind: str | None, value: Value) -> bool:
    """Whether a value is no format of weights that the model does not know."""
    return kind != "precision" or value in (None, "auto") or precision_named(str(value)) is not None


__all__ = ["ServedBaseline", "served_baseline", "unread"]

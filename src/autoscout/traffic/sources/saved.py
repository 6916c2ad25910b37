"""A traffic description that AutoScout has written, here or on another machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscout.traffic.description import Traffic, described

TITLE = "a description that `autoscout traffic` wrote"


def takes(text: str, first: Any) -> bool:  # noqa: ARG001 - the same for all sources
    """Whether this is one."""
    return isinstance(first, Mapping) and ("windows" in first or str(first.get("format", "")).startswith("autoscout traffic"))


def read(path: Path, text: str, windows: int) -> Traffic:  # noqa: ARG001 - the same for all sources
    """It, as it was written."""
    return described(path)


__all__ = ["TITLE", "read", "takes"]

"""Where foreign files come from: a path, JSON text, or what was parsed already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoscout.common.document import load_json, parse_json

Source = Path | str | Mapping[str, Any] | Sequence[Any]


def read_json(source: Source) -> tuple[Any, str]:
    """The parsed content, and what to call it in messages.

    Raises:
        ConfigError: the file cannot be read, or is not JSON.
    """
    if not isinstance(source, (Path, str)):
        return source, "mapping"
    if isinstance(source, str) and source.lstrip()[:1] in ("{", "["):
        return parse_json(source, "text"), "text"
    return load_json(Path(source)), str(source)


def is_scalar(value: Any) -> bool:
    """Whether a knob can hold the value."""
    return value is None or isinstance(value, (bool, int, float, str))

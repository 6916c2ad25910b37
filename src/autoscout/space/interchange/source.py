"""Where foreign files come from: a path, JSON text, or what was parsed already."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoscout.core.errors import ConfigError, Fault

Source = Path | str | Mapping[str, Any] | Sequence[Any]


def read_json(source: Source) -> tuple[Any, str]:
    """The parsed content, and what to call it in messages.

    Raises:
        ConfigError: the file cannot be read, or is not JSON.
    """
    if not isinstance(source, (Path, str)):
        return source, "mapping"
    if isinstance(source, str) and source.lstrip()[:1] in ("{", "["):
        return _parse(source, "text"), "text"
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError(Fault(where=str(path), rule=f"cannot be read: {reason}", fix="Check the path")) from error
    return _parse(text, str(path)), str(path)


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        line = f":{error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "nested too deep"
        raise ConfigError(
            Fault(where=f"{where}{line}", rule=f"not valid JSON: {reason}", fix="Check commas, quotes and brackets there")
        ) from error


def scalar(value: Any) -> bool:
    """Whether a knob can hold the value."""
    return value is None or isinstance(value, (bool, int, float, str))

"""From a configuration to the engine's settings, its command line, and its own YAML file."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from autoscout.core.config import Config, Value
from autoscout.engines.space import default_of
from autoscout.engines.table import EngineTable, KnobRow

Settings = dict[str, Any]


def settings(config: Config, table: EngineTable, own: Mapping[str, Value]) -> Settings:
    """What the engine is told, by the names of its table: only what differs from what it would do by itself.

    A knob at the engine's own value is left out of the command line, so that the default is the engine's true default even where this
    project's idea of it is wrong, and a hand-over shows nothing but changes.
    """
    result: Settings = {}
    for knob, value in config.items():
        row = table.knobs[knob]
        if row.env or value is None or (not row.always and value == default_of(row, table, own)):
            continue
        if row.key:
            put(result, f"{row.setting}.{row.key}", _inner(value))
        elif table.flags[row.setting].type == "json":
            lay_over(result, {row.setting: json.loads(str(value))})
        else:
            result[row.setting] = value
    return result


def _inner(value: Value) -> Any:
    """A value inside a JSON value: a list or an object is written as its text."""
    if isinstance(value, str) and value.startswith(("[", "{")):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value


def variables(config: Config, table: EngineTable, own: Mapping[str, Value]) -> dict[str, str]:
    """The variables of the engine's environment that knobs set, but for those at the engine's own value."""
    rows = ((table.knobs[name], value) for name, value in config.items())
    return {row.env: as_variable(value) for row, value in rows if row.env and value is not None and value != default_of(row, table, own)}


def as_variable(value: Value) -> str:
    """A value as the text of a variable."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_listed(text: str, row: KnobRow) -> Value:
    """The value of a knob that a variable's text stands for."""
    return next((value for value in (*row.values, *row.grid) if as_variable(value) == text), text)


def lay_over(base: Settings, top: Mapping[str, Any]) -> None:
    """Put settings over others, key by key inside JSON values."""
    for name, value in top.items():
        below = base.get(name)
        if isinstance(below, dict) and isinstance(value, Mapping):
            base[name] = dict(below)
            lay_over(base[name], value)
        else:
            base[name] = value


def put(settings: Settings, path: str, value: Any) -> None:
    """Set a value inside the JSON value of a flag: the names of the flag and of the keys, with dots between them."""
    name, dot, rest = path.partition(".")
    if not dot:
        settings[name] = value
    elif isinstance(inner := settings.setdefault(name, {}), dict):
        put(inner, rest, value)


def words(settings: Mapping[str, Any], table: EngineTable) -> list[str]:
    """Settings as words of a command line."""
    line: list[str] = []
    for name, value in settings.items():
        row = table.flags[name]
        if row.type in ("bool", "switch"):
            if value or row.type == "bool":
                line.append(row.flag if value else "--no-" + row.flag.removeprefix("--"))
        elif isinstance(value, (dict, list)) and row.type != "list":
            line += [row.flag, json.dumps(value, sort_keys=True)]
        elif isinstance(value, (list, tuple)):
            line += [row.flag, *map(str, value)]
        elif row.type == "list":
            line += [row.flag, *shlex.split(str(value))]
        else:
            line += [row.flag, str(value)]
    return line


def config_file(settings: Mapping[str, Any], table: EngineTable) -> str:
    """Settings as the YAML file that the engine reads with `--config`; `false` is written as the `no-` form, as both engines want it."""
    data: dict[str, Any] = {}
    for name, value in settings.items():
        row = table.flags[name]
        key = row.flag.removeprefix("--")
        if row.type == "bool" and not value:
            data[f"no-{key}"] = True
        elif value is not False:
            data[key] = value
    return yaml.safe_dump(data, sort_keys=False, default_flow_style=False) if data else "{}\n"


__all__ = ["Settings", "as_listed", "as_variable", "config_file", "lay_over", "put", "settings", "variables", "words"]

"""Columns of a file into a table: knobs from what a manifest declares, or from the values that were seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.common.document import read_rows
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault, PluginError
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Status
from autoscout.space import Choice, Grid, Knob, Space
from autoscout.space.parser import name_text, value_text
from autoscout_lab.bench.table import METRIC, Table, task_of

_SHOWN = 5  # faults of rows that are listed


def read_parquet(path: Path) -> dict[str, list[Any]]:
    """All columns of a Parquet file."""
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        rule = "Parquet tables need the package pyarrow"
        raise PluginError(Fault(where=str(path), rule=rule, fix="pip install 'autoscout[bench]'")) from error
    try:
        return parquet.read_table(path).to_pydict()  # type: ignore[no-any-return]
    except (OSError, ValueError) as error:
        raise ConfigError(Fault(where=str(path), rule=f"cannot be read as Parquet: {error}", fix="Check the file")) from error


def read_csv(path: Path) -> dict[str, list[Any]]:
    """All columns of a CSV file, as text; an empty cell is None."""
    rows = read_rows(path)
    if not rows:
        raise ConfigError(Fault(where=str(path), rule="holds no rows"))
    return {name: [row.get(name) or None for row in rows] for name in rows[0]}


def build(name: str, entry: Mapping[str, Any], columns: Mapping[str, Sequence[Any]], where: str, workload: dict[str, object]) -> Table:
    """The table that a manifest entry and its columns describe."""
    params = entry["params"]
    missing = [item["name"] for item in params if item["name"] not in columns] + [key for key in (METRIC,) if key not in columns]
    if missing:
        raise ConfigError([Fault(where=where, field=item, rule="the manifest names a column that is not there") for item in missing])
    if not columns[METRIC]:
        raise ConfigError(Fault(where=where, rule="holds no rows"))
    knobs = {item["name"]: _knob(item) for item in params}
    space = Space(knobs.values())
    configs, faults = _configs(params, knobs, columns, where)
    if faults:
        raise ConfigError(faults)
    values = _numbers(columns[METRIC], where)
    distinct = list({config: row for row, config in reversed(list(enumerate(configs)))}.values())[::-1]  # the first of equal rows
    return Table(
        name,
        space,
        [configs[row] for row in distinct],
        np.array([math.nan if values[row] is None else values[row] for row in distinct], dtype=np.float64),
        task_of(name, Direction.MAXIMIZE if entry.get("objective") == "max" else Direction.MINIMIZE, workload),
        unit=str(entry.get("unit", "")),
        family=str(entry.get("family", "")),
    )


def _numbers(cells: Sequence[Any], where: str) -> list[float | None]:
    numbers: list[float | None] = []
    faults: list[Fault] = []
    for row, cell in enumerate(cells):
        try:
            numbers.append(None if cell is None else float(cell))
        except (ValueError, TypeError, OverflowError):
            faults.append(Fault(where=where, field=f"row {row}.{METRIC}", value=repr(cell), rule="must be a number, or empty"))
    if faults:
        raise ConfigError(faults)
    return numbers


def _knob(item: Mapping[str, Any]) -> Knob:
    """A knob of the manifest; where that gives no default: the middle of an order, the first category."""
    name, values, default = item["name"], list(item["values"]), item.get("default")
    condition = " and ".join(
        f"{name_text(parent)} in [{', '.join(value_text(value) for value in allowed)}]"
        for parent, allowed in (item.get("when") or {}).items()
    )
    sparse = item.get("role", "sparse" if item["kind"] == "categorical" else "dense") == "sparse"
    if item["kind"] == "ordinal" and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        ascending = sorted(values)
        middle = ascending[(len(ascending) - 1) // 2]
        return Grid(name, values=ascending, default=middle if default is None else default, sparse=sparse, when=condition or None)
    return Choice(name, values, default=values[0] if default is None else default, sparse=sparse, when=condition or None)


def _configs(
    params: Sequence[Mapping[str, Any]], knobs: Mapping[str, Knob], columns: Mapping[str, Sequence[Any]], where: str
) -> tuple[list[Config], list[Fault]]:
    """The configuration of every row; knobs that are inactive there are left out, whatever the file holds in their place."""
    lookups = {name: _lookup(knob) for name, knob in knobs.items()}
    conditions = {item["name"]: item.get("when") or {} for item in params}
    order = list(Space(knobs.values()).knobs)
    faults: list[Fault] = []
    configs = []
    for row in range(len(columns[METRIC])):
        settings: dict[str, Value] = {}
        for name in order:
            if any(parent not in settings or settings[parent] not in allowed for parent, allowed in conditions[name].items()):
                continue
            raw = columns[name][row]
            if raw not in lookups[name]:
                faults.append(Fault(where=where, field=f"row {row}.{name}", value=repr(raw), rule="not one of the manifest's values"))
                continue
            settings[name] = lookups[name][raw]
        configs.append(Config(settings))
    return configs, faults


def _lookup(knob: Knob) -> dict[Any, Value]:
    """Map what a file may hold (also as text) to the value of the knob."""
    by_text: dict[Any, Value] = {}
    for value in knob.values:
        by_text.setdefault(str(value), value)
    return by_text | {value: value for value in knob.values}


def from_rows(
    name: str,
    rows: Sequence[Mapping[str, Any]],
    values: Sequence[float | None],
    statuses: Sequence[Status],
    *,
    where: str,
    task: Task,
    unit: str,
) -> Table:
    """A table whose knobs are what the rows hold: numbers in order, everything else as categories.

    A knob that some rows lack is conditional. Which condition is looked for among the others: the first one some values of which go
    with it and the others never do; where there is none, absence becomes a category of its own.
    """
    names = list(dict.fromkeys(key for row in rows for key in row))
    by_key = {key: list(dict.fromkeys((type(row[key]), row[key]) for row in rows if key in row)) for key in names}
    knobs: list[Knob] = []
    absent: set[str] = set()
    for key in names:
        options = [value for _, value in by_key[key]]
        lacking = any(key not in row for row in rows)
        condition = _condition(key, names, rows) if lacking else None
        if lacking and condition is None:
            absent.add(key)
            options = [*options, None]
        numeric = len(options) > 2 and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in options)
        if numeric:
            ascending = sorted(float(value) if any(isinstance(item, float) for item in options) else value for value in options)
            knobs.append(Grid(key, values=ascending, default=ascending[(len(ascending) - 1) // 2], when=condition))
        else:
            knobs.append(Choice(key, options, when=condition))
    space = Space(knobs)
    lookups = {knob.name: _lookup(knob) for knob in knobs}
    configs = [Config({key: lookups[key][row.get(key)] for key in names if key in row or key in absent}) for row in rows]
    broken = [fault for config in configs[:200] for fault in space.check(config)]
    if broken:
        raise ConfigError([Fault(where=where, rule=fault) for fault in broken[:_SHOWN]])
    distinct = list({config: row for row, config in reversed(list(enumerate(configs)))}.values())[::-1]
    numbers = np.array([math.nan if (value := values[row]) is None else value for row in distinct], dtype=np.float64)
    kinds = [statuses[row] for row in distinct]
    return Table(name, space, [configs[row] for row in distinct], numbers, task, kinds, unit=unit)


def _condition(key: str, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str | None:
    for parent in names:
        if parent == key or any(parent not in row for row in rows):
            continue
        within = {(type(row[parent]), row[parent]) for row in rows if key in row}
        without = {(type(row[parent]), row[parent]) for row in rows if key not in row}
        if not within & without:
            return f"{name_text(parent)} in [{', '.join(value_text(value) for value in sorted((v for _, v in within), key=repr))}]"
    return None

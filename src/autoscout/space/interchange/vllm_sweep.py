"""vLLM sweep files (`vllm bench sweep serve --serve-params`): a list of fixed points, or a mapping from names to points."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.common.templates import flatten
from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.space.constraint import Constraint
from autoscout.space.interchange.source import Source, is_scalar, read_json
from autoscout.space.knobs import Choice, Flag, Grid, Knob
from autoscout.space.parser import name_text, value_text
from autoscout.space.space import Space

LABEL = "_benchmark_name"
"""vLLM's key for the name of a point; not a parameter of the engine there, nor here."""


def _points(source: Source) -> dict[str, dict[str, Value]]:
    """The points by name, in order, without the doubles; unnamed points are called by their values."""
    data, where = read_json(source)
    if isinstance(data, Mapping):
        records: list[Any] = [{LABEL: name, **point} if isinstance(point, Mapping) else point for name, point in data.items()]
    else:
        records = list(data) if isinstance(data, Sequence) and not isinstance(data, str) else []
    faults: list[Fault] = []
    if not records:
        rule = "a sweep is a list of points or a mapping from names to points"
        faults.append(Fault(where=where, rule=rule, fix='Write [{"max_num_seqs": 64}]'))
    points: dict[str, dict[str, Value]] = {}
    configs: set[Config] = set()
    for number, record in enumerate(records):
        if not isinstance(record, Mapping):
            faults.append(Fault(where=where, field=f"[{number}]", value=repr(record)[:80], rule="a point must map parameters to values"))
            continue
        point = _point(record)
        endless = [key for key, value in point.items() if isinstance(value, float) and not math.isfinite(value)]
        if endless:
            faults += [
                Fault(where=where, field=f"[{number}].{key}", value=str(point[key]), rule="a number must be finite") for key in endless
            ]
            continue
        name = str(record.get(LABEL, "")) or "-".join(f"{key}={value}" for key, value in point.items()) or "default"
        if name in points and LABEL in record:
            faults.append(Fault(where=where, field=f"[{number}].{LABEL}", value=repr(name), rule="every point needs a name of its own"))
        elif Config(point) not in configs:
            points[name] = point
            configs.add(Config(point))
    if faults:
        raise ConfigError(faults)
    return points


def read_sweep(source: Source) -> Space:
    """The space of exactly the points of a sweep file; the first one is the default.

    Nested mappings become dotted names, dashes in names underscores (both as on vLLM's command line); a list becomes its
    JSON text. When some points leave parameters out, a knob `_benchmark_name` tells the points apart and the others depend on it.

    Raises:
        ConfigError: the file is not a sweep; all faults at once.
    """
    points = _points(source)
    keys = list(dict.fromkeys(key for point in points.values() for key in point))
    if all(len(point) == len(keys) for point in points.values()):
        return _table(list(points.values()), keys)
    knobs: list[Knob] = [Choice(LABEL, list(points), help="which point of the sweep")]
    rules = []
    for key in keys:
        owners = [name for name, point in points.items() if key in point]
        when = None
        if len(owners) < len(points):
            when = f"{LABEL} in ({', '.join(value_text(name) for name in owners)},)"
        knobs.append(_knob(key, [points[name][key] for name in owners], when))
    for name, point in points.items():
        if point:
            parts = [f"{name_text(key)} == {value_text(value)}" for key, value in point.items()]
            rules.append(Constraint(f"{LABEL} != {value_text(name)} or ({' and '.join(parts)})", why=f"the point {name}"))
    return Space(knobs, rules)


def _point(record: Mapping[str, Any]) -> dict[str, Value]:
    leaves = flatten({key: value for key, value in record.items() if key != LABEL})
    return {key.replace("-", "_"): value if is_scalar(value) else json.dumps(value) for key, value in leaves.items()}


def _table(points: Sequence[Mapping[str, Value]], keys: Sequence[str]) -> Space:
    knobs = [_knob(key, [point[key] for point in points], None) for key in keys]
    if len(keys) < 2:
        return Space(knobs)
    return Space(knobs).among(points)


def _knob(name: str, values: Sequence[Value], when: str | None) -> Knob:
    """A knob for the values seen, all sparse: between fixed points there is nothing to step through."""
    kinds = {type(value) for value in values}
    listed = list({(type(value), value): value for value in values}.values())
    first: Any = values[0]
    if kinds == {bool} and len(listed) == 2:
        return Flag(name, default=first, when=when)
    if kinds <= {int} or kinds <= {float}:
        return Grid(name, values=[value for value in listed if isinstance(value, (int, float))], default=first, sparse=True, when=when)
    return Choice(name, listed, default=first, when=when)

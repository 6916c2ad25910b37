"""DeepSpeed-style tuning spaces: a nested configuration in which a list stands for its candidates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from autoscout.common.templates import fill, flatten, holes, unflatten
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.space.interchange.source import Source, is_scalar, read_json
from autoscout.space.knobs import Choice, Flag, Grid, Knob
from autoscout.space.space import Space


def read_tuning_space(source: Source, facts: Mapping[str, Value] | None = None) -> Space:
    """A knob with a dotted name for every list of candidates; the first candidate is the default.

    Single values are no choice and give no knob: `tuning_template` keeps them. `$NAME` in a candidate takes the fact
    of that name.

    Raises:
        ConfigError: the file is not a nested mapping, a list is empty, a `$NAME` is unknown; all faults at once.
    """
    tree, where = _tree(source)
    values = dict(facts or {})
    knobs: list[Knob] = []
    faults: list[Fault] = []
    for name, leaf in flatten(tree).items():
        if not isinstance(leaf, list):
            continue
        unknown = sorted(hole for hole in holes(leaf) if fill(f"${{{hole}}}", values) is None)
        if not leaf or unknown:
            rule = f"${unknown[0]} is not a fact" if unknown else "a list of candidates must not be empty"
            fix = f"Give a fact {unknown[0].lower()}" if unknown else "List values, or write one value without brackets"
            faults.append(Fault(where=where, field=name, value=json.dumps(leaf), rule=rule, fix=fix))
            continue
        candidates = [item if is_scalar(item) else json.dumps(item, sort_keys=True) for item in fill(leaf, values)]
        try:
            knobs.append(_knob(name, list({(type(item), item): item for item in candidates}.values())))
        except SpaceError as error:
            faults += [Fault(where=where, field=name, rule=fault.rule, value=fault.value) for fault in error.faults]
    if not knobs and not faults:
        faults.append(Fault(where=where, rule="no value is a list of candidates, so there is nothing to choose", fix="Write [1, 2, 4]"))
    if faults:
        raise ConfigError(faults)
    return Space(knobs, facts=values)


def tuning_template(source: Source) -> dict[str, Any]:
    """The same configuration with `${dotted.name}` instead of each list, to be filled from a configuration of the space."""
    tree, _ = _tree(source)
    return unflatten({name: f"${{{name}}}" if isinstance(leaf, list) else leaf for name, leaf in flatten(tree).items()})


def _tree(source: Source) -> tuple[Mapping[str, Any], str]:
    data, where = read_json(source)
    if not isinstance(data, Mapping):
        raise ConfigError(Fault(where=where, rule="a tuning space is a nested mapping", value=type(data).__name__))
    return data, where


def _knob(name: str, values: list[Any]) -> Knob:
    if set(map(type, values)) == {bool}:
        return Flag(name, default=values[0]) if len(values) == 2 else Choice(name, values)
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return Grid(name, values=values, default=values[0])
    return Choice(name, values)

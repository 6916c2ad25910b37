"""Write the JSON that ConfigSpace reads (`ConfigurationSpace.from_json`, format 0.4)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.space.constraint import Constraint
from autoscout.space.knobs import Flag, Grid, Knob
from autoscout.space.listed import Listed
from autoscout.space.parser import parse
from autoscout.space.space import Space
from autoscout_lab.configspace.formula import Among, CannotSayError, Formula, Junction, Related, formula, table
from autoscout_lab.configspace.read import META, digest

_RELATIONS = {"eq": "RELATION_EQ", "lt": "RELATION_LT", "le": "RELATION_LE"}


@dataclass(frozen=True)
class Export:
    """A file for another tool, and what that tool cannot be told."""

    text: str
    lost: tuple[str, ...]


def write_configspace(space: Space, path: Path | None = None, name: str = "autoscout") -> Export:
    """The ConfigSpace JSON of a space; also written to `path` when given.

    Whole ranges with step 1 become integer ranges; other grids become ordinals, which keeps exactly their values. Conditions
    and constraints become conditions and forbidden clauses as far as and/or over sets of values can say them, by
    tabulating where needed; `lost` names those that cannot be said. Without a constraint ConfigSpace allows more than the space
    does; without its condition a knob is always active there, and a configuration must be given a value for it.
    `read_configspace` gets the very same space back from an unchanged file.
    """
    lost: list[str] = []
    always: set[str] = set()  # knobs that are active there against their conditions
    default = space.default()
    hyperparameters, conditions = [], []
    present: dict[str, Knob] = {}  # a knob that is never active has no place there
    for knob in space.knobs.values():
        try:
            activity = True if knob.when is None else formula(parse(knob.when), present, space.facts, violated=False)
        except CannotSayError as error:
            lost.append(f"condition of {knob.name} ({knob.when}), which is always active there: {error}")
            activity = True
            always.add(knob.name)
        if activity is False:
            continue
        present[knob.name] = knob
        hyperparameters.append(_hyperparameter(knob, default.get(knob.name, knob.default)))
        if activity is not True:
            conditions.append(_condition(activity, knob.name))
    forbiddens = []
    for constraint in space.constraints:
        if names := sorted(always.intersection(constraint.names())):  # holds where they are inactive, and might forbid all of their values
            lost.append(f"constraint {constraint.text}: {', '.join(names)} cannot be inactive there")
            continue
        try:
            forbiddens += _forbiddens(constraint, present, space.facts)
        except CannotSayError as error:
            lost.append(f"constraint {constraint.text}: {error}")
    if isinstance(space, Listed):
        try:
            forbiddens += _unlisted(space, present)
        except CannotSayError as error:
            lost.append(f"the list of {len(space):,} configurations: {error}")
    data: dict[str, Any] = {
        "name": name,
        "hyperparameters": hyperparameters,
        "conditions": conditions,
        "forbiddens": forbiddens,
        "python_module_version": "1.2.0",
        "format_version": 0.4,
    }
    if len(present) == len(space.knobs) and all(isinstance(constraint.rule, str) for constraint in space.constraints):
        data[META] = _original(space, data)
    text = json.dumps(data, indent=2)
    if path is not None:
        path.write_text(text + "\n", encoding="utf-8")
    return Export(text, tuple(lost))


def _original(space: Space, data: Mapping[str, Any]) -> dict[str, Any]:
    rules = []
    for constraint in space.constraints:
        rule: dict[str, Any] = {"rule": constraint.rule}
        rule |= {key: value for key, value in (("why", constraint.why), ("strict", constraint.strict)) if value}
        rules.append(rule)
    listed = {"among": [config.to_json() for config in space.enumerate()]} if isinstance(space, Listed) else {}
    return {"digest": digest(data), "facts": dict(space.facts), "constraints": rules, **listed}


def _hyperparameter(knob: Knob, default: Value) -> dict[str, Any]:
    own: dict[str, Any] = {key: value for key, value in (("unit", knob.unit), ("help", knob.help), ("when", knob.when)) if value}
    if not knob.restart:
        own["restart"] = False
    if knob.sparse == isinstance(knob, Grid):
        own["sparse"] = knob.sparse
    if knob.log and not _is_plain_range(knob):
        own["log"] = True
    if default != knob.default or type(default) is not type(knob.default):
        own["default"] = knob.default  # ConfigSpace refuses a space whose defaults break a clause, so it gets valid ones
    meta = {META: own} if own else None
    if len(knob.values) == 1:
        return {"type": "constant", "name": knob.name, "value": knob.values[0], "meta": meta}
    if _is_plain_range(knob):
        ends = {"lower": knob.values[0], "upper": knob.values[-1]}
        return {"type": "uniform_int", "name": knob.name, **ends, "default_value": default, "log": knob.log, "meta": meta}
    if isinstance(knob, Grid):
        return {"type": "ordinal", "name": knob.name, "sequence": list(knob.values), "default_value": default, "meta": meta}
    values = [False, True] if isinstance(knob, Flag) else list(knob.values)
    return {"type": "categorical", "name": knob.name, "choices": values, "weights": None, "default_value": default, "meta": meta}


def _is_plain_range(knob: Knob) -> bool:
    return isinstance(knob.values, range) and knob.values.step == 1 and len(knob.values) > 1


def _condition(condition: Formula, child: str) -> dict[str, Any]:
    if isinstance(condition, Junction):
        parts = [_condition(part, child) for part in condition.parts]
        return {"type": "AND" if condition.every else "OR", "child": child, "conditions": parts}
    if isinstance(condition, Among):
        if len(condition.values) == 1:
            return {"type": "EQ", "child": child, "parent": condition.name, "value": condition.values[0]}
        return {"type": "IN", "child": child, "parent": condition.name, "values": list(condition.values)}
    raise CannotSayError(f"it compares {condition}")


def _forbiddens(constraint: Constraint, knobs: Mapping[str, Knob], facts: Mapping[str, Value]) -> list[dict[str, Any]]:
    names = [name for name in constraint.names() if name in knobs]
    if constraint.strict and any(knobs[name].when is not None for name in names):
        raise CannotSayError("it demands that knobs are active")
    if isinstance(constraint.rule, str):
        violation = formula(parse(constraint.rule), knobs, facts, violated=True)
    elif all(name in knobs or name in facts for name in constraint.names()):
        function, reads = constraint.rule, constraint.names()
        violation = table(names, lambda values: not function(*({**facts, **values}[name] for name in reads)), knobs)
    else:
        violation = False  # reads a knob that is never active
    if violation is True:
        raise CannotSayError("it forbids everything")
    return _clauses(violation)


def _unlisted(space: Listed, knobs: Mapping[str, Knob]) -> list[dict[str, Any]]:
    """What is forbidden because it is not in the list."""
    if any(knob.when is not None for knob in knobs.values()):
        raise CannotSayError("it depends on which knobs are active")
    return _clauses(table(list(knobs), lambda values: not space.feasible(Config(values)), knobs))


def _clauses(clauses: Formula) -> list[dict[str, Any]]:
    parts = clauses.parts if isinstance(clauses, Junction) and not clauses.every else (clauses,) if clauses else ()
    return [_clause(part) for part in parts]


def _clause(clause: Formula) -> dict[str, Any]:
    if isinstance(clause, Junction):
        return {"type": "AND" if clause.every else "OR", "clauses": [_clause(part) for part in clause.parts]}
    if isinstance(clause, Among):
        if len(clause.values) == 1:
            return {"type": "EQUALS", "name": clause.name, "value": clause.values[0]}
        return {"type": "IN", "name": clause.name, "values": list(clause.values)}
    if isinstance(clause, Related):
        return {"type": _RELATIONS[clause.sign], "left": clause.left, "right": clause.right}
    raise CannotSayError("it forbids everything")

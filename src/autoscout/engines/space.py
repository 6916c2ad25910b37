"""From a table to a space: which knobs there are for this model and machine, and what the engine would do by itself."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from typing import Any

from autoscout.core.config import Value
from autoscout.engines.table import ASKED, SEARCHED, EngineTable, KnobRow
from autoscout.space import Choice, Constraint, Flag, Grid, Knob, Space
from autoscout.space.constraint import value_of
from autoscout.space.parser import parse

ALL = "all"
MOST_CASES = 1000  # combinations of values that are looked at for a condition


def build_space(table: EngineTable, facts: Mapping[str, Value], own: Mapping[str, Value]) -> Space:
    """The space of one task.

    Args:
        table: Flags and knobs of the engine's version.
        facts: Of model and machine; unknown ones are left out, and with them the rules that need them.
        own: What the engine would do by itself where its table does not say: defaults that depend on model and machine.
    """
    rows = [_limited(row, facts) for row in _with_conditions_met(offered(table, facts), facts)]
    knobs = [_knob(row, facts, default_of(row, table, own)) for row in sorted(rows, key=lambda row: -row.matters)]
    names = {knob.name for knob in knobs}
    rules = [Constraint(rule, why=why) for rule, why in table.constraints]
    read = {name for rule in rules for name in rule.names()} | {name for row in rows for name in _names(row.when)}
    applicable = [rule for rule in rules if all(name in names or name in facts for name in rule.names())]
    return Space(knobs, applicable, facts={name: value for name, value in facts.items() if name in read})


def offered(table: EngineTable, facts: Mapping[str, Value]) -> list[KnobRow]:
    """The knobs that make sense with these facts; a fact that is not known counts as zero."""
    return [row for row in table.knobs.values() if not row.needs or _is_true(row.needs, facts)]


def _limited(row: KnobRow, facts: Mapping[str, Value]) -> KnobRow:
    """The knob less the values that make no sense with these facts."""
    absent = {value for value, condition in row.only.items() if condition == ASKED or not _is_true(condition, facts)}
    return replace(row, values=tuple(value for value in row.values if value not in absent)) if absent else row


def broken(table: EngineTable, values: Mapping[str, Value]) -> frozenset[str]:
    """The soft rules of a table that these values do not keep."""
    rules = (rule for rule in table.soft if all(name in values for name in Constraint(rule).names()))
    return frozenset(rule for rule in rules if not value_of(parse(rule), values))


def unconditional(rows: Mapping[str, KnobRow], baseline: Collection[str], values: Mapping[str, Value]) -> dict[str, KnobRow]:
    """Knobs of what the user runs today that mean nothing there: the engine takes their flags all the same, so they lose the condition."""
    named = (row for name, row in rows.items() if name in baseline and row.when and set(_names(row.when)) <= values.keys())
    return {row.name: replace(row, when="") for row in named if not _is_true(row.when, values)}


def _is_true(text: str, facts: Mapping[str, Value]) -> bool:
    return bool(value_of(parse(text), {**dict.fromkeys(_names(text), 0), **facts}))


@cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name, _ in parse(text).names())) if text else ()


def _with_conditions_met(rows: Sequence[KnobRow], facts: Mapping[str, Value]) -> list[KnobRow]:
    """The rows whose conditions read nothing but facts and knobs that are offered themselves."""
    names = {row.name for row in rows} | facts.keys()
    return [row for row in rows if names.issuperset(_names(row.when))]


def default_of(row: KnobRow, table: EngineTable, own: Mapping[str, Value]) -> Value:
    """What the engine does when nobody sets the knob."""
    of_flag = None if row.env or row.key else table.flags[row.setting].default
    for value in (own.get(row.name), row.left_out, row.default, of_flag):
        if value is not None:
            return value
    if row.optional:
        return None
    return (row.grid or row.values or (False,))[0]


def _knob(row: KnobRow, facts: Mapping[str, Value], default: Value) -> Knob:
    common: dict[str, Any] = {"when": row.when or None, "help": row.trades}
    if not row.grid and not row.values:
        return Flag(row.name, default=bool(default), **common)
    most = facts.get(row.most) or None if row.most else None  # no GPU bounds nothing: engines spread over processors, too
    choices = [value for value in row.grid or row.values if not (_is_number(value) and _is_number(most) and value > most)]  # type: ignore[operator]
    if default not in choices:
        choices = sorted([*choices, default]) if row.grid else [default, *choices]  # type: ignore[type-var]
    if row.grid:
        fractional = any(isinstance(value, float) for value in choices)
        values = [float(value) if fractional else value for value in choices]  # type: ignore[arg-type]
        return Grid(row.name, values=values, default=float(default) if fractional else default, log=row.log, unit=row.unit, **common)  # type: ignore[arg-type]
    return Choice(row.name, choices, default=default, unit=row.unit, **common)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def resting(
    table: EngineTable,
    space: Space,
    facts: Mapping[str, Value],
    *,
    free: Collection[str],
    allow_lossy: bool,
    named: Collection[str] = (),
) -> tuple[str, ...]:
    """The knobs that stay at their default: those that seldom matter, those that change the answers, and those that mean nothing then.

    Args:
        table: Where `matters` and `lossy` are.
        space: Of the task.
        facts: Of model and machine.
        free: Knobs to search whatever the table says; `all` frees every one that changes no answers.
        allow_lossy: Search knobs that change the answers too.
        named: Knobs that a campaign names, so that their values decide which others mean something.
    """
    rows, facts = [row for name, row in table.knobs.items() if name in space.knobs], {**space.facts, **facts}
    names = []
    for row in rows:
        matters = row.matters >= SEARCHED or (bool(row.usual) and _is_true(row.usual, facts))
        is_usual = matters and (allow_lossy or not row.lossy)
        is_free = row.name in free or (ALL in free and (allow_lossy or not row.lossy))
        if not is_usual and not is_free:
            names.append(row.name)
    still = set(names) - {*free, *named}
    for row in rows:  # a knob that is freed frees those that it depends on
        if row.when and row.name in free and not _can_be(row.when, space, facts, still):
            still -= set(_names(row.when))
            names = [name for name in names if name not in _names(row.when)]
    for row in rows:
        if row.when and row.name not in names and row.name not in free and not _can_be(row.when, space, facts, still):
            names.append(row.name)
    return tuple(names)


def _can_be(condition: str, space: Space, facts: Mapping[str, Value], still: Collection[str]) -> bool:
    """Whether a condition can hold while these knobs stay at their default."""
    names = [name for name in _names(condition) if name in space.knobs]
    choices = [[space.knobs[name].default] if name in still else list(space.knobs[name].values) for name in names]
    if prod(map(len, choices)) > MOST_CASES:
        return True
    return any(_is_true(condition, {**facts, **dict(zip(names, values, strict=True))}) for values in product(*choices))


__all__ = ["ALL", "build_space", "default_of", "offered", "resting"]

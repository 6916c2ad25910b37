"""Expressions as and/or trees over sets of values, which is all that ConfigSpace can say.

A part that reads one knob becomes the set of its values for which the part comes out as wanted; a part that reads several
is tabulated. What an inactive knob does to a part carries over, because ConfigSpace too takes a clause about an
inactive parameter as not fulfilled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.core.config import Value
from autoscout.space.algebra import FAILED, compute
from autoscout.space.constraint import value_of
from autoscout.space.knobs import Knob
from autoscout.space.parser import Syntax

MAX_CELLS = 20_000
MAX_ROWS = 2_000


class CannotSayError(Exception):
    """Something that and/or over sets of values cannot express, in words."""


@dataclass(frozen=True)
class Among:
    """True when the knob is active and holds one of the values."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Related:
    """True when both knobs are active and compare so."""

    left: str
    sign: str  # eq, lt, le
    right: str


@dataclass(frozen=True)
class Junction:
    """True when all (or any) of the parts are."""

    every: bool
    parts: tuple[Formula, ...]


Formula = bool | Among | Related | Junction


def formula(syntax: Syntax, knobs: Mapping[str, Knob], facts: Mapping[str, Value], *, violated: bool, positive: bool = True) -> Formula:
    """When is a condition met, or (`violated`) a constraint broken?

    Args:
        syntax: The condition or constraint.
        knobs: All knobs by name.
        facts: Constants.
        violated: A constraint is broken when it is false or cannot be computed; a condition is met when it is true.
        positive: False to ask about `not syntax`.

    Raises:
        CannotSayError: it depends on inactive knobs in a way that sets of values cannot express, or is too large.
    """
    if syntax.op == "not":
        return formula(syntax.args[0], knobs, facts, violated=violated, positive=not positive)
    if syntax.op in ("and", "or"):
        parts = [formula(arg, knobs, facts, violated=violated, positive=positive) for arg in syntax.args]
        return junction(((syntax.op == "and") == positive) != violated, parts)
    names = list(dict.fromkeys(name for name, _ in syntax.names() if name in knobs))

    def counts(values: Mapping[str, Any]) -> bool:
        value = compute("and", [value_of(syntax, {**facts, **values})])
        truth = value if positive else compute("not", [value])
        return truth is False or truth is FAILED if violated else truth is True

    conditional = any(knobs[name].when is not None for name in names)
    if conditional and _can_read_absence(syntax) and (syntax.op != "active" or counts({})):
        raise CannotSayError("it depends on a knob being inactive")
    return table(names, counts, knobs, _comparison(syntax, names, positive != violated))


def table(
    names: Sequence[str], counts: Callable[[Mapping[str, Any]], bool], knobs: Mapping[str, Knob], related: Formula | None = None
) -> Formula:
    """The rows of values that count, as and/or over sets."""
    if not names:
        return counts({})
    if len(names) == 1:
        knob = knobs[names[0]]
        values = tuple(value for value in knob.values if counts({names[0]: value}))
        return _among(knob, values)
    cells = math.prod(len(knobs[name].values) for name in names)
    if cells > MAX_CELLS:
        if related is not None:
            return related
        raise CannotSayError(f"it relates {', '.join(names)} over {cells:,} combinations")
    *heads, last = sorted(names, key=lambda name: len(knobs[name].values))
    rows: list[Formula] = []
    for cell in itertools.product(*(knobs[name].values for name in heads)):
        fixed = dict(zip(heads, cell, strict=True))
        values = tuple(value for value in knobs[last].values if counts({**fixed, last: value}))
        if values:
            rows.append(junction(True, [*(Among(name, (value,)) for name, value in fixed.items()), Among(last, values)]))
    if len(rows) > MAX_ROWS:
        raise CannotSayError(f"it relates {', '.join(names)} in {len(rows):,} different ways")
    return junction(False, rows)


def junction(every: bool, parts: Sequence[Formula]) -> Formula:
    """And (or or) of parts: decided where it can be, flattened, sets of the same knob merged."""
    others: list[Formula] = []
    sets: dict[str, tuple[Value, ...]] = {}
    for part in itertools.chain.from_iterable(
        part.parts if isinstance(part, Junction) and part.every == every else (part,) for part in parts
    ):
        if isinstance(part, bool):
            if part != every:
                return not every
        elif isinstance(part, Among):
            sets[part.name] = _merged(every, sets[part.name], part.values) if part.name in sets else part.values
        elif part not in others:
            others.append(part)
    if every and any(not values for values in sets.values()):
        return False
    others = [*(Among(name, values) for name, values in sets.items()), *others]
    return others[0] if len(others) == 1 else Junction(every, tuple(others)) if others else every


def _merged(every: bool, one: Sequence[Value], other: Sequence[Value]) -> tuple[Value, ...]:
    typed = [(type(value), value) for value in other]
    if every:
        return tuple(value for value in one if (type(value), value) in typed)
    mine = [(type(value), value) for value in one]
    return (*one, *(value for kind, value in typed if (kind, value) not in mine))


def _among(knob: Knob, values: tuple[Value, ...]) -> Formula:
    if not values:
        return False
    return True if len(values) == len(knob.values) and knob.when is None else Among(knob.name, values)


def _can_read_absence(syntax: Syntax) -> bool:
    """Whether the expression can come out as something definite although a knob in it is inactive."""
    return syntax.op in ("active", "if", "and", "or", "not") or any(_can_read_absence(arg) for arg in syntax.args)


def _comparison(syntax: Syntax, names: Sequence[str], positive: bool) -> Formula | None:
    """`a < b` between two knobs of whole numbers, for domains too large to tabulate."""
    if syntax.op not in ("eq", "lt", "le", "gt", "ge") or len(names) != 2 or any(arg.op != "name" for arg in syntax.args):
        return None
    left, right = names
    if positive:
        signs = {"eq": (left, "eq", right), "lt": (left, "lt", right), "le": (left, "le", right)}
        signs |= {"gt": (right, "lt", left), "ge": (right, "le", left)}
    else:
        signs = {"lt": (right, "le", left), "le": (right, "lt", left), "gt": (left, "le", right), "ge": (left, "lt", right)}
    return Related(*signs[syntax.op]) if syntax.op in signs else None

"""Strategies for random expressions and spaces."""

from __future__ import annotations

from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from autoscout.core.errors import SpaceError
from autoscout.space import Choice, Constraint, Flag, Grid, Knob, Space

NAMES = ["alpha", "beta", "gamma", "delta", "omega"]
FACTS = {"gpus": 4, "limit": 2.5}
_NUMERIC_KINDS = (0, 1, 3, 4, 6)  # kinds of `knob` that hold numbers
_TESTED = ["1", "'red'", "'auto'", "True", "2.0", "None"]
_ARITHMETIC = ["({} + {})", "({} - {})", "({} * {})", "({} * {})", "({} % {})", "({} // {})", "({} / {})"]
_ARITHMETIC += ["min({}, {})", "max({}, {})", "-abs({} - {})"]


def knob(name: str, kind: int, when: str | None) -> Knob:
    made: list[Knob] = [
        Choice(name, [1, 2, 4], when=when),
        Flag(name, when=when),
        Choice(name, ["red", "green"], when=when),
        Grid(name, 0, 3, when=when),
        Grid(name, 0.5, 2.0, step=0.5, when=when),
        Choice(name, [0, "auto", None, True], when=when),
        Grid(name, 1, 12, when=when, default=3),
    ]
    return made[kind]


@st.composite
def numbers(draw: Any, names: list[str], depth: int = 2) -> str:
    options = ["constant", "fact"] + (["knob"] * 3 if names else []) + (["op"] * 3 if depth else [])
    chosen = draw(st.sampled_from(options))
    if chosen == "constant":
        return str(draw(st.sampled_from([0, 1, 2, 3, 4, 8, 0.5])))
    if chosen == "fact":
        return str(draw(st.sampled_from(sorted(FACTS))))
    if chosen == "knob":
        return str(draw(st.sampled_from(names)))
    form = str(draw(st.sampled_from(_ARITHMETIC)))
    return form.format(draw(numbers(names, depth - 1)), draw(numbers(names, depth - 1)))


@st.composite
def booleans(draw: Any, names: list[str], numeric: list[str], depth: int = 2) -> str:
    options = ["compare"] * 3 + (["text", "member", "active", "odd"] if names else []) + (["and", "or", "not", "if"] if depth else [])
    chosen = draw(st.sampled_from(options))
    if chosen == "text":
        sign = draw(st.sampled_from(["==", "!="]))
        return f"{draw(st.sampled_from(names))} {sign} {draw(st.sampled_from(_TESTED))}"
    if chosen == "odd":
        return str(draw(st.sampled_from(names)))
    if chosen == "member":
        return f"{draw(st.sampled_from(names))} in ({draw(numbers(numeric, 0))}, {draw(numbers(numeric, 0))}, 'red')"
    if chosen == "active":
        return f"active({draw(st.sampled_from(names))})"
    if chosen == "compare":
        op = draw(st.sampled_from(["==", "<=", "<", ">", ">=", "!="]))
        return f"{draw(numbers(numeric))} {op} {draw(numbers(numeric))}"
    parts = [draw(booleans(names, numeric, depth - 1)) for _ in range(3)]
    if chosen == "not":
        return f"not ({parts[0]})"
    if chosen == "if":
        return f"(({parts[0]}) if ({parts[1]}) else ({parts[2]}))"
    return f"({parts[0]}) {chosen} ({parts[1]})"


@st.composite
def declarations(draw: Any) -> tuple[list[Knob], list[str]]:
    """Knobs in any order, and constraints over them that may contradict each other."""
    count = draw(st.integers(1, 5))
    kinds = draw(st.lists(st.integers(0, 6), min_size=count, max_size=count))
    names = NAMES[:count]
    knobs = []
    for place, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        before = names[:place]
        numeric = [other for other, its in zip(before, kinds, strict=False) if its in _NUMERIC_KINDS]
        when = draw(booleans(before, numeric, 1)) if before and draw(st.booleans()) else None
        knobs.append(knob(name, kind, when))
    numeric = [name for name, kind in zip(names, kinds, strict=True) if kind in _NUMERIC_KINDS]
    return list(draw(st.permutations(knobs))), draw(st.lists(booleans(names, numeric), max_size=3))


@st.composite
def spaces(draw: Any) -> Space:
    """Spaces with at least one valid configuration."""
    knobs, rules = draw(declarations())
    try:
        return Space(knobs, [Constraint(rule) for rule in rules], FACTS)
    except SpaceError:
        assume(False)
        raise

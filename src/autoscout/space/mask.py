"""M(s): projection of points into what a structure allows, and the neighbours of a configuration."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from autoscout.core.config import Config, Value
from autoscout.space.compile import Compiled
from autoscout.space.knobs import Knob
from autoscout.space.solver import SolverState

if TYPE_CHECKING:
    from autoscout.space.space import Space

MANY = 1_000
"""Values of an ordered knob above which single steps lead nowhere: moves grow fourfold each."""


def nearest(compiled: Compiled, states: list[SolverState], target: Mapping[str, Value], given: Config) -> Config:
    """Complete feasible `states` knob by knob, ancestors first, each as near to `target` as can still be completed."""
    positions: dict[int, int] = {}
    solver = compiled.solver
    for index, (knob, component) in enumerate(zip(compiled.knobs, compiled.component_of, strict=True)):
        if component < 0 or index not in states[component].pending:
            continue
        state = states[component]
        value = knob.nearest(target.get(knob.name, knob.default), solver.support_values(state, index))
        position = knob.position(value)
        assert position is not None, "a supported value is a value"
        after = solver.step(state, index, position)
        assert after is not None, "a supported value can be set"
        states[component] = after
        positions[index] = position
    return compiled.config(given, positions)


def neighbours(space: Space, config: Config) -> list[Config]:
    """All valid configurations that differ from `config` in one move of one knob, and in what that move makes necessary."""
    nearby: dict[Config, None] = {}
    for name, knob in space.knobs.items():
        if name not in config:
            continue
        around = config.only(space.ancestors(name))
        values = space.choices(name, around)
        for value in moves(knob, config[name], values):
            nearby[space.project(config, around.extend({name: value}))] = None
    nearby.pop(config, None)
    return list(nearby)


def moves(knob: Knob, value: Value, values: Sequence[Value]) -> list[Value]:
    """The next values below and above for an ordered knob, of very many also ones farther away; all others for categories."""
    if not knob.ordered:
        return [other for other in values if other != value or type(other) is not type(value)]
    at = bisect_left(values, value)  # type: ignore[type-var]
    above = at + 1 if at < len(values) and values[at] == value else at
    strides = [0]
    while len(values) > MANY and (further := 4 * strides[-1] + 3) < len(values):  # 1, 4, 16, 64, ... away
        strides.append(further)
    places = [place for stride in strides for place in (at - 1 - stride, above + stride)]
    return [values[place] for place in places if 0 <= place < len(values)]

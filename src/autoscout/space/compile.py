"""From a declaration to something that can be solved: names, order, expressions as nodes, independent components."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.space import tree
from autoscout.space.algebra import Node
from autoscout.space.constraint import Constraint, build, meant
from autoscout.space.knobs import Knob, shown
from autoscout.space.parser import parse
from autoscout.space.solver import Solver, SolverState

MOST_VALUES = 1_000_000


@dataclass(frozen=True)
class Compiled:
    """A space as its solver sees it; variables are numbered in dependency order.

    Attributes:
        knobs: By variable.
        index: Variable by name.
        parents: Knobs that the condition of a knob reads, by name.
        conditions: By variable; true when the knob is active.
        rules: By constraint; true when it holds.
        components: Independent parts of the space, each with a solution.
        component_of: By variable; -1 for a knob that is never active.
    """

    knobs: tuple[Knob, ...]
    index: Mapping[str, int]
    parents: Mapping[str, tuple[str, ...]]
    solver: Solver
    conditions: tuple[Node, ...]
    rules: tuple[Node, ...]
    components: tuple[SolverState, ...]
    component_of: tuple[int, ...]
    alphabetical: tuple[tuple[int, str, Sequence[Value]], ...]  # variable, name, values

    def config(self, given: Config, positions: Mapping[int, int]) -> Config:
        """`given` and the values at the positions in `positions`, all of them known to be valid."""
        if given:
            values = {
                name: domain[positions[index]] if index in positions else given[name]
                for index, name, domain in self.alphabetical
                if index in positions or name in given
            }
        else:
            values = {name: domain[positions[index]] for index, name, domain in self.alphabetical if index in positions}
        return Config.trusted(values)

    def states(self, partial: Mapping[str, Value]) -> list[SolverState] | None:
        """One feasible state per component after `partial`; None when it cannot be completed."""
        states = list(self.components)
        step, feasible = self.solver.step, self.solver.feasible
        touched = []
        for name, value in partial.items():
            index = self.index.get(name)
            if index is None:
                return None
            component = self.component_of[index]
            position = self.knobs[index].position(value)
            if position is None or component < 0:
                return None
            after = step(states[component], index, position)
            if after is None:
                return None
            states[component] = after
            touched.append(component)
        for component in touched:
            state = states[component]
            if not (state.feasible or feasible(state)):
                return None
        return states


def compile_space(declared: Sequence[Knob], constraints: Sequence[Constraint], facts: Mapping[str, Value]) -> Compiled:
    """Check a declaration and make it solvable.

    Raises:
        SpaceError: all faults of one stage (names; conditions and constraints; circles; contradictions) at once.
    """
    _check_names(declared, facts)
    parents = _parents(declared, facts)
    by_name = {knob.name: knob for knob in declared}
    knobs = tuple(by_name[name] for name in tree.order(list(by_name), parents))
    solver = Solver(
        [knob.values for knob in knobs],
        [knob.ordered for knob in knobs],
        [knob.position(knob.default) or 0 for knob in knobs],
    )
    conditions, rules = _nodes(solver, knobs, constraints, facts)
    root = solver.root(dict(enumerate(conditions)), rules)
    if root is None or not solver.feasible(root):
        raise _conflict(solver, conditions, rules, constraints, knobs, facts)
    components = solver.parts(root)
    component_of = [-1] * len(knobs)
    for number, part in enumerate(components):
        for index in part.pending:
            component_of[index] = number
    return Compiled(
        knobs=knobs,
        index={knob.name: index for index, knob in enumerate(knobs)},
        parents=parents,
        solver=solver,
        conditions=conditions,
        rules=rules,
        components=components,
        component_of=tuple(component_of),
        alphabetical=tuple(
            (index, knobs[index].name, knobs[index].values) for index in sorted(range(len(knobs)), key=lambda index: knobs[index].name)
        ),
    )


def _check_names(knobs: Sequence[Knob], facts: Mapping[str, Value]) -> None:
    faults = []
    names: set[str] = set()
    for knob in knobs:
        if knob.name in names:
            faults.append(Fault(field=f"knobs.{knob.name}", rule="a knob may be declared once", fix="Rename or remove one"))
        if knob.name in facts:
            faults.append(Fault(field=f"knobs.{knob.name}", rule="a knob and a fact must not share a name", fix="Rename one"))
        names.add(knob.name)
    for name, value in facts.items():
        if (not isinstance(value, (bool, int, float, str)) and value is not None) or (
            isinstance(value, float) and not math.isfinite(value)
        ):
            rule = "a fact must be a finite number, text, true or false"
            faults.append(Fault(field=f"facts.{name}", value=repr(value), rule=rule, fix="Leave it out, or give its size instead"))
    if faults:
        raise SpaceError(faults)


def _parents(knobs: Sequence[Knob], facts: Mapping[str, Value]) -> dict[str, tuple[str, ...]]:
    """Direct parents by condition; all faults of all conditions in one error."""
    names = {knob.name for knob in knobs}
    texts = {value for knob in knobs if isinstance(knob.values, tuple) for value in knob.values}
    parents: dict[str, tuple[str, ...]] = {}
    faults: list[Fault] = []
    for knob in knobs:
        parents[knob.name] = ()
        if knob.when is None:
            continue
        try:
            read = tuple(dict.fromkeys(parse(knob.when).names()))
        except SpaceError as error:
            faults += [replace(fault, field=f"knobs.{knob.name}.when") for fault in error.faults]
            continue
        for name, at in read:
            if name not in names and name not in facts:
                rule = f"column {at + 1}: {name!r} is neither a knob nor a fact"
                fix = meant(name, [*names, *facts], texts)
                faults.append(Fault(field=f"knobs.{knob.name}.when", value=f"`{knob.when}`", rule=rule, fix=fix))
        parents[knob.name] = tuple(dict.fromkeys(name for name, _ in read if name in names))
    if faults:
        raise SpaceError(faults)
    return parents


def _nodes(
    solver: Solver, knobs: Sequence[Knob], constraints: Sequence[Constraint], facts: Mapping[str, Value]
) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Conditions and constraints as nodes, all their faults in one error."""
    table = solver.table
    faults: list[Fault] = []
    scope = {name: table.constant(value) for name, value in facts.items()}
    for index, knob in enumerate(knobs):
        scope[knob.name] = table.variable(index, sure=knob.when is None)
    conditions = [table.true] * len(knobs)
    for index, knob in enumerate(knobs):
        if knob.when is not None:
            try:
                conditions[index] = table.make("sure", (build(knob.when, table, scope),))
            except SpaceError as error:
                faults += [replace(fault, field=f"knobs.{knob.name}.when") for fault in error.faults]
    rules = []
    for number, constraint in enumerate(constraints):
        try:
            node = constraint.node(table, scope)
        except SpaceError as error:
            faults += [replace(fault, where=constraint.where, field=f"constraints[{number}]") for fault in error.faults]
            continue
        rules.append(table.make("sure" if constraint.strict else "holds", (node,)))
    faults += _too_long(knobs, [*conditions, *rules])
    if faults:
        raise SpaceError(faults)
    return tuple(conditions), tuple(rules)


def _too_long(knobs: Sequence[Knob], nodes: Sequence[Node]) -> list[Fault]:
    read = reduce(or_, (node.variables for node in nodes), 0)
    return [
        Fault(
            field=f"knobs.{knob.name}",
            value=f"{len(knob.values):,} values",
            rule=f"a knob that conditions or constraints read may have {MOST_VALUES:,} values at most",
            fix="Give it a step, or a log scale",
        )
        for index, knob in enumerate(knobs)
        if read >> index & 1 and len(knob.values) > MOST_VALUES
    ]


def _conflict(
    solver: Solver,
    conditions: Sequence[Node],
    rules: Sequence[Node],
    constraints: Sequence[Constraint],
    knobs: Sequence[Knob],
    facts: Mapping[str, Value],
) -> SpaceError:
    """The error for a space without any valid configuration: names a smallest set of constraints that cannot hold together."""
    conflict = list(range(len(rules)))
    for number in range(len(rules)):
        fewer = [other for other in conflict if other != number]
        root = solver.root(dict(enumerate(conditions)), [rules[other] for other in fewer])
        if root is None or not solver.feasible(root):
            conflict = fewer
    chosen = [constraints[number] for number in conflict]
    names = list(dict.fromkeys(name for constraint in chosen for name in constraint.names()))
    by_name = {knob.name: knob for knob in knobs}
    readings = [f"{name}={facts[name]!r}" if name in facts else f"{name} in {shown(by_name[name].values)}" for name in names]
    texts = [
        f"`{constraint.text}`" + (f" ({constraint.where})" if place and constraint.where else "") for place, constraint in enumerate(chosen)
    ]
    rule = "this constraint can never hold" if len(chosen) == 1 else "these constraints cannot hold together"
    return SpaceError(
        Fault(
            where=next((constraint.where for constraint in chosen if constraint.where), ""),
            field=", ".join(f"constraints[{number}]" for number in conflict),
            rule=f"{rule}: {' and '.join(texts)}",
            value=", ".join(readings),
            fix="Loosen one of them, or give these knobs more values",
        )
    )

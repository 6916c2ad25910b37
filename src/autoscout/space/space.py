"""Space: what may be chosen, declared before anything is searched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.core.seeds import stream
from autoscout.space import tree
from autoscout.space.algebra import UNDEFINED, Node, evaluate
from autoscout.space.conflict import explain
from autoscout.space.constraint import Constraint, Rule, build, close
from autoscout.space.counting import Count, OutOfWork, count, draw, estimate, walk
from autoscout.space.knobs import Knob, shown
from autoscout.space.mask import nearest, neighbours
from autoscout.space.parser import parse
from autoscout.space.solver import QUICK_WORK, Solver, State

_NOTHING = Config()


class Space:
    """Declared knobs, conditions and constraints.

    A configuration is valid when every active knob has one of its values, no inactive knob has any, and all constraints
    hold. A knob is active when its `when` is true; reading an inactive knob makes an expression undefined, which is not true.
    All look-ahead is exact: what `choices` offers can be completed, and what it leaves out cannot.

    >>> from autoscout.space import Choice, Flag, Grid, Space
    >>> space = Space(
    ...     [
    ...         Choice("tp", [1, 2, 4, 8]),
    ...         Choice("dp", [1, 2, 4, 8]),
    ...         Flag("sp", when="tp > 1"),
    ...         Grid("bucket_mb", 1, 64, log=True, when="dp > 1"),
    ...     ],
    ...     constraints=["tp * dp == gpus"],
    ...     facts={"gpus": 8},
    ... )
    >>> space.choices("dp", Config(tp=2))
    (4,)
    >>> space.undecided(Config(tp=8))
    ('dp', 'sp')
    >>> space.count()
    Count(value=37, exact=True)

    Args:
        knobs: In the order they should be shown.
        constraints: Expressions, functions whose argument names are the knobs and facts they read, or `Constraint`s.
        facts: Constants of the task that conditions and constraints may read.

    Raises:
        SpaceError: all faults of the declaration at once; when the constraints contradict each other, a smallest
            set of them that does.
    """

    def __init__(
        self,
        knobs: Iterable[Knob],
        constraints: Iterable[Rule | Constraint] = (),
        facts: Mapping[str, Value] | None = None,
    ) -> None:
        declared = list(knobs)
        self.constraints = tuple(rule if isinstance(rule, Constraint) else Constraint(rule) for rule in constraints)
        self.facts: Mapping[str, Value] = MappingProxyType(dict(facts or {}))
        _check_names(declared, self.facts)
        by_name = {knob.name: knob for knob in declared}
        self._parents = _parents(declared, self.facts)
        self.knobs: Mapping[str, Knob] = MappingProxyType({name: by_name[name] for name in tree.order(list(by_name), self._parents)})
        self.sparse = tuple(name for name, knob in self.knobs.items() if knob.sparse)
        self.dense = tuple(name for name, knob in self.knobs.items() if not knob.sparse)
        self._names = tuple(self.knobs)
        self._listed = tuple(self.knobs.values())
        self._index = {name: index for index, name in enumerate(self._names)}
        self.declared = tuple(by_name)
        self._solver = Solver(
            [knob.values for knob in self._listed],
            [knob.ordered for knob in self._listed],
            [knob.position(knob.default) or 0 for knob in self._listed],
        )
        self._scope = self._make_scope()
        self._conditions, self._rules = self._compile()
        self._components, self._component_of = self._open()
        self._default: Config | None = None

    def __repr__(self) -> str:
        rules = [constraint.text for constraint in self.constraints]
        return f"Space({list(self._listed)!r}, constraints={rules!r}, facts={dict(self.facts)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Space, ([self.knobs[name] for name in self.declared], self.constraints, dict(self.facts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    def _make_scope(self) -> dict[str, Node]:
        table = self._solver.table
        scope = {name: table.constant(value) for name, value in self.facts.items()}
        for index, knob in enumerate(self._listed):
            scope[knob.name] = table.variable(index, sure=knob.when is None)
        return scope

    def _compile(self) -> tuple[list[Node], list[Node]]:
        """Conditions and constraints as nodes, all their faults in one error."""
        table, faults = self._solver.table, []
        conditions = [table.true] * len(self._listed)
        for index, knob in enumerate(self._listed):
            if knob.when is not None:
                try:
                    conditions[index] = table.make("sure", (build(knob.when, table, self._scope),))
                except SpaceError as error:
                    faults += [replace(fault, field=f"knobs.{knob.name}.when") for fault in error.faults]
        rules = []
        for number, constraint in enumerate(self.constraints):
            try:
                node = constraint.node(table, self._scope)
            except SpaceError as error:
                faults += [replace(fault, where=constraint.where, field=f"constraints[{number}]") for fault in error.faults]
                continue
            rules.append(table.make("sure" if constraint.strict else "holds", (node,)))
        if faults:
            raise SpaceError(faults)
        return conditions, rules

    def _open(self) -> tuple[list[State], list[int]]:
        """The independent parts of the space, each known to be satisfiable, and the part of every knob (-1: never active)."""
        root = self._solver.root(dict(enumerate(self._conditions)), self._rules)
        if root is None or not self._solver.feasible(root):
            raise explain(self._solver, self._conditions, self._rules, self.constraints, self._listed, self.facts)
        components = list(self._solver.parts(root))
        component_of = [-1] * len(self._listed)
        for number, part in enumerate(components):
            for index in part.pending:
                component_of[index] = number
        return components, component_of

    def parents(self, name: str) -> tuple[str, ...]:
        """The knobs that the condition of `name` reads."""
        return self._parents[self._known(name)]

    def ancestors(self, name: str) -> frozenset[str]:
        """All knobs that decide, directly or not, whether `name` is active."""
        return tree.ancestors(self._known(name), self._parents)

    def _known(self, name: str) -> str:
        if name not in self._index:
            raise SpaceError(Fault(field=name, rule="there is no such knob", fix=close(name, self._names)))
        return name

    def fingerprint(self) -> str:
        """Sixteen hex digits, equal for spaces with the same knobs, conditions, constraints and facts."""
        data = {
            "knobs": {
                name: [knob.kind, _shape(knob), knob.default, knob.sparse, knob.when, knob.log] for name, knob in sorted(self.knobs.items())
            },
            "constraints": sorted([constraint.identity(), constraint.strict] for constraint in self.constraints),
            "facts": dict(self.facts),
        }
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    # --- partial assignments -------------------------------------------------------------------------------------------

    def _states(self, partial: Mapping[str, Value]) -> list[State] | None:
        """One state per component after `partial`; None when it breaks something at sight."""
        states = self._components.copy()
        for name, value in partial.items():
            index = self._index.get(name)
            if index is None:
                return None
            component = self._component_of[index]
            position = self._listed[index].position(value)
            if position is None or component < 0:
                return None
            after = self._solver.step(states[component], index, position)
            if after is None:
                return None
            states[component] = after
        return states

    def _feasible_states(self, partial: Mapping[str, Value]) -> list[State] | None:
        states = self._states(partial)
        if states is None:
            return None
        feasible = self._solver.feasible
        for state in states:
            if not (state.feasible or feasible(state)):
                return None
        return states

    def _after(self, partial: Mapping[str, Value]) -> list[State]:
        """The states after a partial assignment that must be completable."""
        states = self._feasible_states(partial)
        if states is None:
            raise SpaceError(
                Fault(field="given", value=repr(dict(partial)), rule="cannot be completed: " + " ".join(self.why_not(Config(partial))))
            )
        return states

    def feasible(self, partial: Config) -> bool:
        """Whether `partial` can be completed to a valid configuration."""
        return self._feasible_states(partial) is not None

    def choices(self, name: str, partial: Config = _NOTHING) -> tuple[Value, ...]:
        """The values of `name` with which `partial` can still be completed, in the knob's order.

        Empty when the knob is inactive under `partial` or when `partial` cannot be completed at all. A value that
        `partial` already gives to `name` is left out of account.
        """
        self._known(name)
        states = self._feasible_states(partial.without(name) if name in partial else partial)
        if states is None:
            return ()
        index = self._index[name]
        component = self._component_of[index]
        return () if component < 0 else self._solver.support_values(states[component], index)

    def undecided(self, partial: Config = _NOTHING) -> tuple[str, ...]:
        """The knobs that have no value in `partial` but do in some completion of it; ancestors first.

        The first of them is active whatever follows. Empty when `partial` is complete or cannot be completed.
        """
        states = self._feasible_states(partial)
        if states is None:
            return ()
        component_of, possible = self._component_of, self._solver.possible
        return tuple(
            name
            for index, name in enumerate(self._names)
            if component_of[index] >= 0 and index in states[component_of[index]].pending and possible(states[component_of[index]], index)
        )

    def sample(self, rng: np.random.Generator, given: Config = _NOTHING) -> Config | None:
        """A random valid configuration that extends `given`; None when there is none.

        Every one is equally likely where the completions can be counted quickly (see `count`); in larger parts
        knob by knob, each value that can be completed is.
        """
        states = self._feasible_states(given)
        if states is None:
            return None
        found = dict(given)
        for state in states:
            if state.pending:
                for index, position in draw(self._solver, state, rng).items():
                    found[self._names[index]] = self._listed[index].values[position]
        return Config(found)

    def enumerate(self, given: Config = _NOTHING) -> Iterator[Config]:
        """All valid configurations that extend `given`, lazily, in the order of the knobs and their values."""
        states = self._feasible_states(given)
        if states is None:
            return
        order = [(self._component_of[index], index) for index in range(len(self._names)) if self._component_of[index] >= 0]
        names, listed = self._names, self._listed
        for found in walk(self._solver, states, order):
            yield Config({**given, **{names[index]: listed[index].values[position] for index, position in found.items()}})

    def count(self, limit: int = 10_000_000, given: Config = _NOTHING) -> Count:
        """How many valid configurations there are.

        Exact whenever that is quick, whatever the number; otherwise exact as long as it seems to be at most `limit`,
        and a labelled estimate above.
        """
        states = self._feasible_states(given)
        if states is None:
            return Count(0, exact=True)
        total, exact = 1, True
        for number, state in enumerate(states):
            if state.pending:
                found = self._count_one(state, limit, number)
                total, exact = total * found.value, exact and found.exact
        return Count(total, exact)

    def _count_one(self, state: State, limit: int, number: int) -> Count:
        try:
            return Count(count(self._solver, state, QUICK_WORK), exact=True)
        except OutOfWork:
            guess = estimate(self._solver, state, stream(0, "space", "count", number))
        if guess > 4 * limit:
            return Count(guess, exact=False)
        try:
            return Count(count(self._solver, state, limit), exact=True)
        except OutOfWork:
            return Count(guess, exact=False)

    # --- whole configurations ------------------------------------------------------------------------------------------

    def default(self) -> Config:
        """The engine's own setting of every active knob, moved to the nearest valid one where the constraints demand it."""
        if self._default is None:
            self._default = self.project({}, _NOTHING)
        return self._default

    def check(self, config: Config) -> list[str]:
        """Why `config` is not a complete valid configuration, one sentence per broken rule; empty when it is."""
        faults = [f"There is no knob {name!r}. {close(name, self._names)}" for name in config if name not in self._index]
        values: dict[int, Any] = dict.fromkeys(range(len(self._names)), UNDEFINED)
        for index, (name, knob) in enumerate(self.knobs.items()):
            active = bool(evaluate(self._conditions[index], values))
            if name not in config:
                if active:
                    faults.append(f"Knob {name!r} has no value{_because(knob)}; it takes one of {shown(knob.values)}.")
                continue
            value = config[name]
            if not active:
                faults.append(f"Knob {name!r} is set to {value!r} but inactive: {knob.when} is not true{self._reading(knob.when, config)}.")
            elif knob.position(value) is None:
                faults.append(f"Knob {name!r} cannot be {value!r}; it takes one of {shown(knob.values)}.")
            else:
                values[index] = value
        for constraint, rule in zip(self.constraints, self._rules, strict=True):
            if not evaluate(rule, values):
                faults.append(self._broken(constraint, config))
        return faults

    def why_not(self, partial: Config) -> list[str]:
        """Why `partial` cannot be completed, one sentence per reason; empty when it can."""
        faults = [f"There is no knob {name!r}. {close(name, self._names)}" for name in partial if name not in self._index]
        for name, value in partial.items():
            if name in self._index and value not in self.knobs[name]:
                faults.append(f"Knob {name!r} cannot be {value!r}; it takes one of {shown(self.knobs[name].values)}.")
        if faults or self.feasible(partial):
            return faults
        kept = partial
        for name in partial:  # drop what the contradiction does not need
            less = kept.without(name)
            if not self.feasible(less):
                kept = less
        culprits = ", ".join(f"{name}={value!r}" for name, value in kept.items())
        return [f"Nothing valid has {culprits}{self._named_rules(kept)}."]

    def _named_rules(self, kept: Config) -> str:
        readers = [c.text for c in self.constraints if set(c.names()) & set(kept)]
        readers += [f"{name} when {knob.when}" for name, knob in self.knobs.items() if name in kept and knob.when]
        return f" because of {'; '.join(readers[:4])}" if readers else ""

    def _broken(self, constraint: Constraint, config: Config) -> str:
        reason = f" ({constraint.why})" if constraint.why else ""
        return f"Constraint {constraint.text} is broken{self._reading(constraint, config)}{reason}."

    def _reading(self, rule: str | Constraint | None, config: Config) -> str:
        """` with tp=2, gpus=8`: the values that a rule sees."""
        constraint = rule if isinstance(rule, Constraint) else Constraint(rule or "True")
        seen = [
            f"{name}={config[name]!r}" if name in config else f"{name}={self.facts[name]!r}" if name in self.facts else f"{name} inactive"
            for name in constraint.names()
        ]
        return f" with {', '.join(seen)}" if seen else ""

    def structure(self, config: Config) -> Config:
        """The sparse part of a configuration."""
        return config.only(self.sparse)

    def mask(self, structure: Config) -> dict[str, tuple[Value, ...]]:
        """M(s): the dense knobs that are (or may become) active under a structure, with the values they can still take."""
        states = self._after(structure)
        found = {}
        for name in self.dense:
            index = self._index[name]
            component = self._component_of[index]
            if component >= 0 and index in states[component].pending and (values := self._solver.support_values(states[component], index)):
                found[name] = values
        return found

    def project(self, wanted: Mapping[str, Value], given: Config = _NOTHING) -> Config:
        """A valid configuration that extends `given` and is near `wanted`.

        Knob by knob, ancestors first: the closest value that can still be completed; where nothing is wanted, the
        closest to the default. Numbers in `wanted` need not be on the grid; names it does not know are ignored.

        Raises:
            SpaceError: `given` cannot be completed.
        """
        return nearest(self._solver, self._after(given), self._component_of, self._listed, wanted, given)

    def neighbours(self, config: Config) -> list[Config]:
        """Valid configurations one step (ordered knobs) or one category away, other knobs repaired where that is needed."""
        return neighbours(self, config)

    def pin(self, given: Config) -> Space:
        """The space of the configurations that extend `given`; its knobs of `given` have one value left.

        Raises:
            SpaceError: a name or value is unknown, or nothing valid extends `given`.
        """
        faults = self.why_not(given)
        if faults:
            raise SpaceError([Fault(field="given", rule=fault) for fault in faults])
        knobs = [self.knobs[name].only(given[name]) if name in given else self.knobs[name] for name in self.declared]
        active = [
            Constraint(knob.when, why=f"{knob.name} is pinned to {given[knob.name]!r}", strict=True)
            for knob in knobs
            if knob.name in given and knob.when
        ]
        return Space(knobs, (*self.constraints, *active), dict(self.facts))

    def constrain(self, *constraints: str | Callable[..., Any] | Constraint) -> Space:
        """This space with further constraints."""
        return Space([self.knobs[name] for name in self.declared], (*self.constraints, *constraints), dict(self.facts))


def _because(knob: Knob) -> str:
    return f" although {knob.when}" if knob.when else ""


def _shape(knob: Knob) -> object:
    values = knob.values
    return repr(values) if isinstance(values, range) or (len(values) > 1000 and type(values) is not tuple) else list(values)


def _check_names(knobs: Sequence[Knob], facts: Mapping[str, Value]) -> None:
    faults = []
    seen: set[str] = set()
    for knob in knobs:
        if knob.name in seen:
            faults.append(Fault(field=f"knobs.{knob.name}", rule="a knob may be declared once", fix="Rename or remove one"))
        if knob.name in facts:
            faults.append(Fault(field=f"knobs.{knob.name}", rule="a knob and a fact must not share a name", fix="Rename one"))
        seen.add(knob.name)
    if faults:
        raise SpaceError(faults)


def _parents(knobs: Sequence[Knob], facts: Mapping[str, Value]) -> dict[str, tuple[str, ...]]:
    """Direct parents by condition; all faults of all conditions in one error."""
    names = {knob.name for knob in knobs}
    found: dict[str, tuple[str, ...]] = {}
    faults: list[Fault] = []
    for knob in knobs:
        found[knob.name] = ()
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
                faults.append(Fault(field=f"knobs.{knob.name}.when", value=f"`{knob.when}`", rule=rule, fix=close(name, [*names, *facts])))
        found[knob.name] = tuple(dict.fromkeys(name for name, _ in read if name in names))
    if faults:
        raise SpaceError(faults)
    return found

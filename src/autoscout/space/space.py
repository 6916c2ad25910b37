"""Space: what may be chosen, declared before anything is searched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from autoscout.common.text import suggestion
from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.core.seeds import stream
from autoscout.space import tree
from autoscout.space.check import faults_of, why_not
from autoscout.space.compile import compile_space
from autoscout.space.constraint import Constraint, Rule
from autoscout.space.counting import QUICK_EFFORT, Count, OutOfWork, count, draw, estimate, walk
from autoscout.space.knobs import Knob
from autoscout.space.mask import nearest, neighbours
from autoscout.space.solver import QUICK_WORK, SolverState

if TYPE_CHECKING:
    from autoscout.space.listed import Listed

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
        declared = tuple(knobs)
        self.constraints = tuple(rule if isinstance(rule, Constraint) else Constraint(rule) for rule in constraints)
        self.facts: Mapping[str, Value] = MappingProxyType(dict(facts or {}))
        self._compiled = compile_space(declared, self.constraints, self.facts)
        self._solver = self._compiled.solver
        self.declared = tuple(knob.name for knob in declared)  # in the order of the declaration
        self.knobs: Mapping[str, Knob] = MappingProxyType({knob.name: knob for knob in self._compiled.knobs})
        self.sparse = tuple(name for name, knob in self.knobs.items() if knob.sparse)
        self.dense = tuple(name for name, knob in self.knobs.items() if not knob.sparse)
        self._default: Config | None = None

    def __repr__(self) -> str:
        rules = [constraint.text for constraint in self.constraints]
        return f"Space({list(self.knobs.values())!r}, constraints={rules!r}, facts={dict(self.facts)!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        made_of = [self.knobs[name] for name in self.declared], self.constraints, dict(self.facts)
        return Space, made_of, {"_default": self._default}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        return hash(self.fingerprint())

    def parents(self, name: str) -> tuple[str, ...]:
        """The knobs that the condition of `name` reads."""
        return self._compiled.parents[self._checked(name)]

    def ancestors(self, name: str) -> frozenset[str]:
        """All knobs that decide, directly or not, whether `name` is active."""
        return tree.ancestors(self._checked(name), self._compiled.parents)

    def _checked(self, name: str) -> str:
        if name not in self.knobs:
            raise SpaceError(Fault(field=name, rule="there is no such knob", fix=suggestion(name, self.knobs)))
        return name

    def fingerprint(self) -> str:
        """Sixteen hex digits, equal for spaces with the same knobs, conditions, constraints and facts."""
        data = {
            "knobs": {
                name: [knob.ordered, _shape(knob), knob.default, knob.sparse, knob.when, knob.log]
                for name, knob in sorted(self.knobs.items())
            },
            "constraints": sorted([constraint.identity(), constraint.strict] for constraint in self.constraints),
            "facts": dict(self.facts),
        }
        return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]

    def _after(self, partial: Mapping[str, Value]) -> list[SolverState]:
        """The states after a partial assignment that must be completable."""
        states = self._compiled.states(partial)
        if states is None:
            raise SpaceError(
                Fault(field="given", value=repr(dict(partial)), rule="cannot be completed: " + " ".join(self.why_not(Config(partial))))
            )
        return states

    def feasible(self, partial: Config) -> bool:
        """Whether `partial` can be completed to a valid configuration."""
        return self._compiled.states(partial) is not None

    def choices(self, name: str, partial: Config = _NOTHING) -> Sequence[Value]:
        """The values of `name` with which `partial` can still be completed, in the knob's order.

        A tuple, unless there are more than a hundred thousand: then a lazy sequence.

        Empty when the knob is inactive under `partial` or when `partial` cannot be completed at all. A value that
        `partial` already gives to `name` is left out of account.
        """
        self._checked(name)
        states = self._compiled.states(partial.without(name) if name in partial else partial)
        if states is None:
            return ()
        index = self._compiled.index[name]
        component = self._compiled.component_of[index]
        return () if component < 0 else self._solver.support_values(states[component], index)

    def undecided(self, partial: Config = _NOTHING) -> tuple[str, ...]:
        """The knobs that have no value in `partial` but do in some completion of it; ancestors first.

        The first of them is active whatever follows. Empty when `partial` is complete or cannot be completed.
        """
        states = self._compiled.states(partial)
        if states is None:
            return ()
        is_possible = self._solver.is_possible
        return tuple(name for index, name, state in self._open(states) if is_possible(state, index))

    def _open(self, states: list[SolverState]) -> Iterator[tuple[int, str, SolverState]]:
        """The knobs that `states` leave open, with the state of their component, in dependency order."""
        for index, (knob, component) in enumerate(zip(self._compiled.knobs, self._compiled.component_of, strict=True)):
            if component >= 0 and index in states[component].pending:
                yield index, knob.name, states[component]

    def sample(self, rng: np.random.Generator, given: Config = _NOTHING) -> Config | None:
        """A random valid configuration that extends `given`; None when there is none.

        Every one is equally likely where the completions can be counted quickly (see `count`); in larger parts
        knob by knob, each value that can be completed is.
        """
        states = self._compiled.states(given)
        if states is None:
            return None
        positions: dict[int, int] = {}
        for state in states:
            if state.pending:
                draw(self._solver, state, rng, positions)
        return self._compiled.config(given, positions)

    def enumerate(self, given: Config = _NOTHING) -> Iterator[Config]:
        """All valid configurations that extend `given`, lazily, in the order of the knobs and their values."""
        states = self._compiled.states(given)
        if states is None:
            return
        make = self._compiled.config
        order = [(component, index) for index, component in enumerate(self._compiled.component_of) if component >= 0]
        for positions in walk(self._solver, states, order):
            yield make(given, positions)

    def count(self, limit: int = 10_000_000, given: Config = _NOTHING) -> Count:
        """How many valid configurations there are.

        Exact whenever that is quick, whatever the number; otherwise exact as long as it seems to be at most `limit`,
        and a labelled estimate above.
        """
        states = self._compiled.states(given)
        if states is None:
            return Count(0, exact=True)
        total, exact = 1, True
        for number, state in enumerate(states):
            if state.pending:
                count = self._count_one(state, limit, number)
                total, exact = total * count.value, exact and count.exact
        return Count(total, exact)

    def _count_one(self, state: SolverState, limit: int, number: int) -> Count:
        try:
            return Count(count(self._solver, state, QUICK_WORK, QUICK_EFFORT), exact=True)
        except OutOfWork:
            guess = estimate(self._solver, state, stream(0, "space", "count", number))
        if guess > 4 * limit:
            return Count(guess, exact=False)
        try:
            return Count(count(self._solver, state, limit), exact=True)
        except OutOfWork:
            return Count(guess, exact=False)

    def default(self) -> Config:
        """The engine's own setting of every active knob, moved to the nearest valid one where the constraints demand it."""
        if self._default is None:
            self._default = self.project({}, _NOTHING)
        return self._default

    def starting_at(self, config: Config) -> Self:
        """This space with another configuration as its default, for a searcher: it begins around that."""
        if config == self.default():
            return self
        other = object.__new__(type(self))  # nothing is compiled again
        other.__dict__.update(self.__dict__)
        other._default = config
        return other

    def check(self, config: Config) -> list[str]:
        """Why `config` is not a complete valid configuration, one sentence per broken rule; empty when it is."""
        return faults_of(config, self._compiled, self.constraints, self.facts)

    def why_not(self, partial: Config) -> list[str]:
        """Why `partial` cannot be completed, one sentence per reason; empty when it can."""
        return why_not(partial, self._compiled, self.constraints)

    def structure(self, config: Config) -> Config:
        """The sparse part of a configuration."""
        return config.only(self.sparse)

    def mask(self, structure: Config) -> dict[str, Sequence[Value]]:
        """M(s): the dense knobs that are (or may become) active under a structure, with the values they can still take."""
        states = self._after(structure)
        mask: dict[str, Sequence[Value]] = {}
        for index, name, state in self._open(states):
            if not self.knobs[name].sparse and (values := self._solver.support_values(state, index)):
                mask[name] = values
        return mask

    def project(self, wanted: Mapping[str, Value], given: Config = _NOTHING) -> Config:
        """A valid configuration that extends `given` and is near `wanted`.

        Knob by knob, ancestors first: the closest value that can still be completed; where nothing is wanted, the
        closest to the default. Numbers in `wanted` need not be on the grid; names it does not know are ignored.

        Raises:
            SpaceError: `given` cannot be completed.
        """
        return nearest(self._compiled, self._after(given), wanted, given)

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

    def reaching(self, *targets: Mapping[str, Value]) -> Space:
        """The space in which ordered knobs have these values too, as far as they lie between values of theirs: what somebody runs today
        need not be on a grid."""
        knobs = dict(self.knobs)
        for name, value in (item for values in targets for item in values.items()):
            if name in knobs:
                knobs[name] = knobs[name].reaching(value)
        if all(knobs[name] is self.knobs[name] for name in knobs):
            return self
        return Space([knobs[name] for name in self.declared], self.constraints, dict(self.facts))

    def rest(self, names: Iterable[str]) -> Space:
        """The space in which these knobs keep their default wherever they are active."""
        default = self.default()
        resting = {name: self.knobs[name].only(default.get(name, self.knobs[name].default)) for name in names}
        return Space([resting.get(name, self.knobs[name]) for name in self.declared], self.constraints, dict(self.facts))

    def constrain(self, *constraints: str | Callable[..., Any] | Constraint) -> Space:
        """This space with further constraints."""
        return Space([self.knobs[name] for name in self.declared], (*self.constraints, *constraints), dict(self.facts))

    def among(self, configs: Iterable[Mapping[str, Value]]) -> Listed:
        """This space less all configurations but these, which must be valid in it.

        Raises:
            SpaceError: some are not; how many, and what is wrong with the first of them.
        """
        from autoscout.space.listed import Listed  # which is a Space

        return Listed([self.knobs[name] for name in self.declared], configs, self.constraints, dict(self.facts))


def _shape(knob: Knob) -> object:
    """The values, or for very long ones what they were made from."""
    return list(knob.values) if len(knob.values) <= 10_000 else repr(knob.values)

"""Listed: a space whose valid configurations are exactly those of a list."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config, Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.space import mask
from autoscout.space.algebra import UNDEFINED, Node, evaluate
from autoscout.space.columns import INACTIVE, ListedColumn, Positions, encoded, rows_of
from autoscout.space.constraint import Constraint, Rule
from autoscout.space.counting import Count
from autoscout.space.knobs import Knob
from autoscout.space.space import Space

_NOTHING = Config()
_SHOWN = 5  # configurations of a list that are shown where many are at fault
_SAME = 1e-9  # distances that differ by rounding only


class Listed(Space):
    """Declared knobs and conditions, and a list of the configurations that are valid.

    For systems whose rules are not known as rules, but as what they allow: kernels that a generator emits, builds that exist, points of
    a sweep. Conditions still say which knobs a configuration has. All answers are exact. Made by `Space.among`.

    >>> from autoscout.space import Choice, Grid, Space
    >>> space = Space([Choice("kind", ["a", "b"]), Grid("size", values=[1, 2, 4, 8])])
    >>> space = space.among([Config(kind="a", size=1), Config(kind="a", size=8), Config(kind="b", size=2)])
    >>> space.choices("size", Config(kind="a"))
    (1, 8)
    >>> space.project({"kind": "a", "size": 4})
    Config(kind='a', size=8)

    Args:
        knobs: In the order they should be shown.
        configs: Every valid configuration; one that is listed twice counts once.
        constraints: As of `Space`. They add nothing to the list, but every configuration of it must satisfy them.
        facts: As of `Space`.

    Raises:
        SpaceError: as for `Space`; or configurations of the list are not valid by the knobs, conditions and constraints: how many, and
            what is wrong with the first of them.
    """

    def __init__(
        self,
        knobs: Iterable[Knob],
        configs: Iterable[Mapping[str, Value]],
        constraints: Iterable[Rule | Constraint] = (),
        facts: Mapping[str, Value] | None = None,
    ) -> None:
        super().__init__(knobs, constraints, facts)
        listed = [config if isinstance(config, Config) else Config(config) for config in configs]
        if not listed:
            raise SpaceError(Fault(field="among", value="[]", rule="at least one configuration must be listed"))
        positions, strange = encoded(self._compiled.knobs, [config.to_json() for config in listed])
        broken = sorted({*strange, *np.flatnonzero(~self._satisfying(positions)).tolist()})
        if broken:
            raise SpaceError(self._faults(listed, broken))
        order = np.lexsort(positions.T[::-1])
        distinct = order[np.append(True, np.any(np.diff(positions[order], axis=0), axis=1))]
        self._set_rows(positions[distinct], [listed[row] for row in distinct])

    @classmethod
    def _restored(
        cls, knobs: Sequence[Knob], constraints: Sequence[Constraint], facts: Mapping[str, Value], positions: Positions
    ) -> Listed:
        """A listed space from the rows of another, which need no check."""
        space = object.__new__(cls)
        Space.__init__(space, knobs, constraints, facts)
        space._set_rows(positions.astype(np.int64), [None] * len(positions))
        return space

    def _set_rows(self, positions: Positions, configs: list[Config | None]) -> None:
        """Take over the rows, none of them twice, in the order of the knobs and their values."""
        self._positions = positions
        self._configs = configs
        self._columns = {knob.name: ListedColumn(knob, positions[:, column]) for column, knob in enumerate(self._compiled.knobs)}
        self._row_of = {row.tobytes(): number for number, row in enumerate(positions)}
        self._every = (1 << len(positions)) - 1
        self._gates = {parent for name in self.knobs for parent in self._compiled.parents[name]}
        self._fingerprint = ""

    def __repr__(self) -> str:
        rules = [constraint.text for constraint in self.constraints]
        return f"Listed({list(self.knobs.values())!r}, <{len(self):,} configurations>, constraints={rules!r}, facts={dict(self.facts)!r})"

    def __len__(self) -> int:
        return len(self._positions)

    def __reduce__(self) -> tuple[Any, ...]:
        widest = max(len(knob.values) for knob in self.knobs.values())
        small = self._positions.astype(np.int16 if widest < 2**15 else np.int64)
        return (
            Listed._restored,
            ([self.knobs[name] for name in self.declared], self.constraints, dict(self.facts), small),
            {"_default": self._default},
        )

    def fingerprint(self) -> str:
        """Sixteen hex digits, equal for spaces with the same knobs, conditions, constraints, facts and configurations."""
        if not self._fingerprint:
            columns = np.argsort([knob.name for knob in self._compiled.knobs])
            rows = self._positions[:, columns]
            ordered = np.ascontiguousarray(rows[np.lexsort(rows.T[::-1])], dtype="<i8")
            digest = hashlib.sha256(super().fingerprint().encode() + ordered.tobytes())
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    def _satisfying(self, positions: Positions) -> NDArray[np.bool_]:
        """The rows for which the conditions (a knob has a value exactly when it is active) and the constraints hold."""
        good = np.ones(len(positions), dtype=np.bool_)
        for column, condition in enumerate(self._compiled.conditions):
            good &= self._truths(condition, positions) == (positions[:, column] != INACTIVE)
        for rule in self._compiled.rules:
            good &= self._truths(rule, positions)
        return good

    def _truths(self, node: Node, positions: Positions) -> NDArray[np.bool_]:
        """For each row whether a node is true; tried once for every combination of the values it reads."""
        read = [column for column in range(positions.shape[1]) if node.variables >> column & 1]
        if not read:
            return np.full(len(positions), bool(evaluate(node, {})))
        distinct, which = np.unique(positions[:, read], axis=0, return_inverse=True)
        truths = []
        for row in distinct:
            held = zip(read, row.tolist(), strict=True)
            values = {column: UNDEFINED if place == INACTIVE else self._compiled.knobs[column].values[place] for column, place in held}
            truths.append(bool(evaluate(node, values)))
        return np.array(truths, dtype=np.bool_)[which.reshape(-1)]

    def _faults(self, configs: Sequence[Config], broken: Sequence[int]) -> list[Fault]:
        """What is wrong with the first broken configurations of a list, and how many there are."""
        faults = [
            Fault(field=f"among[{row}]", value=_short(configs[row]), rule=sentence)
            for row in broken[:_SHOWN]
            for sentence in Space.check(self, configs[row])
        ]
        if len(broken) > _SHOWN:
            named = ", ".join(f"[{row}]" for row in broken[_SHOWN : 20 * _SHOWN]) + (", ..." if len(broken) > 20 * _SHOWN else "")
            rule = f"{len(broken):,} of the {len(configs):,} listed configurations are not valid; the others are {named}"
            faults.append(Fault(field="among", rule=rule, fix="Leave them out, or correct the knobs, conditions and constraints"))
        return faults

    def _config(self, row: int) -> Config:
        config = self._configs[row]
        if config is None:
            places = self._positions[row].tolist()
            values = {name: held[places[index]] for index, name, held in self._compiled.alphabetical if places[index] != INACTIVE}
            config = self._configs[row] = Config.trusted(values)
        return config

    def _extending(self, partial: Mapping[str, Value], less: str = "") -> int:
        """The rows that extend `partial`, what it gives to `less` left out of account."""
        rows = self._every
        for name, value in partial.items():
            if name != less:
                column = self._columns.get(name)
                rows &= column.having(column.knob.position(value)) if column is not None else 0
                if not rows:
                    break
        return rows

    def _rows(self, bits: int) -> NDArray[np.int64]:
        return np.arange(len(self)) if bits == self._every else rows_of(bits, len(self))

    def _rows_extending(self, given: Config) -> int:
        """The rows that extend `given`, of which there must be some."""
        rows = self._extending(given)
        if not rows:
            rule = "cannot be completed: " + " ".join(self.why_not(given))
            raise SpaceError(Fault(field="given", value=repr(dict(given)), rule=rule))
        return rows

    def feasible(self, partial: Config) -> bool:
        return self._extending(partial) != 0

    def choices(self, name: str, partial: Config = _NOTHING) -> Sequence[Value]:
        self._checked(name)
        rows = self._extending(partial, less=name)
        return self._columns[name].values(rows) if rows else ()

    def undecided(self, partial: Config = _NOTHING) -> tuple[str, ...]:
        rows = self._extending(partial)
        return tuple(name for name, column in self._columns.items() if name not in partial and rows & column.active)

    def sample(self, rng: np.random.Generator, given: Config = _NOTHING) -> Config | None:
        """A random configuration of the list that extends `given`, every one equally likely; None when there is none."""
        if not given:
            return self._config(int(rng.integers(len(self))))
        rows = self._rows(self._extending(given))
        return self._config(int(rows[int(rng.integers(len(rows)))])) if len(rows) else None

    def enumerate(self, given: Config = _NOTHING) -> Iterator[Config]:
        return (self._config(int(row)) for row in self._rows(self._extending(given)))

    def count(self, limit: int = 10_000_000, given: Config = _NOTHING) -> Count:  # noqa: ARG002 - signature of Space
        return Count(self._extending(given).bit_count(), exact=True)

    def check(self, config: Config) -> list[str]:
        if self._row(config) is not None:
            return []
        declared = super().check(config)
        return declared or [f"It is none of the {len(self):,} listed configurations; {_apart(config, self.project(config))}."]

    def why_not(self, partial: Config) -> list[str]:
        if self._extending(partial):
            return []
        declared = super().why_not(partial)
        if declared:
            return declared
        conflict = partial
        for name in partial:  # drop what the contradiction does not need
            less = conflict.without(name)
            if not self._extending(less):
                conflict = less
        culprits = ", ".join(f"{name}={value!r}" for name, value in conflict.items())
        return [f"None of the {len(self):,} listed configurations has {culprits}."]

    def mask(self, structure: Config) -> dict[str, Sequence[Value]]:
        rows = self._rows_extending(structure)
        return {
            name: self._columns[name].values(rows) for name in self.dense if name not in structure and rows & self._columns[name].active
        }

    def project(self, wanted: Mapping[str, Value], given: Config = _NOTHING) -> Config:
        """The configuration of the list that extends `given` and is nearest to `wanted`.

        Ordered values are as far apart as their ranks, on a scale from 0 to 1; other values, and a knob that only one of the two has, are 1
        apart. Of equally near ones the first in the order of `enumerate`. Where nothing is wanted, the default is; numbers in `wanted`
        need not be on the grid; names it does not know are ignored.

        Raises:
            SpaceError: `given` cannot be completed.
        """
        rows = self._rows_extending(given)
        target = self._target(wanted, given)
        exact = self._row_of.get(target.tobytes())
        if exact is not None and rows >> exact & 1:
            return self._config(exact)
        where = None if rows == self._every else rows_of(rows, len(self))
        nearest = _first_least(self._distances(target, where, given))
        return self._config(nearest if where is None else int(where[nearest]))

    def _target(self, target: Mapping[str, Value], given: Config) -> NDArray[np.int64]:
        """Positions of what is wanted, completed by defaults, whether or not it is in the list."""
        positions = np.full(len(self._compiled.knobs), INACTIVE, dtype=np.int64)
        values: dict[int, Any] = {}
        for index, knob in enumerate(self._compiled.knobs):
            values[index] = UNDEFINED
            condition = self._compiled.conditions[index]
            if knob.name not in given and not (condition.value if condition.constant else evaluate(condition, values)):
                continue
            wish = given[knob.name] if knob.name in given else target.get(knob.name, knob.default)
            position = knob.position(wish)
            if position is None:
                position = knob.position(knob.nearest(wish)) or 0
            positions[index] = position
            values[index] = knob.values[position]
        return positions

    def _distances(
        self, target: NDArray[np.int64], rows: NDArray[np.int64] | None, alike: Mapping[str, Value] = _NOTHING
    ) -> NDArray[np.float64]:
        """How far rows are from a target, knobs that are `alike` in all of them left out."""
        total = np.zeros(len(self) if rows is None else len(rows))
        for (name, column), position in zip(self._columns.items(), target.tolist(), strict=True):
            if name not in alike:
                total += column.distances(position, rows)
        return total

    def _row(self, config: Config) -> int | None:
        """Which row a configuration is; None when it is none."""
        places = np.full(len(self._columns), INACTIVE, dtype=np.int64)
        index = self._compiled.index
        for name, value in config.items():
            column = index.get(name)
            position = None if column is None else self._compiled.knobs[column].position(value)
            if column is None or position is None:
                return None
            places[column] = position
        return self._row_of.get(places.tobytes())

    def neighbours(self, config: Config) -> list[Config]:
        row = self._row(config)
        if row is None:
            return mask.neighbours(self, config)
        distances = self._distances(self._positions[row], None)
        neighbours: dict[Config, None] = {}
        for name, column in self._columns.items():
            if name not in config:
                continue
            around = config.only(self.ancestors(name))
            rows = self._extending(around)
            for value in mask.moves(column.knob, config[name], column.values(rows)):
                if name in self._gates:  # other knobs come and go with it
                    neighbours[self.project(config, around.extend({name: value}))] = None
                else:
                    having = self._rows(rows & column.having(column.knob.position(value)))
                    neighbours[self._config(int(having[_first_least(distances[having])]))] = None
        neighbours.pop(config, None)
        return list(neighbours)

    def pin(self, given: Config) -> Listed:
        return super().pin(given).among(self.enumerate(given))

    def constrain(self, *constraints: str | Callable[..., Any] | Constraint) -> Listed:
        """This space with further constraints, which leave those of the list that satisfy them.

        Raises:
            SpaceError: none of them does.
        """
        narrower = super().constrain(*constraints)
        further = narrower._compiled.rules[len(self.constraints) :]
        satisfying = (
            np.flatnonzero(np.all([self._truths(rule, self._positions) for rule in further], axis=0)) if further else range(len(self))
        )
        if not len(satisfying):
            rule = f"none of the {len(self):,} listed configurations satisfies all of it"
            raise SpaceError([Fault(field=constraint.text, rule=rule) for constraint in narrower.constraints[len(self.constraints) :]])
        return narrower.among(self._config(int(row)) for row in satisfying)


def _first_least(distances: NDArray[np.float64]) -> int:
    """The first of those that are nearest but for rounding."""
    return int(np.argmax(distances <= distances.min() + _SAME))


def _short(config: Config) -> str:
    text = ", ".join(f"{name}={value!r}" for name, value in config.items())
    return text if len(text) <= 200 else text[:197] + "..."


def _apart(config: Config, other: Config) -> str:
    """In what the nearest one differs."""
    names = [name for name in {**other, **config} if other.get(name, UNDEFINED) != config.get(name, UNDEFINED)]
    return "the nearest has " + ", ".join(f"{name}={other[name]!r}" if name in other else f"no {name}" for name in names)

"""Heats: the winner is screened, all of its doubtful changes at once.

A round is a pair: the winner with some of its doubtful changes, and with the other ones (`analysis/screen.py` says why). Which ones is
drawn from the columns of a Hadamard matrix, so that every change is in about half of the rounds together with every other. Changes that
are predicted to matter much stay in both members: without them a measurement may take many times as long, and others may show nothing.
The first heat has as many rounds as tell all changes apart with something left to estimate the noise; further heats follow until every
change is shown to bring something, or surely brings next to nothing, or the bounds are reached.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from autoscout.analysis.limits import check_limit
from autoscout.analysis.screen import FREEDOM, Effects, Screen
from autoscout.common.stats import student_quantile
from autoscout.core.config import Config
from autoscout.core.origin import By, Origin, Phase
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Limit, Task
from autoscout.core.trial import Proposal, Trial
from autoscout.study.final import numbered
from autoscout.study.lattice import Lattice

LARGE = 0.18
"""Predicted effect on the logarithm of the goal (a factor of 1.2) from which a change is not doubtful."""
EXPLAINED = 0.95
"""Share of the predicted gain that the largest changes shall explain."""
FIRST = 8
"""Rounds of the first heat at least."""
SOUND = 6
"""Degrees of freedom after the first heat, if there is room: stopping on a noise that looks small by chance makes intervals too short."""
FURTHER = 4
"""Rounds of each further heat."""
MISTAKE = 0.02
"""Probability that any of the changes that bring nothing is taken to bring something."""
LOOKS = 1.0
"""Errors from which a change that is not shown to bring something looks like it."""
EARLY = 0.25
"""Share of `MISTAKE` that a change may be taken for shown with before all rounds are used: every look is another chance to be wrong."""
MARGIN = 0.01
"""Of the goal: a change that surely brings less than this is decided, too."""

Rounds = tuple[tuple[Proposal, ...], ...]
Unit = tuple[str, ...]
"""Knobs that are put back together."""


@dataclass(kw_only=True)
class Heats:
    """Goes through the heats of a winner, one after another, up to the first that is not complete.

    Attributes:
        trials: Everything stored.
        task: With its guards bound.
        lattice: The winner's.
        expected: Predicted effect of each change on the logarithm of the goal, at least zero; empty when nothing is predicted.
        most: Trials of all heats.
    """

    trials: Sequence[Trial]
    task: Task
    lattice: Lattice
    expected: Mapping[str, float]
    most: int
    used: int = field(default=0, init=False)  # trials of complete heats
    met: Counter[tuple[str, ...]] = field(default_factory=Counter, init=False)  # rounds by who met in them

    def run(self) -> tuple[Judge | None, Rounds]:
        """What the heats show so far, None before the first is complete; and the rounds to measure next."""
        units = self._units([knob for knob in self.lattice.changed if self.expected.get(knob, 0.0) < LARGE])
        judge: Judge | None = None
        while units and (count := self._next(len(units))):
            design = self._pairs(units, count)
            if not design:
                break
            if todo := self._missing(design):
                return judge, todo
            if needed := self._needed(units):
                units = [unit for unit in units if unit not in needed]
                continue
            judge = Judge.of(self.task, self.trials, self.lattice, units)
            if judge is not None and judge.is_decided(self.most // 2):
                break
        return judge, ()

    def _units(self, doubtful: Sequence[str]) -> list[Unit]:
        """The changes that are told apart. Where the bounds allow fewer, those that are predicted to bring most are left to the final, and
        of the others those that are predicted to bring least stay together."""
        ranked = sorted(doubtful, key=lambda knob: self.expected.get(knob, 0.0))  # ties as declared
        most = self.most // 2 - FREEDOM
        if most < 1:
            return []
        if len(ranked) > most:
            ranked = ranked[: len(ranked) - needed_for(ranked, self.expected, EXPLAINED)] or ranked
        first = len(ranked) - most + 1 if len(ranked) > most else 1
        return [tuple(ranked[:first]), *((knob,) for knob in ranked[first:])] if ranked else []

    def _next(self, width: int) -> int:
        """Rounds of the next heat; none where there is no room."""
        room = (self.most - self.used) // 2
        first = max(FIRST, width + SOUND)
        return min(room, FURTHER) if self.used else min(room, first) if room >= width + FREEDOM else 0

    def _pairs(self, units: Sequence[Unit], count: int) -> list[tuple[Config, Config]]:
        """Both members of the next rounds."""
        pairs: list[tuple[Config, Config]] = []
        begun = sum(self.met.values())
        for row in islice(self._rows(len(units)), 4 * (begun + count)):
            back = [[knob for unit, sign in zip(units, row, strict=True) if sign == side for knob in unit] for side in (-1, 1)]
            one, other = (self.lattice.below(self.lattice.top, knobs) for knobs in back)
            if one is not None and other is not None and one != other:
                pairs.append((one, other))
            if len(pairs) == begun + count:
                break
        return pairs[begun:]

    def _rows(self, width: int) -> Iterator[Sequence[int]]:
        """Signs of the units, round by round without end; the member with the plus goes first."""
        rng = stream(0, "simplify", self.lattice.top.key)
        order = max(FIRST, 1 << (width - 1).bit_length())
        matrix = np.ones((1, 1), dtype=int)
        while len(matrix) < order:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]])
        while True:
            columns = rng.permutation(order)[:width]
            turned = matrix[:, columns] * rng.choice([-1, 1], width) * rng.choice([-1, 1], (order, 1))
            yield from turned[rng.permutation(order)].tolist()

    def _missing(self, design: Sequence[tuple[Config, Config]]) -> Rounds:
        """The rounds of a heat, where something of them is still to be measured."""
        names = tuple(sorted({config.key for pair in design for config in pair}))
        before = self.met[names]
        numbers = numbered(self.trials, Phase.SIMPLIFY, names, before + len(design))[before:]
        rounds = []
        for number, pair in zip(numbers, design, strict=True):
            origins = [Origin(by=self._by(config), phase=Phase.SIMPLIFY, round=number, contenders=names) for config in pair]
            rounds.append(
                tuple(Proposal(config=config, origin=origin, repeat=number) for config, origin in zip(pair, origins, strict=True))
            )
        stored = {(trial.config, trial.proposal.repeat) for trial in self.trials}
        if any((proposal.config, proposal.repeat) not in stored for proposals in rounds for proposal in proposals):
            return tuple(rounds)
        self.met[names] += len(design)
        self.used += 2 * len(design)
        return ()

    def _by(self, config: Config) -> By:
        return By.INCUMBENT if config == self.lattice.top else By.SIMPLER

    def _needed(self, units: Sequence[Unit]) -> list[Unit]:
        """The units without which nothing ran."""
        top = self.lattice.changes(self.lattice.top).items()
        heats = [trial for trial in self.trials if trial.proposal.origin.phase is Phase.SIMPLIFY]
        heats = [trial for trial in heats if self.lattice.changes(trial.config).items() <= top]
        sides: dict[bool, list[Mapping[str, object]]] = {True: [], False: []}
        for trial in heats:
            sides[trial.ok].append(self.lattice.changes(trial.config))
        if not sides[False]:
            return []
        return [unit for unit in units if all(unit[0] in ran for ran in sides[True]) and any(unit[0] not in fell for fell in sides[False])]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """What complete heats show of the winner's doubtful changes."""

    task: Task
    lattice: Lattice
    units: Sequence[Unit]
    screen: Screen
    goal: Effects

    @classmethod
    def of(cls, task: Task, trials: Sequence[Trial], lattice: Lattice, units: Sequence[Unit]) -> Judge | None:
        """None where the heats are too few to say."""
        screen = Screen.of(trials, lattice.default)
        goal = screen.effects(task.objective.metric)
        return None if goal is None else cls(task=task, lattice=lattice, units=units, screen=screen, goal=goal)

    def is_decided(self, most: int) -> bool:
        """Whether further rounds, up to `most`, would hardly change anything."""
        return all(
            self._low(unit, EARLY) > 0.0 or self._high(unit) < MARGIN or self._is_hopeless(unit, most)
            for unit in self.units
            if self._column(unit) is not None
        )

    def _is_hopeless(self, unit: Unit, most: int) -> bool:
        """Whether even an effect one error larger than it seems would not be shown by all rounds that there may be."""
        error = self.goal.error(self._column(unit) or 0)
        reach = _reach(max(FREEDOM, self.goal.freedom + most - self.goal.pairs), len(self.units)) * error
        return self._strength(unit) + 1.0 < reach * math.sqrt(self.goal.pairs / max(most, self.goal.pairs)) / max(error, 1e-300)

    def answer(self) -> Config:
        """The winner with the changes that are shown to bring something to the goal, or to a limit that is not kept without them."""
        return self._with({unit for unit in self.units if self._low(unit) > 0.0})

    def lenient(self) -> Config:
        """The winner with all changes that look like bringing something."""
        return self._with({unit for unit in self.units if self._low(unit) > 0.0 or self._strength(unit) > LOOKS})

    def _with(self, chosen: set[Unit]) -> Config:
        """The winner with these changes, with those that no pair tells of, and with those that a limit needs."""
        units = chosen | {unit for unit in self.units if self._column(unit) is None}
        while (more := self._for_limits(units)) is not None:
            units.add(more)
        lost = sorted((unit for unit in self.units if unit not in units), key=self._strength)
        config = self.lattice.without(self.lattice.top, [knob for unit in lost for knob in unit])
        if config is not None or not lost:
            return config or self.lattice.top
        config = self.lattice.top
        for unit in lost:  # not all at once: one after another, as far as that is valid
            config = self.lattice.without(config, unit) or config
        return config

    @property
    def _sign(self) -> float:
        """Of steps of the goal: above zero is better."""
        return -1.0 if self.task.objective.direction is Direction.MINIMIZE else 1.0

    def _column(self, unit: Unit) -> int | None:
        """Where its effect stands; None where no pair tells it."""
        column = self.screen.column(unit[0], self.lattice.top)
        return column if self.goal.knows(column) else None

    def _strength(self, unit: Unit) -> float:
        """Effect on the goal, in its errors."""
        column = self._column(unit)
        return 0.0 if column is None else self._sign * float(self.goal.steps[column]) / max(self.goal.error(column), 1e-300)

    def _low(self, unit: Unit, share: float = 1.0) -> float:
        return _end(self.goal, self._column(unit), self._sign, -1.0, len(self.units) / share)

    def _high(self, unit: Unit) -> float:
        return _end(self.goal, self._column(unit), self._sign, 1.0, len(self.units))

    def _for_limits(self, kept: set[Unit]) -> Unit | None:
        """Of the other units the one that surely does most for a limit that is not surely kept without them."""
        for limit in self.task.objective.limits:
            effects = self.screen.effects(limit.metric)
            if effects is None or self._keeps(limit, effects, kept):
                continue
            sign = -1.0 if limit.op.startswith("<") else 1.0
            sizes = {
                unit: sign * float(effects.steps[column])
                for unit in self.units
                if unit not in kept
                and (column := self._column(unit)) is not None
                and _end(effects, column, sign, -1.0, len(self.units)) > 0.0
            }
            if sizes:
                return max(sizes, key=sizes.__getitem__)
        return None

    def _keeps(self, limit: Limit, effects: Effects, kept: set[Unit]) -> bool:
        """Whether the winner with these units alone surely keeps a limit: every measurement counts as if it had been one of that."""
        values = []
        for trial in (trial for pair in self.screen.pairs for trial in pair):
            changed, value = self.lattice.changes(trial.config), trial.measurement.metrics.get(limit.metric)
            places = [(unit in kept) - (unit[0] in changed) for unit in self.units]
            columns = [self._column(unit) for unit in self.units]
            step = sum(place * float(effects.steps[column]) for place, column in zip(places, columns, strict=True) if column is not None)
            if value is not None:
                values.append(value * float(np.exp(step)) if effects.is_log else value + step * abs(value))
        return check_limit(limit, values).is_kept


def needed_for(ranked: Sequence[str], expected: Mapping[str, float], share: float) -> int:
    """How many of the knobs that matter most are predicted to bring this share of the gain; all where nothing is predicted.

    Args:
        ranked: The knobs, the least important first.
        expected: Predicted effect of each, at least zero.
        share: Of the sum of the effects.
    """
    total, needed = sum(expected.get(knob, 0.0) for knob in ranked), len(ranked)
    while total and needed > 1 and sum(expected[knob] for knob in ranked[1 - needed :]) >= share * total:
        needed -= 1
    return needed


def _end(effects: Effects, column: int | None, sign: float, side: float, count: float) -> float:
    """An end of the interval of a change, where `count` of them are judged at once."""
    if column is None:
        return 0.0
    return sign * float(effects.steps[column]) + side * _reach(effects.freedom, count) * effects.error(column)


def _reach(freedom: int, count: float) -> float:
    """Half of such an interval, in errors."""
    return student_quantile(1.0 - MISTAKE / count, freedom)


__all__ = ["EXPLAINED", "Heats", "Judge", "needed_for"]

"""What each of several changes does on its own, from a few pairs of configurations that differ in about half of them.

The part of a study called "simplify" measures a configuration in pairs: one member has some of its changes, the other one those that the
first has not. In a pair whatever hits both members alike cancels out, drift of the machine as well as effects of two changes together;
and every pair tells something of every change. So N trials show every change as well as N trials show one that they are spent on
alone. The effects are fitted to the logarithms of the pairs by least squares. A pair that lies far off weighs less (Huber), because
other work on the machine hits single measurements hard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autoscout.analysis.gain import Gain
from autoscout.analysis.labels import differences
from autoscout.common.stats import Vector, student_quantile
from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.trial import Trial

FREEDOM = 4
"""Degrees of freedom that the noise is estimated with at least."""
FAR = 2.0
"""Deviations from which a pair weighs less: 99 % as exact as least squares where nothing disturbs."""
NORMAL_MEDIAN = 0.6745
"""Median of the absolute deviation of a normal variable, in its standard deviations."""
_PASSES = 20  # of reweighting; it settles within a few

Matrix = NDArray[np.float64]
Change = tuple[bool, object]
"""What a configuration makes of a knob: whether it holds it, and the value."""


@dataclass(frozen=True, kw_only=True)
class Effects:
    """What changes do to the logarithm of a metric; to its share of the mean where values are not positive.

    Attributes:
        steps: One for each change: of a configuration with it over the same without.
        covariance: Of the steps.
        known: Which of them the pairs tell apart from all others.
        freedom: Degrees of freedom of the noise.
        pairs: How many pairs they rest on.
        is_log: Whether the steps are of the logarithm.
    """

    steps: Vector
    covariance: Matrix
    known: NDArray[np.bool_]
    freedom: int
    pairs: int
    is_log: bool

    def knows(self, column: int | None) -> bool:
        return column is not None and bool(self.known[column])

    def gain(self, column: int, sign: float, confidence: float = 0.95) -> Gain:
        """Of one change, as a ratio with its interval."""
        step = sign * float(self.steps[column])
        reach = student_quantile(0.5 + confidence / 2.0, self.freedom) * self.error(column)
        ratios = [math.exp(min(value, 700.0)) if self.is_log else 1.0 + value for value in (step, step - reach, step + reach)]
        method = "least squares over pairs in which about half of the changes were put back"
        return Gain(ratio=ratios[0], low=ratios[1], high=ratios[2], pairs=self.pairs, confidence=confidence, method=method)

    def error(self, column: int) -> float:
        return math.sqrt(max(0.0, float(self.covariance[column, column])))


@dataclass(frozen=True, kw_only=True, eq=False)
class Screen:
    """The pairs of a study.

    Attributes:
        default: Where changes go back to.
        pairs: Two trials each that ran side by side.
    """

    default: Config
    pairs: Sequence[tuple[Trial, Trial]]

    @classmethod
    def of(cls, trials: Iterable[Trial], default: Config) -> Screen:
        """The pairs among the trials of simplifying; one of which a member failed tells nothing."""
        rounds: dict[tuple[int, tuple[str, ...]], list[Trial]] = {}
        for trial in trials:
            origin = trial.proposal.origin
            if origin.phase is Phase.SIMPLIFY and trial.ok:
                rounds.setdefault((origin.round, origin.contenders), []).append(trial)
        pairs = [(members[0], members[1]) for members in rounds.values() if len(members) == 2]
        return cls(default=default, pairs=[(one, other) for one, other in pairs if one.config != other.config])

    @cached_property
    def _design(self) -> tuple[Matrix, dict[tuple[str, Change], int]]:
        """A row for each pair, a column for each change; changes that always come together share one."""
        changed = [tuple(changes_of(self.default, trial.config) for trial in pair) for pair in self.pairs]
        changes = list(dict.fromkeys(change for pair in changed for member in pair for change in member.items()))
        rows = np.array([[float(change in one.items()) - float(change in other.items()) for change in changes] for one, other in changed])
        columns: dict[bytes, int] = {}
        places = {}
        for number, change in enumerate(changes):
            column = rows[:, number]
            if column.any():
                places[change] = columns.setdefault(column.tobytes(), len(columns))
        first = {place: rows[:, changes.index(change)] for change, place in reversed(places.items())}
        return np.array([first[place] for place in range(len(columns))]).T.reshape(len(rows), len(columns)), places

    def column(self, knob: str, config: Config) -> int | None:
        """Where the effect of what `config` makes of a knob stands; None where no pair differs in it."""
        change = changes_of(self.default, config).get(knob)
        return None if change is None else self._design[1].get((knob, change))

    def together(self, knob: str, config: Config) -> tuple[str, ...]:
        """The knobs whose changes cannot be told apart from this one's, itself among them."""
        column, places = self.column(knob, config), self._design[1]
        return tuple(name for name, change in changes_of(self.default, config).items() if places.get((name, change), -1) == column)

    def effects(self, metric: str) -> Effects | None:
        """What every change does to a metric; None where the pairs are too few to say."""
        rows = self._design[0] if self.pairs else np.empty((0, 0))
        values = [tuple(trial.measurement.metrics.get(metric, math.nan) for trial in pair) for pair in self.pairs]
        table = np.array(values, dtype=float).reshape(len(values), 2)
        finite = np.isfinite(table).all(axis=1)
        rows, table = rows[finite], table[finite]
        count, width = rows.shape
        if not width or count < int(np.linalg.matrix_rank(rows)) + FREEDOM:
            return None
        is_log = bool((table > 0).all())
        scale = 1.0 if is_log else float(np.abs(table).mean()) or 1.0
        steps = np.subtract(*np.log(table).T) if is_log else np.subtract(*table.T) / scale
        return _fit(rows, steps, is_log)


def changes_of(default: Config, config: Config) -> dict[str, Change]:
    """What a configuration makes of the knobs that it changes."""
    return {change.knob: (change.best_absent, change.best) for change in differences(default, config)}


def _fit(rows: Matrix, steps: Vector, is_log: bool) -> Effects:
    count, rank = len(rows), int(np.linalg.matrix_rank(rows))
    weights = np.ones(count)
    for _ in range(_PASSES):
        root = np.sqrt(weights)
        solution = np.asarray(np.linalg.lstsq(rows * root[:, None], steps * root, rcond=None)[0], dtype=np.float64)
        rest = np.abs(steps - rows @ solution)
        deviation = float(np.median(rest)) / NORMAL_MEDIAN * math.sqrt(count / (count - rank))
        weights = np.minimum(1.0, FAR * deviation / np.maximum(rest, 1e-300)) if deviation > 0.0 else np.ones(count)
    variance = float(np.sum(weights * rest**2)) / (count - rank)
    covariance = np.asarray(variance * np.linalg.pinv((rows * weights[:, None]).T @ rows), dtype=np.float64)
    identified = np.isclose(np.diag(np.linalg.pinv(rows) @ rows), 1.0)
    return Effects(steps=solution, covariance=covariance, known=identified, freedom=count - rank, pairs=count, is_log=is_log)


__all__ = ["FREEDOM", "Effects", "Screen", "changes_of"]

"""The front of a study with several goals: its points with intervals, which of them are surely on it, and how much they cover.

As with one goal, only the rounds of the final count: the search picks points that looked good, which flatters them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

import numpy as np

from autoscout.analysis.gain import MIN_PAIRS, Noise, paired_gain, pooled_noise
from autoscout.analysis.limits import LimitCheck
from autoscout.analysis.pooled import Pooling
from autoscout.common.front import Floats, dominates, hypervolume, on_front
from autoscout.common.stats import standard_error, student_quantile
from autoscout.common.text import plural, show_number
from autoscout.core.config import Config
from autoscout.core.origin import Phase
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Goal, Objective, Task
from autoscout.core.trial import Fidelity, Trial

CONFIDENCE = 0.95
DRAWS = 500
"""Fronts drawn from the noise, whose hypervolumes give the interval."""
BEYOND = 1.1
"""Reference of the hypervolume: this share of the way from the best to the worst value, or points at the worst would count for nothing."""


class Standing(StrEnum):
    """What may be said of a point."""

    ON_FRONT = "on the front"  # compared with each other point it is surely better in some goal
    UNSURE = "not told apart"  # it may be dominated
    DOMINATED = "dominated"  # another point is surely better in every goal


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A number with its interval; without one where it is exact or there were not enough rounds."""

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return show_number(self.value)
        return f"{show_number(self.value)} [{show_number(self.low)}, {show_number(self.high)}]"

    def to_json(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A configuration that was compared with the others.

    Attributes:
        config: The configuration.
        name: What it is good at; also the name of its folder.
        title: Its short readable name.
        standing: Whether it is surely on the front.
        rivals: Names of the points that dominate it, or that it cannot be told apart from.
        values: By metric of the goals.
        metrics: All metrics, medians of its runs.
        runs: How often it was measured.
        trials: The numbers of these trials.
        limits: Each limit, decided by the interval of its metric; none is broken beyond doubt.
        counts: Whether it may stand against others: its medians keep the limits, or it is the default.
    """

    config: Config
    name: str
    title: str
    standing: Standing
    rivals: tuple[str, ...]
    values: Mapping[str, Reading]
    metrics: Mapping[str, float]
    runs: int
    trials: tuple[int, ...]
    limits: tuple[LimitCheck, ...] = ()
    counts: bool = True

    @property
    def remark(self) -> str:
        """The standing in words, with the names of those it depends on, and the limits that it is not told apart from."""
        words = self.standing.value
        if self.standing is not Standing.ON_FRONT and self.rivals:
            words += f" {'by' if self.standing is Standing.DOMINATED else 'from'} {', '.join(self.rivals)}"
        doubts = [str(check) for check in self.limits if not check.is_kept]
        return "; ".join([words, *doubts])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "config": self.config.to_json(),
            "key": self.config.key,
            "standing": self.standing.value,
            "rivals": list(self.rivals),
            "goals": {metric: reading.to_json() for metric, reading in self.values.items()},
            "metrics": dict(self.metrics),
            "runs": self.runs,
            "trials": list(self.trials),
            "limits": [check.to_json() for check in self.limits],
        }


@dataclass(frozen=True, kw_only=True)
class Front:
    """What a study with several goals found.

    Attributes:
        goals: What was improved.
        points: Best in the first goal first; without a final only those that no other beats, the default like any other.
        default: The default in the same rounds, also where it is no point of the front; None where it did not run or breaks a limit.
        volume: Hypervolume of all points and the default, a share of the box between `best` and `reference`.
        default_volume: That of the default alone.
        best: The best value of each goal.
        reference: Where the hypervolume is counted from.
        title: What the default is called: the baseline has its place where there is one.
        rounds: How often everything was measured; 0: each point once, in the search.
        exact: Every answer is the same each time, so that one of each tells all.
    """

    goals: tuple[Goal, ...]
    points: tuple[FrontPoint, ...]
    default: FrontPoint | None
    volume: Reading
    default_volume: Reading | None
    best: Mapping[str, float]
    reference: Mapping[str, float]
    rounds: int
    exact: bool
    title: str = "default"

    @property
    def handed_over(self) -> tuple[FrontPoint, ...]:
        """Those that may be worth running: all that are not dominated and that do not look as if they broke a limit."""
        return tuple(point for point in self.points if point.standing is not Standing.DOMINATED and point.counts)

    @property
    def compared(self) -> tuple[FrontPoint, ...]:
        """The points, and the default where it is none of them."""
        return self.points if self.default is None or self.default in self.points else (*self.points, self.default)

    @property
    def headline(self) -> str:
        """The front in one sentence."""
        sure = sum(point.standing is Standing.ON_FRONT for point in self.points)
        goals = " and ".join(goal.metric for goal in self.goals)
        count = len(self.handed_over)
        points = f"front of {plural(count, 'point')}" + (f", {sure} of them for sure" if sure < count else "")
        if self.default in self.handed_over:
            points += f", the {self.title} among them" if count > 1 else f", the {self.title}"
        default = f", the {self.title} alone {self.default_volume}" if self.default_volume else ""
        return f"{goals}: {points}; hypervolume {self.volume}{default}"

    @property
    def note(self) -> str:
        """How far the points can be trusted."""
        if self.exact:
            return "Each configuration was tried once, because its answer is always the same."
        if not self.rounds:
            return "Single measurements of the search, which make the front look better than it is: there was no final."
        return (
            f"Medians of {self.rounds} rounds, {CONFIDENCE:.0%} intervals, noise pooled over the configurations; what is said of a point "
            f"holds against all others at {CONFIDENCE:.0%}."
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "goals": list(map(str, self.goals)),
            "headline": self.headline,
            "note": self.note,
            "points": [point.to_json() for point in self.points],
            "default": self.default.to_json() if self.default else None,
            "hypervolume": self.volume.to_json(),
            "default_hypervolume": self.default_volume.to_json() if self.default_volume else None,
            "best": dict(self.best),
            "reference": dict(self.reference),
            "rounds": self.rounds,
        }


@dataclass(frozen=True, kw_only=True)
class _Row:
    """A configuration with its measurements."""

    config: Config
    metrics: Mapping[str, float]
    losses: tuple[float, ...]
    trials: tuple[int, ...]
    limits: tuple[LimitCheck, ...]
    counts: bool
    rounds: Mapping[int, Mapping[str, float]] = field(default_factory=dict)

    def column(self, metric: str, rounds: Sequence[int]) -> list[float]:
        return [self.rounds[number][metric] for number in rounds]


def find_front(
    task: Task,
    trials: Sequence[Trial],
    default_config: Config,
    name_of: Callable[[Config], str],
    *,
    exact: bool = False,
    title: str = "default",
) -> Front | None:
    """The front of a study; None with one goal, and where nothing worked.

    Args:
        task: With several goals, its guards bound.
        trials: All trials, in order.
        default_config: What the points are compared with.
        name_of: Gives configurations their readable names.
        exact: Every answer is the same each time it is asked for.
        title: What to call the default.
    """
    objective = task.objective
    ok = [trial for trial in trials if math.isfinite(objective.loss(trial.measurement))]
    if not objective.several or not ok:
        return None
    top = max(trial.measurement.fidelity for trial in ok)
    if top is Fidelity.PREDICTED:
        return None
    runs = [trial for trial in trials if trial.measurement.fidelity is top]
    groups: dict[Config, list[Trial]] = {}
    for trial in runs:
        groups.setdefault(trial.config, []).append(trial)
    pooling = Pooling(task, groups, default_config, name_of, exact=exact)
    rows, rounds = _final_rows(objective, runs, default_config, pooling)
    if not rows:
        rows, rounds = _search_rows(objective, groups, default_config, pooling), []
    everything = np.array([objective.losses(trial.measurement) for trial in ok if trial.measurement.fidelity is top])
    return _Comparison(objective, rows, rounds, default_config, name_of, exact and not rounds, title).front(everything)


def _final_rows(objective: Objective, trials: Sequence[Trial], default_config: Config, pooling: Pooling) -> tuple[list[_Row], list[int]]:
    """The configurations of the newest final that ran each time and keep the limits, and the rounds that all of them were part of."""
    final = [trial for trial in trials if trial.proposal.origin.phase is Phase.FINAL]
    if not final:
        return [], []
    newest = max(final, key=lambda trial: trial.proposal.origin.round).proposal.origin.contenders
    groups: dict[Config, list[Trial]] = {}
    for trial in final:
        if trial.proposal.origin.contenders == newest:
            groups.setdefault(trial.config, []).append(trial)
    all_rows = [_row(objective, config, group, pooling, config == default_config) for config, group in groups.items()]
    rows = [row for row in all_rows if row is not None]
    shared = set.intersection(*(set(row.rounds) for row in rows)) if rows else set()
    return rows, sorted(shared)


def _search_rows(objective: Objective, groups: Mapping[Config, list[Trial]], default_config: Config, pooling: Pooling) -> list[_Row]:
    all_rows = [_row(objective, config, group, pooling, config == default_config) for config, group in groups.items()]
    rows = [row for row in all_rows if row is not None and row.counts]
    if not rows:
        return []
    front = on_front(np.array([row.losses for row in rows]))
    return [row for row, leads in zip(rows, front, strict=True) if leads or row.config == default_config]


def _row(objective: Objective, config: Config, trials: Sequence[Trial], pooling: Pooling, is_default: bool) -> _Row | None:
    """A configuration pooled; None where it failed once, or surely breaks a limit; with few measurements, where their medians break it."""
    side = pooling.side(config, trials)
    names = set.intersection(*(set(trial.measurement.metrics) for trial in trials))
    metrics = {name: median(trial.measurement.metrics[name] for trial in trials) for name in sorted(names)}
    if (
        not all(trial.ok for trial in trials)
        or side is None
        or not side.can_keep
        or any(goal.metric not in metrics for goal in objective.goals)
    ):
        return None
    losses = tuple(goal.sign * metrics[goal.metric] for goal in objective.goals)
    rounds = {trial.proposal.origin.round: trial.measurement.metrics for trial in trials}
    numbers = tuple(trial.number for trial in trials)
    return _Row(
        config=config, metrics=metrics, losses=losses, trials=numbers, limits=side.limits, counts=side.holds or is_default, rounds=rounds
    )


class _Comparison:
    """Configurations side by side, in the rounds that they share."""

    def __init__(
        self,
        objective: Objective,
        rows: Sequence[_Row],
        rounds: Sequence[int],
        default_config: Config,
        name_of: Callable[[Config], str],
        exact: bool,
        title: str,
    ) -> None:
        self.goals, self.rows, self.rounds, self.exact = objective.goals, list(rows), list(rounds), exact
        self.default_config, self.name_of, self.title = default_config, name_of, title
        self.noise: list[Noise | None] = [
            pooled_noise([row.column(goal.metric, self.rounds) for row in rows]) if len(self.rounds) >= 2 else None for goal in self.goals
        ]

    def front(self, everything: Floats) -> Front | None:
        """Everything that is said of the front; `everything` holds the losses of all trials that worked."""
        sound = [row for row in self.rows if row.counts]
        if len(everything) < 2 or not sound:
            return None  # nothing but the default has run
        default = next((row for row in self.rows if row.config == self.default_config), None)
        names = self._names()
        points = [self._point(row, names) for row in sorted(self.rows, key=lambda row: row.losses)]
        losses = np.array([row.losses for row in sound])
        leading = {row.config for row, leads in zip(sound, on_front(losses), strict=True) if leads}
        best, worst = losses.min(axis=0), np.maximum(everything.max(axis=0), losses.max(axis=0))
        box = _Box(best, worst)
        volume = self._volume(sound, box)
        return Front(
            title=self.title,
            goals=self.goals,
            points=tuple(point for point in points if self.rounds or point.config in leading),
            default=next((point for point in points if point.config == self.default_config), None),
            volume=volume,
            default_volume=self._volume([default], box) if default else None,
            best={goal.metric: goal.sign * float(value) for goal, value in zip(self.goals, best, strict=True)},
            reference={goal.metric: goal.sign * value for goal, value in zip(self.goals, box.reference(), strict=True)},
            rounds=len(self.rounds),
            exact=self.exact,
        )

    def _point(self, row: _Row, names: Mapping[Config, str]) -> FrontPoint:
        standing, rivals = self._standing(row)
        return FrontPoint(
            config=row.config,
            name=names[row.config],
            title=self.name_of(row.config),
            standing=standing,
            rivals=tuple(names[other.config] for other in rivals),
            values={goal.metric: self._reading(row, number) for number, goal in enumerate(self.goals)},
            metrics=row.metrics,
            runs=len(row.trials),
            trials=row.trials,
            limits=row.limits,
            counts=row.counts,
        )

    def _standing(self, row: _Row) -> tuple[Standing, list[_Row]]:
        others = [other for other in self.rows if other is not row and other.counts]
        if not row.counts:
            return Standing.UNSURE, []
        if self.exact:
            above = [other for other in others if dominates(np.array(other.losses), np.array(row.losses))]
            return (Standing.DOMINATED, above) if above else (Standing.ON_FRONT, [])
        goals = range(len(self.goals))
        above = [other for other in others if all(self._surely(other, row, goal) for goal in goals)]
        if above:
            return Standing.DOMINATED, above
        close = [other for other in others if not any(self._surely(row, other, goal) for goal in goals)]
        return (Standing.UNSURE, close) if close or len(self.rounds) < MIN_PAIRS else (Standing.ON_FRONT, [])

    def _surely(self, one: _Row, other: _Row, goal: int) -> bool:
        """Whether `one` is better in a goal beyond the noise; the intervals hold for all comparisons of a point at once."""
        metric, minimize = self.goals[goal].metric, self.goals[goal].direction is Direction.MINIMIZE
        compared = len(self.goals) * (len(self.rows) - 1)
        pair = (row.column(metric, self.rounds) for row in (other, one))
        return paired_gain(*pair, minimize=minimize, confidence=CONFIDENCE, compared=compared, noise=self.noise[goal]).better

    def _reading(self, row: _Row, goal: int) -> Reading:
        value, noise = row.metrics[self.goals[goal].metric], self.noise[goal]
        column = row.column(self.goals[goal].metric, self.rounds)
        if len(column) < MIN_PAIRS:
            return Reading(value=value)
        if noise is None:
            reach = student_quantile(0.5 + CONFIDENCE / 2.0, len(column) - 1) * standard_error(column)
            return Reading(value=value, low=min(value, float(np.mean(column)) - reach), high=max(value, float(np.mean(column)) + reach))
        centre, reach = float(np.mean(np.log(column))), student_quantile(0.5 + CONFIDENCE / 2.0, noise.freedom) * self._error(noise)
        return Reading(value=value, low=min(value, math.exp(centre - reach)), high=max(value, math.exp(centre + reach)))

    def _error(self, noise: Noise) -> float:
        return noise.deviation / math.sqrt(len(self.rounds))

    def _volume(self, rows: Sequence[_Row], box: _Box) -> Reading:
        """The share of the box that is covered; its interval from fronts whose points are moved by the noise of their medians."""
        losses = np.array([row.losses for row in rows])
        value = box.covered(losses)
        noises = [noise for noise in self.noise if noise is not None]
        if len(noises) < len(self.goals) or len(self.rounds) < MIN_PAIRS:
            return Reading(value=value)
        rng = stream(0, "hypervolume")
        moved = []
        for _ in range(DRAWS):
            steps = np.stack([self._error(noise) * rng.standard_t(noise.freedom, len(rows)) for noise in noises], axis=1)
            moved.append(box.covered(losses * np.exp(steps)))
        low, high = np.quantile(moved, [0.5 - CONFIDENCE / 2.0, 0.5 + CONFIDENCE / 2.0])
        # Noise lets a front look better than it is: what it adds to the draws is taken off.
        return Reading(value=value, low=max(0.0, min(value, 2.0 * value - float(high))), high=max(value, 2.0 * value - float(low)))

    def _names(self) -> dict[Config, str]:
        """The default, the best by each goal, the one closest to the best of all goals, and the others by number along the front."""
        rows, names = [row for row in self.rows if row.counts], {self.default_config: self.title}
        for number, goal in enumerate(self.goals):
            best = min(rows, key=lambda row, number=number: (row.losses[number], row.losses))  # type: ignore[misc]
            names.setdefault(best.config, f"best-{re.sub('[^a-z0-9]+', '-', goal.metric.lower()).strip('-')}")
        losses = np.array([row.losses for row in rows])
        shares = _Box(losses.min(axis=0), losses.max(axis=0)).shares(losses)
        rest = sorted((row for row in rows if row.config not in names), key=lambda row: row.losses)
        if rest:
            closest = min(rest, key=lambda row: float((shares[rows.index(row)] ** 2).sum()))
            names[closest.config] = "balanced"
        for number, row in enumerate((row for row in rest if row.config not in names), start=1):
            names[row.config] = f"between-{number}"
        for number, row in enumerate((row for row in self.rows if not row.counts), start=1):
            names[row.config] = f"doubtful-{number}"
        return names


@dataclass(frozen=True)
class _Box:
    """Losses as shares of the way from the best to the worst, by ratios where signs allow."""

    best: Floats
    worst: Floats

    def shares(self, losses: Floats) -> Floats:
        shares = np.zeros(losses.shape)
        for goal, (low, high) in enumerate(zip(self.best.tolist(), self.worst.tolist(), strict=True)):
            ratios = low * high > 0 and bool((losses[:, goal] * low > 0).all())
            low, high = (_scaled(low), _scaled(high)) if ratios else (low, high)
            values = np.sign(losses[:, goal]) * np.log(np.abs(losses[:, goal])) if ratios else losses[:, goal]
            shares[:, goal] = (values - low) / (high - low) if high > low else 0.0
        return shares

    def covered(self, losses: Floats) -> float:
        volume: float = hypervolume(self.shares(losses), np.full(losses.shape[1], BEYOND)) / BEYOND ** losses.shape[1]
        return volume

    def reference(self) -> list[float]:
        """The losses that the hypervolume is counted from."""
        point = []
        for low, high in zip(self.best.tolist(), self.worst.tolist(), strict=True):
            if low * high > 0:
                end = _scaled(low) + BEYOND * (_scaled(high) - _scaled(low))
                point.append(math.copysign(math.exp(math.copysign(1.0, low) * end), low))
            else:
                point.append(low + BEYOND * (high - low))
        return point


def _scaled(value: float) -> float:
    return math.copysign(1.0, value) * math.log(abs(value))


__all__ = ["Front", "FrontPoint", "Reading", "Standing", "find_front"]

"""The decision: is a configuration better than the engine's default, by how much, and which one should run?

The search picks winners from noisy single measurements, so its own numbers make the winner look better than it is. The final phase measures
the default and the finalists again, in rounds; only those rounds make the interval. The answer is the default unless
the whole interval lies above it. Among finalists that cannot be told apart the one with the fewest changes is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import nsmallest
from statistics import median
from typing import Any

from autoscout.analysis.curves import ordered
from autoscout.analysis.gain import MIN_PAIRS, Gain, Noise, paired_gain, pooled_noise
from autoscout.analysis.labels import differences, namer
from autoscout.common.stats import variation
from autoscout.common.text import plural, show_gain, show_number
from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.origin import Phase
from autoscout.core.task import Direction, Limit, Task
from autoscout.core.trial import Fidelity, Measurement, Status, Trial

ALIKE = 0.99
"""Confidence with which a simpler finalist must be worse before it is passed over: that happens to an equal one once in 200 studies."""


MOST_CONTENDERS = 500
"""Configurations that are compared where there was no final."""


class Verdict(StrEnum):
    """What the study may claim."""

    GAIN = "gain"
    NO_GAIN = "no significant gain"
    WORSE = "worse"
    NONE = "no valid configuration"

    @property
    def meaning(self) -> str:
        """What it says, in words."""
        return _VERDICTS[self]


_VERDICTS = {
    Verdict.GAIN: "the whole interval is above the default, or the default fails or breaks a limit and this configuration does not",
    Verdict.NO_GAIN: "the interval includes the default, there are fewer than three pairs, or nothing beat the default",
    Verdict.WORSE: "the whole interval is below the default",
    Verdict.NONE: "nothing ran, or nothing kept the limits",
}


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """A limit and what was measured; a metric that was not reported breaks it."""

    limit: Limit
    value: float | None
    holds: bool

    @property
    def word(self) -> str:
        """Whether it holds, for people."""
        return "not measured" if self.value is None else "kept" if self.holds else "BROKEN"

    def __str__(self) -> str:
        return f"{self.limit} {self.word} ({show_number(self.value)})"

    def to_json(self) -> dict[str, Any]:
        return {"limit": str(self.limit), "value": self.value, "holds": self.holds}


@dataclass(frozen=True, kw_only=True)
class PooledRuns:
    """One configuration with its repeats pooled.

    Attributes:
        config: The configuration.
        name: Its short readable name.
        runs: How many good measurements are pooled here.
        failures: How many times it failed among those looked at.
        value: Median of the objective; None when it never ran.
        spread: Standard deviation over mean of the pooled runs.
        metrics: All metrics, pooled the same way.
        limits: Each limit against the pooled metric.
        trials: Numbers of the trials pooled.
        rounds: Objective per final round; empty when the numbers come from the search phase.
    """

    config: Config
    name: str
    runs: int
    failures: int
    value: float | None
    spread: float | None
    metrics: Mapping[str, float]
    limits: tuple[LimitCheck, ...]
    trials: tuple[int, ...]
    rounds: Mapping[int, float] = field(default_factory=dict)

    @property
    def allowed(self) -> bool:
        """Whether it ran and keeps every limit."""
        return self.value is not None and all(check.holds for check in self.limits)

    def to_json(self) -> dict[str, Any]:
        return {
            "config": self.config.to_json(),
            "key": self.config.key,
            "name": self.name,
            "runs": self.runs,
            "failures": self.failures,
            "value": self.value,
            "spread": self.spread,
            "metrics": dict(self.metrics),
            "limits": [check.to_json() for check in self.limits],
            "trials": list(self.trials),
        }


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """A configuration compared with the default."""

    side: PooledRuns
    gain: Gain

    @property
    def eligible(self) -> bool:
        """Whether it may be handed over at all: ran every time it was measured again, and keeps every limit."""
        return self.side.allowed and self.side.failures == 0

    def to_json(self) -> dict[str, Any]:
        return {**self.side.to_json(), "gain": self.gain.to_json(), "eligible": self.eligible}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdict with everything it rests on.

    Attributes:
        verdict: What may be claimed.
        reason: One sentence for a person.
        answer: The configuration to run; None only when nothing ran.
        default: The default, pooled; None when it was never tried.
        best: The strongest contender, whether or not it is the answer; None when nothing but the default ran.
        gain: Of `best` over `default`.
        finalists: All contenders of the final phase, best first.
        fidelity: Of the numbers used.
    """

    verdict: Verdict
    reason: str
    answer: Config | None
    default: PooledRuns | None
    best: PooledRuns | None
    gain: Gain
    finalists: tuple[Finalist, ...]
    fidelity: Fidelity


def decide(
    task: Task, trials: Sequence[Trial], default_config: Config, name_of: Callable[[Config], str] | None = None, *, exact: bool = False
) -> Decision:
    """Compare what was found with the default.

    Args:
        task: Objective and limits.
        trials: All trials of the study, in any order.
        default_config: The engine's default.
        name_of: Gives configurations their readable names.
        exact: Every answer is the same each time it is asked for, so that one of each tells all.
    """
    history = ordered(trials)
    task = bind(task, history, default_config)
    name_of = name_of or namer(default_config)
    fidelity = max((trial.measurement.fidelity for trial in history if trial.ok), default=Fidelity.MEASURED)
    groups: dict[Config, list[Trial]] = {}
    for trial in history:
        if trial.measurement.fidelity is fidelity and (trial.ok or trial.measurement.status.failed):
            groups.setdefault(trial.config, []).append(trial)
    final = any(trial.proposal.origin.phase is Phase.FINAL for group in groups.values() for trial in group)
    baseline = groups.get(default_config, [])
    default = _side(task, default_config, baseline, final, name_of)
    finalists = _finalists(task, groups, default_config, default, final, name_of)
    once = not final and (exact or fidelity is Fidelity.SIMULATED)
    if once:  # a ratio says nothing of values at or below zero; the values themselves do
        finalists = tuple(sorted(finalists, key=lambda finalist: (not finalist.eligible, _loss(task, finalist.side))))
    simplest = _simplest(task, default_config, default, finalists, once)
    fewer = simplest != finalists
    finalists = simplest
    verdict, reason, best = _weigh(default, finalists)
    if once and best is not None and default is not None and default.allowed:
        verdict, reason = _exact(_loss(task, best.side) < _loss(task, default), fidelity)
    if fewer and verdict is Verdict.GAIN:
        reason += "; of those that cannot be told apart, it changes the fewest knobs"
    if best is not None and default is not None and best.side.rounds.keys() & default.rounds.keys():
        # Later editions of the final have other finalists: show the default as it was in the rounds of this one.
        default = _side(task, default_config, [t for t in baseline if _round(t) in best.side.rounds], final, name_of)
    answer = None if verdict is Verdict.NONE else best.side.config if verdict is Verdict.GAIN and best else default_config
    return Decision(
        verdict=verdict,
        reason=reason,
        answer=answer,
        default=default,
        best=best.side if best else None,
        gain=best.gain if best else Gain(ratio=None),
        finalists=finalists,
        fidelity=fidelity,
    )


def _side(task: Task, config: Config, trials: Sequence[Trial], final: bool, name_of: Callable[[Config], str]) -> PooledRuns | None:
    """Pool a configuration's trials: those of the final phase where it has any, else all."""
    if final and any(trial.proposal.origin.phase is Phase.FINAL for trial in trials):
        trials = [trial for trial in trials if trial.proposal.origin.phase is Phase.FINAL]
    if not trials:
        return None
    good = [trial for trial in trials if task.objective.value(trial.measurement) is not None]
    metrics = _pool(trial.measurement.metrics for trial in good)
    values = [trial.measurement.metrics[task.objective.metric] for trial in good]
    rounds: dict[int, list[float]] = {}
    for trial in good:
        if (number := _round(trial)) is not None:
            rounds.setdefault(number, []).append(trial.measurement.metrics[task.objective.metric])
    checks = tuple(
        LimitCheck(limit=limit, value=metrics.get(limit.metric), holds=limit.holds(Measurement(status=Status.OK, metrics=metrics)))
        for limit in task.objective.limits
    )
    return PooledRuns(
        config=config,
        name=name_of(config),
        runs=len(good),
        failures=len(trials) - len(good),
        value=metrics.get(task.objective.metric),
        spread=variation(values),
        metrics=metrics,
        limits=checks,
        trials=tuple(trial.number for trial in trials),
        rounds={number: median(round_values) for number, round_values in sorted(rounds.items())},
    )


def _round(trial: Trial) -> int | None:
    """The round of the final that a trial belongs to; None for a trial of the search."""
    origin = trial.proposal.origin
    return (origin.round or trial.proposal.repeat) if origin.phase is Phase.FINAL else None


def _pool(measurements: Iterable[Mapping[str, float]]) -> dict[str, float]:
    gathered: dict[str, list[float]] = {}
    for metrics in measurements:
        for name, value in metrics.items():
            gathered.setdefault(name, []).append(value)
    return {name: median(values) for name, values in gathered.items()}


def _finalists(
    task: Task,
    groups: Mapping[Config, list[Trial]],
    default_config: Config,
    default: PooledRuns | None,
    final: bool,
    name_of: Callable[[Config], str],
) -> tuple[Finalist, ...]:
    """All contenders, best first: those of the final phase, or everything that ran where there was none."""
    contenders = {config: trials for config, trials in groups.items() if config != default_config}
    again = {config: trials for config, trials in contenders.items() if any(trial.proposal.origin.phase is Phase.FINAL for trial in trials)}
    sides = [
        side for config, trials in (again or _foremost(task, contenders)).items() if (side := _side(task, config, trials, final, name_of))
    ]
    rounds = default.rounds if default else {}
    compared = sum(len(side.rounds.keys() & rounds.keys()) >= MIN_PAIRS for side in sides)
    rivals = [side for side in sides if side.value is not None or again]
    finalists = [Finalist(side=side, gain=_gain(task, default, side, max(1, compared))) for side in rivals]
    return tuple(sorted(finalists, key=lambda finalist: _rank(task, finalist)))


def _foremost(task: Task, contenders: Mapping[Config, list[Trial]]) -> Mapping[Config, list[Trial]]:
    """All contenders; of very many those with the best single trials, because none of the others could be in front."""
    if len(contenders) <= MOST_CONTENDERS:
        return contenders
    least = {config: min(task.objective.loss(trial.measurement) for trial in trials) for config, trials in contenders.items()}
    chosen = set(nsmallest(MOST_CONTENDERS, least, key=least.__getitem__))
    return {config: trials for config, trials in contenders.items() if config in chosen}


def _gain(task: Task, default: PooledRuns | None, side: PooledRuns, compared: int) -> Gain:
    if default is None or default.value is None or side.value is None:
        return Gain(ratio=None)
    shared = sorted(default.rounds.keys() & side.rounds.keys())
    minimize = task.objective.direction is Direction.MINIMIZE
    if shared:
        return paired_gain([default.rounds[r] for r in shared], [side.rounds[r] for r in shared], minimize=minimize, compared=compared)
    unpaired = paired_gain([default.value], [side.value], minimize=minimize)
    return Gain(ratio=unpaired.ratio, pairs=0)


def _rank(task: Task, finalist: Finalist) -> tuple[bool, bool, float, tuple[int, ...]]:
    """Sort key: may it run, is it surely better, how much better; the earlier trial where all else is equal.

    A finalist that is surely better goes before one that merely looks better. The intervals hold for all finalists at
    once, so choosing among them this way costs no coverage.
    """
    ratio, value = finalist.gain.ratio, finalist.side.value
    sign = 1.0 if task.objective.direction is Direction.MINIMIZE else -1.0
    size = -ratio if ratio is not None else sign * value if value is not None else math.inf
    return not finalist.eligible, not finalist.gain.better, size, finalist.side.trials


def _simplest(
    task: Task, default_config: Config, default: PooledRuns | None, finalists: tuple[Finalist, ...], once: bool
) -> tuple[Finalist, ...]:
    """The finalists with the one that changes the fewest knobs, of those that cannot be told apart from the best, in front."""
    best = next((finalist for finalist in finalists if finalist.eligible), None)
    if best is None or task.objective.several:  # points of a front differ in the other goals, alike as they may be in the first
        return finalists
    sides = [best.side, *(finalist.side for finalist in finalists if finalist is not best), *([default] if default else [])]
    noise = _noise(sides)

    def alike(other: Finalist) -> bool:
        if not other.eligible or other.gain.better < best.gain.better:
            return False
        if once:
            return _loss(task, other.side) == _loss(task, best.side)
        return _not_worse(task, best.side, other.side, noise)

    front = [best, *(finalist for finalist in finalists if finalist is not best and alike(finalist))]
    chosen = min(front, key=lambda finalist: len(differences(default_config, finalist.side.config)))
    return (chosen, *(finalist for finalist in finalists if finalist is not chosen))


def _noise(sides: Sequence[PooledRuns]) -> Noise | None:
    """Of single measurements, from all sides that were measured in the rounds of the first; None where too little is known."""
    rounds = sorted(sides[0].rounds)
    return pooled_noise([[side.rounds[number] for number in rounds] for side in sides if side.rounds.keys() >= set(rounds)])


def _not_worse(task: Task, best: PooledRuns, other: PooledRuns, noise: Noise | None) -> bool:
    """Whether the rounds in which both ran leave open that `other` is as good as `best`."""
    shared = sorted(best.rounds.keys() & other.rounds.keys())
    one, two = ([side.rounds[number] for number in shared] for side in (best, other))
    gain = paired_gain(one, two, minimize=task.objective.direction is Direction.MINIMIZE, confidence=ALIKE, noise=noise)
    return gain.enough and not gain.worse


def _weigh(default: PooledRuns | None, finalists: Sequence[Finalist]) -> tuple[Verdict, str, Finalist | None]:
    eligible = [finalist for finalist in finalists if finalist.eligible]
    if not eligible:
        return _without_contender(default, finalists)
    best = eligible[0]
    if default is None:
        return Verdict.NO_GAIN, "the default was never measured, so there is nothing to compare with", best
    if default.value is None:
        return Verdict.GAIN, f"the default does not run; this configuration does ({_runs(best.side)})", best
    if not default.allowed:
        broken = ", ".join(str(check.limit) for check in default.limits if not check.holds)
        return Verdict.GAIN, f"the default breaks {broken}; this configuration keeps every limit ({_runs(best.side)})", best
    return *_compare(best.gain), best


def _compare(gain: Gain) -> tuple[Verdict, str]:
    if gain.better:
        return Verdict.GAIN, f"the whole interval lies above the default ({gain.pairs} pairs)"
    if gain.worse:
        return Verdict.WORSE, f"the best contender is worse than the default ({gain.pairs} pairs); keep the default"
    if gain.enough:
        return Verdict.NO_GAIN, f"the interval includes the default ({gain.pairs} pairs)"
    if gain.ratio is not None and gain.ratio <= 1.0:
        return Verdict.NO_GAIN, "nothing measured better than the default"
    looks = f"; it looks like {show_gain(gain.ratio)}" if gain.ratio is not None else ""
    return Verdict.NO_GAIN, f"not enough repeats: {plural(gain.pairs, 'pair')} of measurements in the final, {MIN_PAIRS} are needed{looks}"


def _without_contender(default: PooledRuns | None, finalists: Sequence[Finalist]) -> tuple[Verdict, str, Finalist | None]:
    if default is not None and default.allowed:
        if finalists:
            return Verdict.NO_GAIN, "every other configuration failed or broke a limit", None
        return Verdict.NO_GAIN, "nothing but the default ran", None
    ran = [side for side in (default, *(finalist.side for finalist in finalists)) if side is not None and side.value is not None]
    if any(side.allowed for side in ran):
        return Verdict.NONE, "what kept the limits failed when it was measured again", None
    return Verdict.NONE, "no configuration kept the limits" if ran else "no configuration ran", None


def _loss(task: Task, side: PooledRuns) -> float:
    """The pooled value as a number to minimise; infinite when it never ran."""
    return task.objective.loss(Measurement(status=Status.OK, metrics=side.metrics)) if side.value is not None else math.inf


def _exact(better: bool, fidelity: Fidelity) -> tuple[Verdict, str]:
    """The same question has the same answer each time: one pair is all there is to know."""
    simulated = fidelity is Fidelity.SIMULATED
    if better:
        exact = "simulated, not measured: exact for the simulator, not for the machine"
        return Verdict.GAIN, exact if simulated else "each configuration was tried once, because its answer is always the same"
    return Verdict.NO_GAIN, f"nothing {'simulated' if simulated else 'measured'} better than the default"


def _runs(side: PooledRuns) -> str:
    return plural(side.runs, "run")

"""The decision: is a configuration better than what runs today, by how much, and which one should run?

What runs today is the baseline where the user has one, else the engine's default; in the words of this module the reference. With a
baseline the engine's default is one more contender: an answer is never worse than either.

The search picks winners from noisy single measurements, so its own numbers make the winner look better than it is. The final phase measures
the references and the finalists again, in rounds; only those rounds make the interval. The answer is the reference unless
the whole interval lies above it, or it breaks a limit beyond doubt. Among finalists that cannot be told apart the one with the fewest
changes is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import nsmallest
from typing import Any

from autoscout.analysis.curves import ordered
from autoscout.analysis.gain import MIN_PAIRS, Gain, Noise, paired_gain, pooled_noise
from autoscout.analysis.labels import away, differences, namer
from autoscout.analysis.pooled import PooledRuns, Pooling, round_of
from autoscout.common.text import plural, show_gain
from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.reference import References
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Fidelity, Measurement, Status, Trial

ALIKE = 0.99
"""Confidence with which a simpler finalist must be worse before it is passed over: that happens to an equal one once in 200 studies."""


MOST_CONTENDERS = 500
"""Configurations that are compared where there was no final."""


AS_GOOD = 1.25
"""A contender that looks better, and whose interval reaches a ratio above this one, was not shown to be no better than the default."""


class Verdict(StrEnum):
    """What the study may claim."""

    GAIN = "gain"
    KEEPS = "keeps the limits"
    NO_GAIN = "no gain"
    UNDECIDED = "not decided"
    NONE = "nothing works"

    @property
    def meaning(self) -> str:
        """What it says, in words."""
        return _VERDICTS[self]


_VERDICTS = {
    Verdict.GAIN: "the whole interval is above what runs today, the baseline or else the default, or that fails and this one does not; and "
    "every limit is kept beyond doubt",
    Verdict.KEEPS: "what runs today breaks a limit beyond doubt, and this configuration keeps every limit beyond doubt, whatever it costs",
    Verdict.NO_GAIN: "enough pairs, and no interval above what runs today nor far beyond it: that is as good as anything that was tried",
    Verdict.UNDECIDED: "too few measurements, or too scattered ones, to claim anything; the result says what is missing and how to get it",
    Verdict.NONE: "nothing ran, or everything that was measured breaks a limit",
}


@dataclass(frozen=True, kw_only=True)
class Finalist:
    """A configuration compared with the reference, and with the engine's default where that is another."""

    side: PooledRuns
    gain: Gain
    over_default: Gain | None = None

    @property
    def eligible(self) -> bool:
        """Whether it may be handed over at all: ran every time it was measured again, and breaks no limit beyond doubt."""
        return self.side.can_keep and self.side.failures == 0

    def to_json(self) -> dict[str, Any]:
        over_default = self.over_default.to_json() if self.over_default else None
        return {**self.side.to_json(), "gain": self.gain.to_json(), "gain_over_default": over_default, "eligible": self.eligible}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The verdict with everything it rests on.

    Attributes:
        verdict: What may be claimed.
        reason: One sentence for a person.
        answer: The configuration to run; None only when nothing ran.
        reference: What gains are measured against, pooled: the baseline where there is one that runs, else the default; None when it was
            never tried.
        best: The strongest contender, whether or not it is the answer; None when nothing but the reference ran.
        gain: Of `best` over `reference`.
        finalists: All contenders of the final phase, best first.
        fidelity: Of the numbers used.
        default: The engine's default, pooled; None when it was never tried.
        baseline: What the user runs today, pooled, likewise; None without one.
        over_default: The gain of `best` over the engine's default, where that is neither the reference nor `best`.
        baseline_gain: Of the baseline over the engine's default.
    """

    verdict: Verdict
    reason: str
    answer: Config | None
    reference: PooledRuns | None
    best: PooledRuns | None
    gain: Gain
    finalists: tuple[Finalist, ...]
    fidelity: Fidelity
    default: PooledRuns | None
    baseline: PooledRuns | None = None
    over_default: Gain | None = None
    baseline_gain: Gain | None = None


def decide(
    task: Task,
    trials: Sequence[Trial],
    default_config: Config,
    name_of: Callable[[Config], str] | None = None,
    *,
    exact: bool = False,
    baseline: Config | None = None,
) -> Decision:
    """Compare what was found with what runs today.

    Args:
        task: Objective and limits.
        trials: All trials of the study, in any order.
        default_config: The engine's default.
        name_of: Gives configurations their readable names.
        exact: Every answer is the same each time it is asked for, so that one of each tells all.
        baseline: What the user runs today.
    """
    history = ordered(trials)
    references = References(default_config, baseline)
    reference = references.reference(history)
    title = "the baseline" if reference == baseline else "the default"
    task = bind(task, history, reference)
    name_of = name_of or namer(reference, titles=references.titles)
    fidelity = max((trial.measurement.fidelity for trial in history if trial.ok), default=Fidelity.MEASURED)
    groups: dict[Config, list[Trial]] = {}
    for trial in history:
        if trial.measurement.fidelity is fidelity and (trial.ok or trial.measurement.status.failed):
            groups.setdefault(trial.config, []).append(trial)
    once = fidelity is Fidelity.SIMULATED or exact
    pooling = Pooling(task, groups, reference, name_of, exact=once)
    once &= not pooling.has_final
    before = pooling.side(reference, groups.get(reference, []))
    finalists, others = _contenders(task, groups, reference, before, pooling)
    if once:  # a ratio says nothing of values at or below zero; the values themselves do
        finalists = tuple(sorted(finalists, key=lambda finalist: (not finalist.eligible, _loss(task, finalist.side))))
    first = finalists[:1]
    finalists = _simplest(task, reference, before, finalists, once)
    claim = _weigh(before, finalists, others, len(groups), title)
    if claim.verdict is Verdict.GAIN:
        claim = replace(claim, reason=claim.reason + _passed_over(claim, finalists))
    best = claim.best
    if once:
        claim = _exact(task, claim, before, fidelity, title)
    if finalists[:1] != first and claim.verdict in (Verdict.GAIN, Verdict.KEEPS):
        least = ", and these the least" if _on_windows(task) else ""
        claim = replace(claim, reason=f"{claim.reason}; of those that cannot be told apart, it changes the fewest knobs{least}")
    if references.other(reference) is not None:
        claim = _about_both(claim, references, reference)
    keeps = reference if claim.verdict is not Verdict.NONE and groups else None
    sides = {config: _as_met(pooling, groups, config, best) for config in references.all}
    over = _OverDefault(task, sides[default_config] if reference != default_config else None, len(finalists))
    return Decision(
        verdict=claim.verdict,
        reason=claim.reason,
        answer=best.side.config if best and claim.is_answer else keeps,
        reference=sides[reference],
        best=best.side if best else None,
        gain=best.gain if best else Gain(ratio=None),
        finalists=tuple(replace(finalist, over_default=over.gain(finalist.side)) for finalist in finalists),
        fidelity=fidelity,
        default=sides[default_config],
        baseline=None if baseline is None else sides[baseline],
        over_default=over.gain(best.side) if best else None,
        baseline_gain=over.gain(sides[reference]),
    )


def _as_met(pooling: Pooling, groups: Mapping[Config, list[Trial]], config: Config, best: Finalist | None) -> PooledRuns | None:
    """A reference in the rounds in which it met the best, since each edition of the final has its own. All of them judge its limits."""
    trials = groups.get(config, [])
    side = pooling.side(config, trials)
    if side is None or best is None or not best.side.rounds.keys() & side.rounds.keys():
        return side
    same_rounds = pooling.side(config, [trial for trial in trials if round_of(trial) in best.side.rounds])
    return replace(same_rounds, limits=side.limits) if same_rounds else side


@dataclass(frozen=True)
class _OverDefault:
    """Gains over the engine's default, where that is not the reference; the intervals hold for all `compared` at once."""

    task: Task
    default: PooledRuns | None
    compared: int

    def gain(self, side: PooledRuns | None) -> Gain | None:
        if self.default is None or side is None or side.config == self.default.config:
            return None
        return _gain(self.task, self.default, side, max(1, self.compared))


def _about_both(claim: _Claim, references: References, reference: Config) -> _Claim:
    """The claim with what there is to say of the one that is not the reference."""
    words = ""
    if claim.best is not None and claim.best.side.config == references.default and claim.is_answer:
        words = "it is the engine's default: drop your settings"
    elif reference == references.default:
        words = "the baseline does not run, so everything is compared with the default"
    return replace(claim, reason=f"{claim.reason}; {words}") if words else claim


def _contenders(
    task: Task, groups: Mapping[Config, list[Trial]], default_config: Config, default: PooledRuns | None, pooling: Pooling
) -> tuple[tuple[Finalist, ...], tuple[Finalist, ...]]:
    """Those of the final phase, or everything that ran where there was none; and the others that kept every limit; both best first."""
    contenders = {config: trials for config, trials in groups.items() if config != default_config}
    again = {config for config, trials in contenders.items() if any(round_of(trial) is not None for trial in trials)}
    foremost = _foremost(task, contenders, again)
    sides = [side for config, trials in foremost.items() if (side := pooling.side(config, trials))]
    rounds = default.rounds if default else {}
    first = [side for side in sides if side.config in again] if again else [side for side in sides if side.value is not None]
    compared = max(1, sum(len(side.rounds.keys() & rounds.keys()) >= MIN_PAIRS for side in first))
    rest = [side for side in sides if again and side.config not in again and side.holds and not side.failures]
    counts = _counts(default)
    ranked = [
        tuple(sorted((_finalist(task, default, side, compared) for side in some), key=lambda finalist: _rank(task, finalist, counts)))
        for some in (first, rest)
    ]
    return ranked[0], ranked[1]


def _counts(default: PooledRuns | None) -> bool:
    """Whether to keep every limit is enough to be claimed, because the default does not run or breaks one."""
    return default is None or default.value is None or default.is_broken


def _finalist(task: Task, default: PooledRuns | None, side: PooledRuns, compared: int) -> Finalist:
    return Finalist(side=side, gain=_gain(task, default, side, compared))


def _foremost(task: Task, contenders: Mapping[Config, list[Trial]], always: Collection[Config]) -> Mapping[Config, list[Trial]]:
    """All contenders; of very many some that belong to it and those with the best single trials: no other could be in front."""
    if len(contenders) <= MOST_CONTENDERS:
        return contenders
    least = {config: min(task.objective.loss(trial.measurement) for trial in trials) for config, trials in contenders.items()}
    chosen = {*nsmallest(MOST_CONTENDERS, least, key=least.__getitem__), *always}
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


def _rank(task: Task, finalist: Finalist, counts: bool) -> tuple[bool, bool, bool, bool, float, tuple[int, ...]]:
    """Sort key: may it run, may it be claimed, does it keep the limits, is it surely better, how much better; the earlier trial where all
    else is equal.

    A finalist that is surely better goes before one that merely looks better, and one that surely keeps the limits before one that may
    break them. The intervals hold for all finalists at once, so choosing among them this way costs no coverage.

    Args:
        task: What is improved.
        finalist: Whose place is asked for.
        counts: To keep every limit beyond doubt is enough to be claimed, because the default does not run or breaks one.
    """
    ratio, value = finalist.gain.ratio, finalist.side.value
    sign = 1.0 if task.objective.direction is Direction.MINIMIZE else -1.0
    size = -ratio if ratio is not None else sign * value if value is not None else math.inf
    wins = finalist.side.is_safe and (counts or finalist.gain.better)
    return not finalist.eligible, not wins, not finalist.side.holds, not finalist.gain.better, size, finalist.side.trials


def _simplest(
    task: Task, default_config: Config, default: PooledRuns | None, finalists: tuple[Finalist, ...], once: bool
) -> tuple[Finalist, ...]:
    """The finalists with the one that changes the fewest knobs, of those that cannot be told apart from the best, in front.

    Of as many changes, those to the values nearest the default, where the study judges on several windows of a traffic: other hours come,
    and what is alike in these is not alike in all.
    """
    best = next((finalist for finalist in finalists if finalist.eligible), None)
    if best is None or task.objective.several:  # points of a front differ in the other goals, alike as they may be in the first
        return finalists
    sides = [best.side, *(finalist.side for finalist in finalists if finalist is not best), *([default] if default else [])]
    noise = _noise(sides)
    counts = _counts(default)

    def alike(other: Finalist) -> bool:
        if not other.eligible or (other.gain.better < best.gain.better and not counts):
            return False
        if other.side.holds < best.side.holds or other.side.is_safe < best.side.is_safe:
            return False
        if once:
            return _loss(task, other.side) == _loss(task, best.side)
        return _not_worse(task, best.side, other.side, noise)

    front = [best, *(finalist for finalist in finalists if finalist is not best and alike(finalist))]
    nearest = _on_windows(task)

    def changed(finalist: Finalist) -> tuple[int, float]:
        config = finalist.side.config
        return len(differences(default_config, config)), away(default_config, config) if nearest else 0.0

    chosen = min(front, key=lambda finalist: (not finalist.side.is_safe, *changed(finalist)))
    return (chosen, *(finalist for finalist in finalists if finalist is not chosen))


def _on_windows(task: Task) -> bool:
    """Whether the study judges on several windows of a traffic."""
    traffic = task.workload.get("traffic")
    windows = traffic.get("windows", ()) if isinstance(traffic, Mapping) else ()
    return sum(not window.get("held_out") for window in windows) > 1


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


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """What may be said of whom: `best` is the contender, `is_answer` whether it shall run in place of the default."""

    verdict: Verdict
    reason: str
    best: Finalist | None = None
    is_answer: bool = False


def _weigh(default: PooledRuns | None, finalists: Sequence[Finalist], others: Sequence[Finalist], tried: int, title: str) -> _Claim:
    """Weigh the first finalist that may be handed over against the default.

    Args:
        default: The default, pooled.
        finalists: The contenders, best first.
        others: Those that the final left out and that kept every limit in the search, best first.
        tried: How many configurations were tried, the default among them.
        title: What to call the default.
    """
    best = next((finalist for finalist in finalists if finalist.eligible), None)
    if best is None:
        return _without_contender(default, finalists, others, tried, title)
    if default is None:
        reason = f"{title} was never measured, so there is nothing to compare with"
        return _Claim(verdict=Verdict.UNDECIDED, reason=reason, best=best)
    if default.value is None:
        reason = f"{title} does not run; this configuration does ({_runs(best.side)})"
        if not best.side.is_safe:
            reason += f", but it is not certain that it keeps the limits: {_doubts(best.side)}"
            return _Claim(verdict=Verdict.UNDECIDED, reason=reason, best=best, is_answer=True)
        return _Claim(verdict=Verdict.GAIN, reason=reason, best=best, is_answer=True)
    if default.is_broken:
        broken = ", ".join(f"{check.limit} ({check.figures})" for check in default.limits if check.is_broken)
        if best.side.is_safe:
            reason = f"{title} breaks {broken}; this configuration keeps every limit ({_runs(best.side)})"
            return _Claim(verdict=Verdict.KEEPS, reason=reason, best=best, is_answer=True)
        reason = f"{title} breaks {broken}; it is not certain that the best configuration does not: {_doubts(best.side)}"
        return _Claim(verdict=Verdict.UNDECIDED, reason=reason, best=best, is_answer=True)
    return _compare(default, best, title)


def _compare(default: PooledRuns, best: Finalist, title: str) -> _Claim:
    """The contender against a default that breaks no limit beyond doubt."""
    gain, is_answer = best.gain, best.side.holds and not default.holds
    if gain.better and not best.side.is_safe:
        reason = f"it looks like {show_gain(gain.ratio)}, but it is not certain that it keeps the limits: {_doubts(best.side)}"
        return _Claim(verdict=Verdict.UNDECIDED, reason=reason, best=best, is_answer=is_answer)
    if gain.better:
        reason = f"the whole interval lies above {title} ({gain.pairs} pairs)"
        return _Claim(verdict=Verdict.GAIN, reason=reason, best=best, is_answer=True)
    doubts = f"; {title} is not told apart from its limit: {_doubts(default)}" if default.unsure else ""
    if gain.ratio is not None and gain.ratio > 1.0 and gain.high is not None and gain.high > AS_GOOD:
        wide = f"the interval includes {title}, and gains of up to {show_gain(gain.high)} ({gain.pairs} pairs)"
        return _Claim(verdict=Verdict.UNDECIDED, reason=f"{wide}: the measurements scatter too much to tell{doubts}", best=best)
    if gain.enough:
        how = f"the best contender is worse than {title}" if gain.worse else f"the interval includes {title}"
        return _Claim(verdict=Verdict.NO_GAIN, reason=f"{how} ({gain.pairs} pairs){doubts}", best=best)
    looks = f"; it looks like {show_gain(gain.ratio)}" if gain.ratio is not None else ""
    if gain.ratio is not None and gain.ratio <= 1.0:
        looks = f"; so far nothing measured better than {title}"
    if is_answer:
        looks, doubts = f"; it looks as if {title} broke {_doubts(default)}, and as if this configuration kept every limit", ""
    reason = f"not enough repeats: {plural(gain.pairs, 'pair')} of measurements in the final, {MIN_PAIRS} are needed{looks}{doubts}"
    return _Claim(verdict=Verdict.UNDECIDED, reason=reason, best=best, is_answer=is_answer)


def _passed_over(claim: _Claim, finalists: Sequence[Finalist]) -> str:
    """The finalist that looks better still and may break a limit, in words; empty where there is none."""
    ratio = (claim.best.gain.ratio if claim.best else None) or math.inf
    for finalist in finalists:
        if finalist.eligible and finalist.gain.better and not finalist.side.is_safe and (finalist.gain.ratio or 0.0) > ratio:
            looks = f"{finalist.side.name} looks like {show_gain(finalist.gain.ratio)}"
            return f"; {looks}, but it is not certain that it keeps the limits: {_doubts(finalist.side)}"
    return ""


def _without_contender(
    default: PooledRuns | None, finalists: Sequence[Finalist], others: Sequence[Finalist], tried: int, title: str
) -> _Claim:
    """Where no contender may be handed over as it is."""
    has_tried = tried > (default is not None)
    if not tried:
        return _Claim(verdict=Verdict.UNDECIDED, reason="nothing has been measured yet")
    default_is_fine = default is not None and default.can_keep
    if others:
        reason = (
            "every finalist failed or broke a limit when it was measured again; not measured again: "
            f"{plural(len(others), 'other configuration')} that kept every limit in the search"
        )
        return _Claim(verdict=Verdict.UNDECIDED, reason=reason, best=others[0], is_answer=not default_is_fine)
    if default_is_fine:
        if has_tried:
            return _Claim(verdict=Verdict.NO_GAIN, reason="every other configuration failed or broke a limit")
        return _Claim(verdict=Verdict.UNDECIDED, reason=f"nothing but {title} was measured")
    ran = [side for side in (default, *(finalist.side for finalist in finalists)) if side is not None and side.value is not None]
    if any(side.can_keep for side in ran):
        return _Claim(verdict=Verdict.NONE, reason="what kept the limits failed when it was measured again")
    reason = f"no configuration kept the limits, of {tried} that were tried{_nearest(ran)}" if ran else "no configuration ran"
    return _Claim(verdict=Verdict.NONE, reason=reason)


def _nearest(sides: Sequence[PooledRuns]) -> str:
    """Which of these is the least far beyond a limit, in words; empty where limited metrics are missing."""
    measured = [side for side in sides if side.limits and all(check.value is not None for check in side.limits)]
    if not measured:
        return ""
    nearest = min(measured, key=lambda side: max(check.excess for check in side.limits))
    broken = ", ".join(f"{check.limit} ({check.figures})" for check in nearest.limits if not check.is_kept)
    return f"; the nearest is {nearest.name}: {broken}"


def _doubts(side: PooledRuns) -> str:
    return ", ".join(f"{check.limit} ({check.figures})" for check in side.unsure)


def _loss(task: Task, side: PooledRuns) -> float:
    """The pooled value as a number to minimise; infinite when it never ran."""
    return task.objective.loss(Measurement(status=Status.OK, metrics=side.metrics)) if side.value is not None else math.inf


def _exact(task: Task, claim: _Claim, default: PooledRuns | None, fidelity: Fidelity, title: str) -> _Claim:
    """The same question has the same answer each time: one pair is all there is to know."""
    simulated = fidelity is Fidelity.SIMULATED
    best = claim.best
    if best is None or default is None or default.value is None or default.is_broken:
        return claim
    if _loss(task, best.side) < _loss(task, default):
        words = "each configuration was tried once, because its answer is always the same"
        words = "simulated, not measured: exact for the simulator, not for the machine" if simulated else words
        return replace(claim, verdict=Verdict.GAIN, reason=words, is_answer=True)
    reason = f"nothing {'simulated' if simulated else 'measured'} better than {title}"
    return replace(claim, verdict=Verdict.NO_GAIN, reason=reason, is_answer=False)


def _runs(side: PooledRuns) -> str:
    return plural(side.runs, "run")

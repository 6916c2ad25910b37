"""Two configurations, or two versions, measured in turn: is the one at least as good as the other?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from autoscout.analysis.gain import Gain, paired_gain
from autoscout.analysis.limits import LimitCheck, LimitState, check_limit, repeat_noise
from autoscout.common.text import show_number
from autoscout.core.config import Config
from autoscout.core.origin import By, Origin
from autoscout.core.protocols import Evaluator
from autoscout.core.task import Direction, Objective
from autoscout.core.trial import Measurement, Proposal


class PairVerdict(StrEnum):
    """What the pairs say of the one that is checked."""

    BETTER = "better"
    AS_GOOD = "as good"  # the whole interval is within the tolerance, or above it
    WORSE = "worse"  # the whole interval is below the tolerance
    BREAKS = "breaks a limit"  # beyond doubt, and the other does not
    FAILS = "fails"  # where the other works
    UNDECIDED = "not decided"

    @property
    def is_bad(self) -> bool:
        """Whether a change should not go in."""
        return self in (PairVerdict.WORSE, PairVerdict.BREAKS, PairVerdict.FAILS)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two: what is measured, and by whom."""

    config: Config
    evaluator: Evaluator

    def measure(self, number: int) -> Measurement:
        """One measurement of a round."""
        proposal = Proposal(config=self.config, origin=Origin(by=By.PROFILE), repeat=number)
        return self.evaluator.evaluate([proposal])[0]


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """What both did in each round."""

    checked: tuple[Measurement, ...]
    against: tuple[Measurement, ...]


def measure_in_turn(checked: Side, against: Side, rounds: int, is_stopping: Callable[[], bool] = lambda: False) -> Rounds:
    """Measure both once a round. Who begins changes from round to round, so that neither always runs on the warmer machine."""
    ones: list[Measurement] = []
    others: list[Measurement] = []
    for number in range(rounds):
        turns = [(against, others), (checked, ones)]
        for side, measurements in turns if number % 2 == 0 else reversed(turns):
            if is_stopping():
                pairs = min(len(ones), len(others))
                return Rounds(checked=tuple(ones[:pairs]), against=tuple(others[:pairs]))
            measurements.append(side.measure(number))
    return Rounds(checked=tuple(ones), against=tuple(others))


@dataclass(frozen=True, kw_only=True)
class PairResult:
    """What the rounds say.

    Attributes:
        objective: What was compared, with its limits.
        rounds: The measurements.
        gain: How many times better the checked one is than the other.
        limits: Limits of the checked one, decided by intervals.
        tolerance: How much worse is taken for as good, as a share.
        verdict: Of the checked one.
    """

    objective: Objective
    rounds: Rounds
    gain: Gain
    limits: tuple[LimitCheck, ...]
    tolerance: float
    verdict: PairVerdict

    def to_json(self) -> dict[str, Any]:
        sides = {"checked": self.rounds.checked, "against": self.rounds.against}
        return {
            "verdict": self.verdict.value,
            "metric": self.objective.metric,
            "direction": self.objective.direction.value,
            "tolerance": self.tolerance,
            "gain": self.gain.to_json(),
            "limits": [check.to_json() for check in self.limits],
            **{name: [each.to_json() for each in measurements] for name, measurements in sides.items()},
        }


def judge(objective: Objective, rounds: Rounds, tolerance: float) -> PairResult:
    """Compare the two by the pairs in which both worked."""
    metric = objective.metric
    pairs = [
        (one.metrics[metric], other.metrics[metric])
        for one, other in zip(rounds.checked, rounds.against, strict=True)
        if one.ok and other.ok and metric in one.metrics and metric in other.metrics
    ]
    ones, others = [one for one, _ in pairs], [other for _, other in pairs]
    gain = paired_gain(others, ones, minimize=objective.direction is Direction.MINIMIZE)
    checks, before = (tuple(_limits(objective, rounds, measurements)) for measurements in (rounds.checked, rounds.against))
    broken = [check for check, old in zip(checks, before, strict=True) if check.is_broken and old.state is not LimitState.BROKEN]
    return PairResult(
        objective=objective,
        rounds=rounds,
        gain=gain,
        limits=checks,
        tolerance=tolerance,
        verdict=_verdict(rounds, gain, tolerance, breaks=bool(broken)),
    )


def _limits(objective: Objective, rounds: Rounds, measurements: Sequence[Measurement]) -> list[LimitCheck]:
    checks = []
    for limit in objective.limits:
        both = [[each.metrics[limit.metric] for each in side if limit.metric in each.metrics] for side in (rounds.checked, rounds.against)]
        values = [each.metrics[limit.metric] for each in measurements if limit.metric in each.metrics]
        checks.append(check_limit(limit, values, repeat_noise(both)))
    return checks


def _verdict(rounds: Rounds, gain: Gain, tolerance: float, *, breaks: bool) -> PairVerdict:
    if any(not one.ok and other.ok for one, other in zip(rounds.checked, rounds.against, strict=True)):
        return PairVerdict.FAILS
    if breaks:
        return PairVerdict.BREAKS
    if gain.low is None or gain.high is None:
        return PairVerdict.UNDECIDED
    if gain.better:
        return PairVerdict.BETTER
    if gain.high < 1.0 - tolerance:
        return PairVerdict.WORSE
    return PairVerdict.AS_GOOD if gain.low >= 1.0 - tolerance else PairVerdict.UNDECIDED


def summary(result: PairResult, checked: str, against: str) -> str:
    """The result as Markdown, for the page of a pull request."""
    metric = result.objective.metric
    lines = [
        f"### AutoScout: {result.verdict.value}",
        "",
        f"{metric} of *{checked}*: **{result.gain}** as good as *{against}*"
        f" (95 % interval, {result.gain.pairs} pairs; up to {result.tolerance:.0%} worse counts as good)",
        "",
        f"| round | {against} | {checked} |",
        "|---|---|---|",
    ]
    for number, (other, one) in enumerate(zip(result.rounds.against, result.rounds.checked, strict=True), start=1):
        lines.append(f"| {number} | {_cell(other, metric)} | {_cell(one, metric)} |")
    lines += [""] + [f"- limit {check}" for check in result.limits] if result.limits else []
    return "\n".join(lines) + "\n"


def _cell(measurement: Measurement, metric: str) -> str:
    if measurement.ok and metric in measurement.metrics:
        return show_number(measurement.metrics[metric])
    return f"{measurement.status.value}: {measurement.reason}".replace("|", "\\|")[:120]


__all__ = ["PairResult", "PairVerdict", "Rounds", "Side", "judge", "measure_in_turn", "summary"]

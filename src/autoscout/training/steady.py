"""When a run of training steps has settled: which steps to drop as warm-up, and when enough were measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Z = 1.96  # half-width of a 95 % interval of a mean, in standard errors


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How long to measure.

    Attributes:
        warm_up: Steps that never count: the first compiles, allocates and connects.
        least: Steps to measure after those.
        most: Steps after which measuring ends, settled or not.
        settled: Relative half-width of the 95 % interval of the mean step time below which measuring ends.
        enough_s: Seconds of measuring after which no further step is waited for, once there are `least`.
    """

    warm_up: int = 2
    least: int = 6
    most: int = 40
    settled: float = 0.03
    enough_s: float = 20.0

    @property
    def steps(self) -> int:
        """Steps of a run that never settles."""
        return self.warm_up + self.most


def warm_up_steps(durations: Sequence[float], least: int) -> int:
    """How many of the first steps to drop: the cut that leaves the mean of the rest best known, and at most half of them.

    This is the rule MSER of simulation output analysis: the cut d that minimises variance(rest) / number of the rest.

    Args:
        durations: Seconds of each step.
        least: Steps that are dropped in any case.
    """
    last = max(least, len(durations) // 2)
    cuts = [cut for cut in range(least, last + 1) if len(durations) - cut >= 2]
    if not cuts:
        return min(least, max(0, len(durations) - 1))
    return min(cuts, key=lambda cut: statistics.pvariance(durations[cut:]) / (len(durations) - cut))


def half_width(durations: Sequence[float]) -> float:
    """Relative half-width of the 95 % interval of the mean; infinite below three values."""
    if len(durations) < 3:
        return float("inf")
    mean = statistics.fmean(durations)
    return Z * statistics.stdev(durations) / len(durations) ** 0.5 / mean if mean > 0 else float("inf")


def enough(durations: Sequence[float], plan: Plan) -> bool:
    """Whether the steps so far say what a step takes."""
    if len(durations) >= plan.steps:
        return True
    rest = durations[warm_up_steps(durations, plan.warm_up) :]
    if len(rest) < plan.least:
        return False
    return sum(durations[plan.warm_up :]) >= plan.enough_s or half_width(rest) <= plan.settled

"""Predictions compared with measurements: how far they were off, how well they ordered, what improvement to expect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscout.common.stats import expected_improvement, normal_cdf
from autoscout.core.config import Config

MIN_RELATIVE_GAP = 0.05
"""Values closer than this share count as equal, and no simulator is assumed to be more accurate."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One prediction met by a measurement; both are losses (lower is better), None for a failure."""

    config: Config
    predicted: float | None
    measured: float | None


@dataclass(frozen=True, kw_only=True)
class Predicted:
    """What simulators say of a configuration.

    Attributes:
        loss: Before any correction; infinite when they give no number.
        chance: To fit into memory.
        runs: Whether it is expected to.
    """

    loss: float
    chance: float
    runs: bool

    def ahead(self, best: float, scale: float) -> float:
        """By which share of the best it is predicted to be better than that."""
        return (best - self.loss * scale) / (abs(best) or 1.0) if math.isfinite(best) else -math.inf

    def chance_to_win(self, best: float, scale: float, error: float) -> float:
        """Chance to be better than the best, when simulators err by this standard deviation."""
        return self.chance * float(normal_cdf(self.ahead(best, scale) / error))

    def improvement(self, best: float, scale: float, error: float) -> float:
        """Expected improvement on the best as a share of it."""
        ahead = self.ahead(best, scale)
        return self.chance * float(expected_improvement(-ahead, error, 0.0)) if math.isfinite(ahead) else 0.0


def complete(checks: Sequence[Check]) -> list[tuple[float, float]]:
    """Predicted and measured, of the checks that have both."""
    return [(check.predicted, check.measured) for check in checks if check.predicted is not None and check.measured is not None]


def scale_of(checks: Sequence[Check]) -> float:
    """Measured over predicted, the middle of the checks."""
    ratios = _ratios(complete(checks))
    return float(np.median(ratios)) if ratios else 1.0


def error_of(both: Sequence[tuple[float, float]]) -> float:
    """Mean absolute percentage error after one scale factor, which costs one degree of freedom; zero for fewer than two."""
    ratios = np.array(_ratios(both))
    if len(ratios) < 2:
        return 0.0
    errors = np.abs(np.median(ratios) / ratios - 1.0)
    return float(errors.sum() / (len(ratios) - 1))


def mape(both: Sequence[tuple[float, float]]) -> float:
    """Mean absolute percentage error, as it is; zero for none."""
    errors = [abs(predicted / measured - 1.0) for predicted, measured in both if measured]
    return float(np.mean(errors)) if errors else 0.0


def cost_slope(costs: Sequence[tuple[float, float]]) -> float:
    """By which power of the loss the cost of a profile grows, at least 0 and at most 1: a step that takes twice as long may cost twice.

    Args:
        costs: Loss and seconds of profiles.
    """
    logs = np.array([(math.log(abs(loss)), math.log(cost_s)) for loss, cost_s in costs if loss and cost_s > 0]).reshape(-1, 2)
    if len(logs) < 2 or np.ptp(logs[:, 0]) < 1e-9:
        return 0.0
    losses = logs[:, 0] - logs[:, 0].mean()
    return float(np.clip((losses @ logs[:, 1]) / (losses @ losses), 0.0, 1.0))


def pairs_of(both: Sequence[tuple[float, float]], notable: float) -> list[bool]:
    """For every two that differ notably, as predicted and as measured: whether they were predicted in the right order.

    Checks are all near the top. Among equals no simulator can rank, and of two that it calls equal it has not said which is better:
    neither counts against it.
    """
    return [
        (one[0] < other[0]) == (one[1] < other[1])
        for place, one in enumerate(both)
        for other in both[:place]
        if all(abs(mine - theirs) > notable * abs(theirs) for mine, theirs in zip(one, other, strict=True))
    ]


def _ratios(both: Sequence[tuple[float, float]]) -> list[float]:
    return [measured / predicted for predicted, measured in both if predicted and measured / predicted > 0]

"""How sure a gain on past weeks is: what their order makes of it, and how much it rests on single days."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autoscout.common.stats import student_quantile

COVERAGE = 0.9
"""Share of outcomes that an interval of a gain is meant to hold."""


def jackknife(gains: Sequence[float]) -> float:
    """Standard error of a gain (its logarithm) by what it is without each part of its jobs."""
    logs = np.log(np.asarray(gains, np.float64))
    return math.sqrt((len(logs) - 1) * float(np.var(logs))) if len(logs) > 1 else 0.0


def mean_interval(gains: Sequence[float], error: float = 0.0) -> tuple[float, float]:
    """Where the mean gain lies, nine times in ten (logarithms, Student's t); of a single gain nothing can be said.

    Args:
        gains: One of each of several weeks.
        error: Standard error of what all of them share.
    """
    if len(gains) < 2:
        return 0.0, math.inf
    logs = np.log(np.asarray(gains, np.float64))
    spread = math.hypot(float(np.std(logs, ddof=1)) / math.sqrt(len(logs)), error)
    reach = student_quantile(0.5 + COVERAGE / 2, len(logs) - 1) * spread
    return float(np.exp(np.mean(logs) - reach)), float(np.exp(np.mean(logs) + reach))


__all__ = ["COVERAGE", "jackknife", "mean_interval"]

"""How many failures a search can afford.

Improvement fades exponentially where much is known and the chance of success does not, so that in the end only failures would look
worth trying. So failures have a budget: some to learn from, then a share of what random candidates would cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscout.learning.answers import Answer
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.surrogate import Surrogate
from autoscout.space.encode import Floats, Rows


@dataclass(frozen=True)
class Risk:
    """What failures may still cost.

    Attributes:
        rate: Share of random candidates that fail.
        spent: Whether the budget of failures is spent.
    """

    rate: float
    spent: bool

    def values(self, model: Surrogate, mean: Floats, deviation: Floats, chance: Floats) -> Floats:
        """Expected improvement, weighed by the chance of success; what may well fail comes last once the budget of failures is spent."""
        values = weighed(model, mean, deviation, chance)
        safe = chance >= max(tuning.MIN_SUCCESS_CHANCE, 1.0 - self.rate)
        return np.where(safe, values, 1e-120 * values) if self.spent and safe.any() else values


def weighed(model: Surrogate, mean: Floats, deviation: Floats, chance: Floats) -> Floats:
    """Expected improvement times a power of the chance of success: early failures teach a boundary, late ones only cost."""
    values: Floats = model.improvement(mean, deviation) * chance ** (1.0 + len(model.rows) / tuning.SUCCESS_EXPONENT_SCALE)
    return values


def risk(model: Surrogate, answers: Sequence[Answer], failed: int, step: int, sample: Rows | None) -> Risk:
    """The rate of failures, and whether the budget is spent.

    Args:
        model: Knows the chance of success, and whether it takes failures for such.
        answers: What is learnt from, oldest first.
        failed: How many configurations failed in all.
        step: Steps taken.
        sample: Random rows whose chances give the rate; None: the first trials do, which were not chosen to work.
    """
    if sample is None:
        first = answers[: tuning.EARLY_TRIALS]
        rate = (sum(answer.failed for answer in first) + 0.5) / (len(first) + 1.0)
    else:
        rate = max(1e-3, model.failing(sample) * (1.0 - (1.0 - tuning.SIMULATED_RATE_FACTOR) * model.believed))
    count = failed if model.failures else 0
    return Risk(rate, count > 1.0 + rate * (tuning.INITIAL_FAILURE_BUDGET * rate + tuning.LONG_RUN_FAILURE_SHARE * step))

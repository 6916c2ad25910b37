"""How many times better one configuration is than another, with an interval, from few and noisy repeats."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscout.common.stats import standard_error, student_quantile

MIN_PAIRS = 3
"""Below this many pairs no interval is stated: with two, the t interval is 12.7 standard errors wide on each side."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How many times better one configuration is than another (1.25 = 25 % better), whatever the direction.

    Attributes:
        ratio: The point estimate, the median of the pairs; None when it cannot be stated (nothing to compare, or a reference of zero).
        low: Lower end of the interval; None when there are not enough pairs.
        high: Upper end of the interval.
        pairs: How many pairs of measurements it is based on.
        confidence: Coverage of the interval, over all `compared` intervals together.
        compared: How many finalists were compared with the default at the same time.
        method: How the interval was made, for the person who wants to check it.
    """

    ratio: float | None
    low: float | None = None
    high: float | None = None
    pairs: int = 0
    confidence: float = 0.95
    compared: int = 1
    method: str = ""

    @property
    def enough(self) -> bool:
        """Whether there is an interval at all."""
        return self.low is not None and self.high is not None

    @property
    def better(self) -> bool:
        """Whether the whole interval lies above 1."""
        return self.low is not None and self.low > 1.0 + 1e-9

    @property
    def worse(self) -> bool:
        """Whether the whole interval lies below 1."""
        return self.high is not None and self.high < 1.0 - 1e-9

    def __str__(self) -> str:
        if self.ratio is None:
            return "not known"
        if self.low is None or self.high is None:
            return f"{self.ratio:.3f}x (not enough repeats for an interval)"
        return f"{self.ratio:.3f}x [{self.low:.3f}, {self.high:.3f}]"

    def to_json(self) -> dict[str, Any]:
        return {
            "ratio": self.ratio,
            "low": self.low,
            "high": self.high,
            "pairs": self.pairs,
            "confidence": self.confidence,
            "compared": self.compared,
            "method": self.method,
        }


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Standard deviation of one measurement (of its logarithm) and the degrees of freedom it was estimated with."""

    deviation: float
    freedom: int


def pooled_noise(rows: Sequence[Sequence[float]]) -> Noise | None:
    """The noise of configurations (rows) that were measured in the same rounds (columns): what neither of the two explains.

    None for fewer than two rows or columns, or where a value is not positive.
    """
    table = np.asarray(rows, dtype=float)
    if table.ndim != 2 or min(table.shape) < 2 or not np.all(table > 0):
        return None
    logs = np.log(table)
    rest = logs - logs.mean(axis=0, keepdims=True) - logs.mean(axis=1, keepdims=True) + logs.mean()
    freedom = (table.shape[0] - 1) * (table.shape[1] - 1)
    return Noise(deviation=math.sqrt(float(np.sum(rest**2)) / freedom), freedom=freedom)


def paired_gain(
    reference: Sequence[float],
    value: Sequence[float],
    *,
    minimize: bool,
    confidence: float = 0.95,
    compared: int = 1,
    noise: Noise | None = None,
) -> Gain:
    """The gain of `value` over `reference`, both measured in the same rounds, with its t interval.

    Works on the logarithm of the ratio within each round, so that a slow phase of the machine, which hits both members
    of a pair, cancels out. The estimate is the median of the rounds, because other work on the machine hits single
    measurements hard and only ever slows them down; the interval is Student's, so that such a round widens it.
    Where a value is zero or negative, ratios make no sense: differences relative to the mean of the reference take their place.

    Args:
        reference: One value per round.
        value: The other configuration's value in the same rounds.
        minimize: Whether smaller is better.
        confidence: Wanted coverage.
        compared: Number of intervals made at once. The best of several finalists looks better than it is; dividing
            the error probability by their number (Bonferroni) keeps the coverage for whichever is picked afterwards.
        noise: Of single measurements, where more is known of it than these pairs tell; only with positive values.
    """
    one, other = np.asarray(reference, dtype=float), np.asarray(value, dtype=float)
    if len(one) != len(other):
        raise ValueError(f"pairs need two values each, not {len(one)} and {len(other)}")
    if len(one) == 0:
        return Gain(ratio=None, confidence=confidence, compared=compared)
    sign = -1.0 if minimize else 1.0
    logs = bool(np.all(one > 0) and np.all(other > 0))
    scale = 1.0 if logs else abs(float(one.mean()))
    if scale == 0.0:
        return Gain(ratio=None, pairs=len(one), confidence=confidence, compared=compared, method="reference of zero")
    steps = sign * (np.log(other) - np.log(one) if logs else (other - one) / scale)
    centre, middle = float(steps.mean()), float(np.median(steps))
    method = "paired t on log ratios" if logs else "paired t on differences relative to the mean default"
    if compared > 1:
        method += f", Bonferroni over {compared} finalists"
    if len(steps) < MIN_PAIRS:
        if minimize and not logs and min(one) > 0.0 and min(other) == 0.0:  # nothing is any number of times as little as something
            return Gain(ratio=None, pairs=len(steps), confidence=confidence, compared=compared, method="value of zero")
        return Gain(ratio=_ratio(middle, logs), pairs=len(steps), confidence=confidence, compared=compared, method="")
    error, freedom = standard_error(steps), len(steps) - 1
    if noise is not None and logs:
        error, freedom = noise.deviation * math.sqrt(2.0 / len(steps)), noise.freedom
        method += ", noise pooled over the configurations of the round"
    reach = student_quantile(1.0 - (1.0 - confidence) / (2.0 * compared), freedom) * error
    return Gain(
        ratio=_ratio(min(max(middle, centre - reach), centre + reach), logs),
        low=_ratio(centre - reach, logs),
        high=_ratio(centre + reach, logs),
        pairs=len(steps),
        confidence=confidence,
        compared=compared,
        method=method,
    )


def _ratio(step: float, logs: bool) -> float:
    return math.exp(min(step, 700.0)) if logs else 1.0 + step


__all__ = ["MIN_PAIRS", "Gain", "Noise", "paired_gain", "pooled_noise"]

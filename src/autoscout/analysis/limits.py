"""Is a limit kept? Decided by the interval of the metric over its measurements, never by their middle: kept, broken, or not told apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any

import numpy as np

from autoscout.analysis.gain import Noise
from autoscout.common.stats import student_quantile, variance_ratio_quantile
from autoscout.common.text import show_number
from autoscout.core.task import Limit

MIN_RUNS = 3
"""Below this many measurements their own scatter says too little: the noise of all configurations takes its place."""
CONFIDENCE = 0.95
"""Of the interval of a limited metric, and of the test whether a configuration scatters as the others do."""


class LimitState(StrEnum):
    """What the measurements say about a limit."""

    KEPT = "kept"
    BROKEN = "broken"
    UNSURE = "not told apart"
    MISSING = "not measured"


@dataclass(frozen=True, kw_only=True)
class LimitCheck:
    """A limit and what was measured.

    Attributes:
        limit: What was to be kept.
        value: Median of the metric; None where it was not reported.
        low: Lower end of its interval; None where there is none.
        high: Upper end.
        state: Kept or broken where the whole interval is on one side of the limit.
    """

    limit: Limit
    value: float | None
    low: float | None = None
    high: float | None = None
    state: LimitState

    @property
    def holds(self) -> bool:
        """Whether the median is on the right side, whatever the interval says."""
        return self.value is not None and self.limit.allows(self.value)

    @property
    def excess(self) -> float:
        """How far the median is beyond the limit, as a share of it (of 1 where it is zero); zero where it is not."""
        if self.value is None or self.holds:
            return 0.0
        return abs(self.value - self.limit.value) / (abs(self.limit.value) or 1.0)

    @property
    def is_kept(self) -> bool:
        """Whether it is kept beyond doubt."""
        return self.state is LimitState.KEPT

    @property
    def is_broken(self) -> bool:
        """Whether it is broken beyond doubt; a metric that was not reported breaks it."""
        return self.state in (LimitState.BROKEN, LimitState.MISSING)

    @property
    def word(self) -> str:
        """The state, for people."""
        return "BROKEN" if self.state is LimitState.BROKEN else self.state.value

    @property
    def figures(self) -> str:
        """The value with its interval."""
        interval = f" [{show_number(self.low)}, {show_number(self.high)}]" if self.low != self.high else ""
        return f"{show_number(self.value)}{interval}"

    def __str__(self) -> str:
        return f"{self.limit} {self.word} ({self.figures})"

    def to_json(self) -> dict[str, Any]:
        ends = {"low": self.low, "high": self.high}
        return {"limit": str(self.limit), "value": self.value, "holds": self.holds, "state": self.state.value, **ends}


def check_limit(limit: Limit, values: Sequence[float], noise: Noise | None = None, *, exact: bool = False) -> LimitCheck:
    """What these measurements of one configuration say about a limit.

    The interval is Student's, of the logarithms where all are positive. Its width is that of the noise of all configurations: five values
    say little of how much they scatter, and of two that are equally near to a limit the one that looks calm by chance would keep it. With
    three or more that scatter surely more than the others, or less, it is that of their own noise, and likewise where no other is known.
    With fewer and nothing known, a limit is not told apart. Equal values are exact.

    Args:
        limit: To be kept.
        values: Of its metric.
        noise: Of the logarithm of a single measurement, from all configurations with this one among them.
        exact: Every answer is the same each time.
    """
    if not values:
        return LimitCheck(limit=limit, value=None, state=LimitState.MISSING)
    middle = float(median(values))
    if exact:
        return LimitCheck(limit=limit, value=middle, state=LimitState.KEPT if limit.allows(middle) else LimitState.BROKEN)
    ends = _interval(values, noise)
    if ends is None:
        return LimitCheck(limit=limit, value=middle, state=LimitState.UNSURE)
    allowed = {limit.allows(end) for end in (*ends, middle)}
    state = LimitState.UNSURE if len(allowed) > 1 else LimitState.KEPT if allowed == {True} else LimitState.BROKEN
    return LimitCheck(limit=limit, value=middle, low=ends[0], high=ends[1], state=state)


def _interval(values: Sequence[float], noise: Noise | None) -> tuple[float, float] | None:
    numbers = np.asarray(values, dtype=float)
    is_positive, count = bool(np.all(numbers > 0)), len(values)
    steps = np.log(numbers) if is_positive else numbers
    own = Noise(deviation=float(np.std(steps, ddof=1)), freedom=count - 1) if count >= MIN_RUNS else None
    noise = _shared(own, noise) if is_positive else own
    if noise is None:
        return None
    error, freedom = noise.deviation / math.sqrt(count), noise.freedom
    if error <= 1e-12 * max(1.0, float(np.max(np.abs(steps)))):  # equal but for rounding: a limit at that very value is kept
        return float(numbers.min()), float(numbers.max())
    centre, reach = float(steps.mean()), student_quantile(0.5 + CONFIDENCE / 2.0, freedom) * error
    low, high = centre - reach, centre + reach
    return (math.exp(min(low, 700.0)), math.exp(min(high, 700.0))) if is_positive else (low, high)


def _shared(own: Noise | None, noise: Noise | None) -> Noise | None:
    """The noise of all configurations; a configuration's own where that is surely another one, or all there is."""
    if own is None or noise is None:
        return own or noise
    freedom = noise.freedom - own.freedom
    squares = noise.deviation**2 * noise.freedom - own.deviation**2 * own.freedom
    if freedom < 1 or squares <= 0.0:
        return own
    least, most = (variance_ratio_quantile(share, own.freedom, freedom) for share in (1.0 - CONFIDENCE, CONFIDENCE))
    return noise if least <= own.deviation**2 * freedom / squares <= most else own


def repeat_noise(groups: Iterable[Sequence[float]]) -> Noise | None:
    """The noise of one measurement, from groups of measurements of the same configuration; None where nothing was measured twice."""
    squares, freedom = 0.0, 0
    for values in groups:
        if len(values) > 1 and min(values) > 0:
            logs = np.log(np.asarray(values, dtype=float))
            squares += float(np.sum((logs - logs.mean()) ** 2))
            freedom += len(values) - 1
    return Noise(deviation=math.sqrt(squares / freedom), freedom=freedom) if freedom else None


__all__ = ["MIN_RUNS", "LimitCheck", "LimitState", "check_limit", "repeat_noise"]

"""Statistics that several packages need: distributions, expected improvement, errors of predictions, folds.

scipy is imported where it is used: it takes longer to import than all of `autoscout`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

FLOOR = 1e-60
"""Expected improvement is at least FLOOR * exp(min(best - mean, 0)): where it underflows to zero, the better mean still decides."""


def normal_cdf(z: Vector | float) -> Vector:
    """Probability that a standard normal variable is below `z`."""
    from scipy.special import ndtr

    probability: Vector = ndtr(z)
    return probability


def normal_pdf(z: Vector | float) -> Vector:
    """Density of the standard normal distribution at `z`."""
    density: Vector = np.exp(-0.5 * np.square(z)) / math.sqrt(2.0 * math.pi)
    return density


def expected_improvement(mean: Vector | float, deviation: Vector | float, best: float) -> Vector:
    """Mean of max(best - value, 0) for a normal value: how far below `best` it is expected to come.

    Args:
        mean: Predicted values; lower is better.
        deviation: Their standard deviations, above zero.
        best: The lowest value known.
    """
    gap = np.subtract(best, mean)
    z = gap / deviation
    improvement: Vector = np.maximum(gap * normal_cdf(z) + deviation * normal_pdf(z), FLOOR * np.exp(np.minimum(gap, 0.0)))
    return improvement


def student_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution with `freedom` degrees of freedom."""
    from scipy.special import stdtrit

    if not 0.0 < probability < 1.0 or freedom < 1:
        raise ValueError(f"a t quantile needs 0 < probability < 1 and freedom >= 1, not {probability!r}, {freedom!r}")
    return float(stdtrit(freedom, probability))


def variance_ratio_quantile(probability: float, freedom: int, other: int) -> float:
    """The quantile of Fisher's F distribution: of a variance with `freedom` degrees of freedom over an equal one with `other`."""
    from scipy.special import fdtri

    return float(fdtri(freedom, other, probability))


def standard_error(values: Sequence[float] | Vector) -> float:
    """Standard error of the mean; infinite for fewer than two values."""
    array = np.asarray(values, dtype=float)
    return float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.inf


def variation(values: Sequence[float]) -> float | None:
    """Standard deviation over mean (coefficient of variation); None for fewer than two values or a mean of zero."""
    if len(values) < 2:
        return None
    centre = float(np.mean(values))
    return float(np.std(values, ddof=1)) / abs(centre) if centre else None


def mape(predicted: Vector, measured: Vector) -> float:
    """Mean absolute percentage error, as a share (0.1 = 10 %)."""
    return float(np.mean(np.abs(predicted / measured - 1.0)))


def kendall(one: Vector, other: Vector) -> float:
    """Kendall's tau-b; 0 where one side does not vary."""
    upper = np.triu_indices(len(one), 1)
    first, second = np.sign(one[:, None] - one[None, :])[upper], np.sign(other[:, None] - other[None, :])[upper]
    scale = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / scale) if scale > 0 else 0.0


def grouped(groups: Sequence[object]) -> list[NDArray[np.intp]]:
    """Row numbers of each group, in order of first appearance."""
    rows_by_group: dict[object, list[int]] = {}
    for row, group in enumerate(groups):
        rows_by_group.setdefault(group, []).append(row)
    return [np.asarray(rows, dtype=np.intp) for rows in rows_by_group.values()]


def folds(groups: Sequence[object], count: int) -> list[NDArray[np.bool_]]:
    """Test masks for grouped cross-validation: no group is ever on both sides."""
    members = grouped(groups)
    masks = [np.zeros(len(groups), dtype=bool) for _ in range(min(count, len(members)))]
    for number, rows in enumerate(sorted(members, key=len, reverse=True)):
        masks[number % len(masks)][rows] = True
    return masks


def spread_of(errors: NDArray[np.float64]) -> float:
    """Standard deviation of log errors with long tails: sqrt(q68 * q95 / 2), the quantiles of their absolute values.

    >>> round(spread_of(np.linspace(-1.0, 1.0, 1001)), 2)
    0.57
    """
    inner, outer = np.quantile(np.abs(errors), [0.683, 0.954])
    return float(np.round(np.sqrt(inner * outer / 2.0), 3))


__all__ = [
    "expected_improvement",
    "folds",
    "grouped",
    "kendall",
    "mape",
    "normal_cdf",
    "normal_pdf",
    "spread_of",
    "standard_error",
    "student_quantile",
    "variance_ratio_quantile",
    "variation",
]

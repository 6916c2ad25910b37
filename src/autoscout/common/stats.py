"""How good predictions are: error, rank agreement, and what following them would cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def mape(predicted: Vector, measured: Vector) -> float:
    """Mean absolute percentage error, as a share (0.1 = 10 %)."""
    return float(np.mean(np.abs(predicted / measured - 1.0)))


def ranks(values: Vector) -> Vector:
    """Ranks from 0, ties share their mean."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts) - 1
    return np.asarray((last - (counts - 1) / 2.0)[inverse], dtype=np.float64)


def spearman(one: Vector, other: Vector) -> float:
    """Rank correlation; 0 where one side does not vary."""
    first, second = ranks(one), ranks(other)
    first, second = first - first.mean(), second - second.mean()
    scale = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / scale) if scale > 0 else 0.0


def kendall(one: Vector, other: Vector) -> float:
    """Kendall's tau-b; 0 where one side does not vary."""
    upper = np.triu_indices(len(one), 1)
    first, second = np.sign(one[:, None] - one[None, :])[upper], np.sign(other[:, None] - other[None, :])[upper]
    scale = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / scale) if scale > 0 else 0.0


def regret(predicted: Vector, measured: Vector, top: int = 1) -> float:
    """How much worse (share) the best of the predicted `top` is than the best there is; lower values are better."""
    chosen = np.argsort(predicted, kind="stable")[:top]
    return float(measured[chosen].min() / measured.min() - 1.0)


def grouped(groups: Sequence[object]) -> list[NDArray[np.intp]]:
    """Row numbers of each group, in order of first appearance."""
    found: dict[object, list[int]] = {}
    for row, group in enumerate(groups):
        found.setdefault(group, []).append(row)
    return [np.asarray(rows, dtype=np.intp) for rows in found.values()]


def folds(groups: Sequence[object], count: int) -> list[NDArray[np.bool_]]:
    """Test masks for grouped cross-validation: no group is ever on both sides."""
    members = grouped(groups)
    masks = [np.zeros(len(groups), dtype=bool) for _ in range(min(count, len(members)))]
    for number, rows in enumerate(sorted(members, key=len, reverse=True)):
        masks[number % len(masks)][rows] = True
    return masks


__all__ = ["folds", "grouped", "kendall", "mape", "ranks", "regret", "spearman"]

"""Several losses at once: which points nothing beats in every one, how much they cover together, and one loss made of several.

Losses are rows, one column per goal, lower is better; a point that failed has infinite losses and is on no front.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SUM_SHARE = 0.05
"""Share of the plain weighted sum in `chebyshev`: it tells points apart that are equal in the worst goal."""


def dominates(one: Floats, other: Floats) -> bool:
    """Whether the losses `one` are at least as good in every goal and better in one."""
    return bool((one <= other).all() and (one < other).any())


def on_front(losses: Floats) -> NDArray[np.bool_]:
    """Which rows no other row dominates; of equal rows the first."""
    mask: NDArray[np.bool_] = np.asarray(np.isfinite(losses).all(axis=1))
    for row in np.flatnonzero(mask):
        no_worse = (losses <= losses[row]).all(axis=1)
        better = no_worse & (losses < losses[row]).any(axis=1)
        equal = no_worse & (losses == losses[row]).all(axis=1)
        mask[row] = not better.any() and not equal[:row].any()
    return mask


def hypervolume(losses: Floats, reference: Floats) -> float:
    """The volume between the reference and the points that are better than it in every goal: exact, for few points."""
    inside = losses[(losses < reference).all(axis=1)] if len(losses) else losses
    if not len(inside):
        return 0.0
    if losses.shape[1] == 1:
        return float(reference[0] - inside.min())
    if losses.shape[1] == 2:
        return _area(inside, reference)
    order = np.argsort(inside[:, -1], kind="stable")
    ends = np.append(inside[order[1:], -1], reference[-1])
    return sum(
        float(end - inside[row, -1]) * hypervolume(inside[order[: place + 1], :-1], reference[:-1])
        for place, (row, end) in enumerate(zip(order, ends, strict=True))
        if end > inside[row, -1]
    )


def _area(inside: Floats, reference: Floats) -> float:
    order = np.lexsort((inside[:, 1], inside[:, 0]))
    lowest = np.minimum.accumulate(np.append(reference[1], inside[order, 1]))
    return float(((reference[0] - inside[order, 0]) * (lowest[:-1] - lowest[1:])).sum())


def comparable(losses: Floats) -> Floats:
    """Columns as shares of the way from their best to their worst finite value, on a scale of ratios where signs allow."""
    shares = np.full(losses.shape, np.inf)
    worked = np.isfinite(losses).all(axis=1)
    for column in range(losses.shape[1] if worked.any() else 0):
        values = losses[worked, column]
        if (values > 0).all() or (values < 0).all():
            values = np.sign(values) * np.log(np.abs(values))
        span = float(values.max() - values.min())
        shares[worked, column] = (values - values.min()) / span if span > 0 else 0.0
    return shares


def choose(losses: Floats, count: int) -> list[int]:
    """Up to `count` rows of the front that cover most together: the best in the first goal, then whatever adds most."""
    shares = comparable(losses)
    candidates = [int(row) for row in np.flatnonzero(on_front(losses))]
    reference = np.full(losses.shape[1], 1.1)
    chosen: list[int] = []
    while candidates and len(chosen) < count:
        if not chosen:
            best = min(candidates, key=lambda row: tuple(shares[row]))
        else:
            best = max(candidates, key=lambda row: hypervolume(shares[[*chosen, row]], reference))
        chosen.append(best)
        candidates.remove(best)
    return chosen


def chebyshev(losses: Floats, weights: Floats) -> Floats:
    """One loss per row: the worst goal by these weights, and a little of the sum of all; infinite where a row failed."""
    weighed = comparable(losses) * weights
    worked = np.isfinite(weighed).all(axis=1)
    worst = np.full(len(losses), np.inf)
    worst[worked] = weighed[worked].max(axis=1) + SUM_SHARE * weighed[worked].sum(axis=1)
    return worst


__all__ = ["chebyshev", "choose", "comparable", "dominates", "hypervolume", "on_front"]

"""Tree search over the sparse knobs (paper section 3.2).

A node is a partial configuration; its statistics are those of the told trials that extend it. They are looked up, never kept: a
result told once is known to the trees of all orderings, a configuration reached by two orders is one configuration, and the order of
telling cannot matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autoscout.space.encode import Codes, Floats

Ordering = tuple[str, ...]

EXPLORATION = 4.0
"""The constant of PUCT."""
SHARPNESS = 3.0
"""Power of the acquisition in PUCT's prior."""
TOLERANCE = 0.25
"""Structures are only explored for their own sake where they promise this share of the best acquisition."""


def rewards(losses: Floats) -> Floats:
    """Normalised ranks: 1 for the best, falling evenly to 0 for the worst; ties share, all failures get 0."""
    if not len(losses):
        return losses
    worked = np.isfinite(losses)
    found = np.zeros(len(losses))
    values = losses[worked]
    if len(values):
        order = np.sort(values)
        middle = 0.5 * (np.searchsorted(order, values, "left") + np.searchsorted(order, values, "right") - 1)
        span = max(1.0, len(losses) - 1.0)
        found[worked] = 1.0 - middle / span
    return found


def guided(codes: Codes, acquisition: Floats, order: NDArray[np.int64], told: Codes, reward: Floats) -> int:
    """PUCT over candidates: the largest acquisition below a child is its prior; returns the row of the best candidate reached.

    Args:
        codes: Candidates.
        acquisition: Of each candidate, positive.
        order: Columns of the sparse knobs in the order of decision.
        told: Rows of trials that worked.
        reward: Of each of them, 0 to 1.
    """
    rows, below = np.flatnonzero(acquisition >= TOLERANCE * acquisition.max()), np.arange(len(told))
    prior_of = (acquisition / acquisition.max()) ** SHARPNESS
    for column in order:
        values = np.unique(codes[rows, column])
        chosen = int(values[0])
        if len(values) > 1:
            chosen = _puct(codes[rows, column], prior_of[rows], told[below, column], reward[below], values)
        rows = rows[codes[rows, column] == chosen]
        below = below[told[below, column] == chosen]
    return int(rows[np.argmax(acquisition[rows])])


def _puct(column: Codes, prior_of: Floats, told: Codes, reward: Floats, values: Codes) -> int:
    prior = np.array([prior_of[column == value].max() for value in values])
    prior = prior / prior.sum()
    visits = np.array([(told == value).sum() for value in values])
    quality = np.array([reward[told == value].max() if count else 0.5 for value, count in zip(values, visits, strict=True)])
    return int(values[np.argmax(quality + EXPLORATION * prior * np.sqrt(visits.sum() + 1.0) / (1.0 + visits))])

"""Which of many windows a study judges on: the busiest, a quiet one, and the one that is most unlike both."""

from __future__ import annotations

import math

import numpy as np

from autoscout.traffic.description import Traffic, TrafficWindow

JUDGED = 3  # windows: each costs a measurement of its own in every trial
QUARTILES = (0.25, 0.5, 0.75, 0.95)


def mark_typical(traffic: Traffic, most: int = JUDGED) -> Traffic:
    """The traffic with at most that number of windows to judge on, and the others held out.

    The busiest is where limits break first. Then, one after another, comes the window whose lengths are farthest from all that are
    taken: traffic that a choice for the others says least about.
    """
    windows = list(traffic.windows)
    if len(windows) <= 1:
        return traffic
    order = [max(range(len(windows)), key=lambda row: _work(windows[row]))]
    while len(order) < min(most, len(windows)):
        rest = [row for row in range(len(windows)) if row not in order]
        order.append(max(rest, key=lambda row: min(distance(windows[row], windows[one]) for one in order)))
    marked = tuple(window.model_copy(update={"held_out": row not in order}) for row, window in enumerate(windows))
    return traffic.model_copy(update={"windows": marked})


def distance(one: TrafficWindow, other: TrafficWindow) -> float:
    """How far apart the lengths of two windows are: the mean logarithm of the ratios of their means and quantiles.

    >>> from autoscout.traffic.description import TrafficWindow
    >>> short, long = (TrafficWindow(name="x", requests=1.0, pairs=((size, 10),)) for size in (100, 200))
    >>> round(distance(short, long), 2), distance(long, long)
    (0.35, 0.0)
    """
    parts = []
    for mine, theirs in zip(_shape(one), _shape(other), strict=True):
        parts.append(float(np.mean(np.abs(np.log(mine / theirs)))))
    return float(np.mean(parts))


def _shape(window: TrafficWindow) -> tuple[np.ndarray, np.ndarray]:
    """Mean and quantiles of prompts, and of answers."""
    if window.pairs:
        columns = np.array(window.pairs, dtype=float).T
        rows = [[*np.quantile(column, QUARTILES).tolist(), float(column.mean())] for column in columns]
    else:
        assert window.inputs is not None
        assert window.outputs is not None
        rows = [[*map(one.at, QUARTILES), one.mean] for one in (window.inputs, window.outputs)]
    first, second = (np.maximum(1.0, np.array(row, dtype=float)) for row in rows)
    return first, second


def _work(window: TrafficWindow) -> float:
    """Tokens a second; of unknown rate, tokens of a request."""
    tokens = window.mean_input + 4.0 * window.mean_output  # a token of an answer costs about as much as several of a prompt
    return tokens * (window.rate if window.rate is not None else 1.0) if math.isfinite(tokens) else 0.0


__all__ = ["JUDGED", "distance", "mark_typical"]

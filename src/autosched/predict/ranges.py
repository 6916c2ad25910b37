"""Ranges of durations, and durations drawn from the past inside a range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

EDGES_S = (300.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0)
"""Where one range ends and the next begins: 5 and 30 minutes, 1, 2 and 4 hours."""
RANGES = len(EDGES_S) + 1
NAMES = ("under 5 min", "5 to 30 min", "30 to 60 min", "1 to 2 h", "2 to 4 h", "4 h and more")


def range_of(duration_s: Vector) -> NDArray[np.int64]:
    """The range of each duration."""
    return np.searchsorted(EDGES_S, duration_s, side="right").astype(np.int64)


def possible(executed_s: Vector) -> NDArray[np.bool_]:
    """Which ranges are left for jobs that have run for these seconds, one row per job."""
    return np.arange(RANGES)[None, :] >= range_of(executed_s)[:, None]


def draw_duration_s(past_s: Vector, which: NDArray[np.int64], executed_s: Vector, rng: np.random.Generator) -> Vector:
    """A whole duration for each job: a past one from its range, longer than what the job has run already.

    Args:
        past_s: Durations of past jobs, sorted.
        which: The range of each job.
        executed_s: Seconds each has run.
        rng: Draws.

    Where no past job of the range ran longer, any longer one is taken; where none did at all, the job runs as long again, times a
    draw between 0 and 2: what has run long is likely to run on as long.
    """
    edges = np.asarray((0.0, *EDGES_S, np.inf))
    share = rng.random(len(which))
    begin = np.searchsorted(past_s, np.maximum(edges[which], np.nextafter(executed_s, np.inf)), side="left")
    end = np.searchsorted(past_s, edges[which + 1], side="left")
    end = np.where(end > begin, end, len(past_s))
    index = begin + np.floor(share * np.maximum(end - begin, 0)).astype(np.int64)
    inside = index < end
    longer = np.maximum(executed_s, 1.0) * (1.0 + 2.0 * share)
    if not len(past_s):
        return longer
    return np.where(inside, past_s[np.minimum(index, len(past_s) - 1)], longer)

"""The log of a run: one row per job and node whenever GPUs change hands. Grows as needed."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.records import LOG_COLUMNS, Allocations, Log


@jit
def new_log(logging: bool) -> Log:
    """An empty log; without space when nobody wants it."""
    return np.zeros((1024 if logging else 1, LOG_COLUMNS)), np.zeros(1, np.int64)


@jit
def append(log: Log, time: float, j: int, node: int, gpus: float) -> Log:
    """Add a row."""
    rows, filled = log
    if filled[0] == rows.shape[0]:
        larger = np.zeros((2 * rows.shape[0], LOG_COLUMNS))
        larger[: rows.shape[0]] = rows
        rows = larger
    at = filled[0]
    rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3] = time, j, node, gpus
    filled[0] += 1
    return rows, filled


@jit
def note(log: Log, time: float, j: int, gpus: float, allocations: Allocations, sign: float) -> Log:
    """Write down what job `j` holds now: sign 1 after it was given, -1 before it is taken away."""
    held = allocations.held
    if held[0, j] >= 0 or held[1, j] < 0:
        return append(log, time, j, held[0, j], sign * gpus)
    link = held[1, j]
    while link >= 0:
        log = append(log, time, j, allocations.link_node[link], sign * allocations.link_gpus[link])
        link = allocations.link_next[link]
    return log

"""Order by remaining work (SRTF)."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Table, Vector
from autoscout.sched.kernel.columns import GPUS, LISTED, PENDING, ROUND, RUNNING, STATUS
from autoscout.sched.kernel.jit import rank, wake
from autoscout.sched.kernel.ranked import COMPETES
from autoscout.sched.kernel.state import remaining_s

BY_GPU_TIME, LISTS = 0, 1


@rank
def rank_by_remaining(
    now: float,
    active: Index,
    n: int,
    job: Table,
    cluster: Vector,
    params: Vector,
    memory: Vector,
    key: Vector,
    tie: Vector,
    flag: Vector,
) -> None:
    """Least remaining time (or GPU time) first.

    With LISTS, equals stand as in Lucid's artifact: pending before running, each in order of entry. Without, they keep their order.
    """
    for i in range(n):
        j = active[i]
        key[i] = remaining_s(job, j, now) * (job[GPUS, j] if params[BY_GPU_TIME] > 0 else 1.0)
        tie[i] = 0.0
        if params[LISTS] > 0:
            tie[i] = job[LISTED, j] + (1e15 if job[STATUS, j] == RUNNING else 0.0)
        flag[i] = COMPETES


@wake
def wake_by_remaining(now: float, active: Index, n: int, job: Table, cluster: Vector, params: Vector, memory: Vector) -> float:
    """When a running job will overtake a pending one that was chosen but found no place.

    Only then can the choice change without an event: the quota such a job held falls to jobs behind it. Chosen jobs are
    found by walking the order again, in which `active` still stands.
    """
    quota = 0.0
    for i in range(n):
        if job[STATUS, active[i]] == RUNNING:
            quota += job[GPUS, active[i]]
    quota += cluster[1]
    due = np.inf
    behind = np.inf  # least key of a chosen pending job so far
    speed = 1.0
    for i in range(n):
        j = active[i]
        weight = job[GPUS, j] if params[BY_GPU_TIME] > 0 else 1.0
        value = remaining_s(job, j, now) * weight
        if job[STATUS, j] == PENDING:
            if job[GPUS, j] <= quota:
                quota -= job[GPUS, j]
                behind = value
        else:
            quota -= job[GPUS, j]
            speed = weight
            if behind < np.inf:
                due = min(due, now + (value - behind) / speed)
    if due < np.inf:
        due = max(due, now) + (1.0 if cluster[ROUND] > 0 else 1e-6)
    return due

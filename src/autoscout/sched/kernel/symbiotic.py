"""Order by attained service as the SymbioticLab Tiresias simulator does it, habits included.

Its lists are kept in the order of `active` and in QUEUE: inside a queue running jobs stand in front of pending ones, a job that
sinks goes to the very end of the next queue, one queue per event at most, and the next look at a job is planned for
(limit - seconds run) // GPUs from now, which is late for jobs on several GPUs.
"""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Table, Vector
from autoscout.sched.kernel.attained import BY_SERVICE, PROMOTE, QUEUES, THRESHOLDS
from autoscout.sched.kernel.columns import BASE, EXECUTED, GPUS, PENDING, QUEUE, RUNNING, SINCE, STATUS, WAITED
from autoscout.sched.kernel.jit import rank, wake
from autoscout.sched.kernel.ranked import COMPETES
from autoscout.sched.kernel.state import executed_s


@rank
def rank_like_symbiotic(
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
    """Queue by queue, in the order of its lists."""
    for i in range(n):
        j = active[i]
        flag[i] = COMPETES
        tie[i] = float(i) + (0.0 if job[STATUS, j] == RUNNING else n)
        queue = int(job[QUEUE, j])
        ran = executed_s(job, j, now) - job[BASE, j]
        if job[STATUS, j] == RUNNING and queue < params[QUEUES] - 1:
            value = ran * job[GPUS, j] if params[BY_SERVICE] > 0 else ran
            if value >= params[THRESHOLDS + queue]:
                queue += 1
                tie[i] = 4.0 * n + j
        elif job[STATUS, j] == PENDING and queue > 0 and params[PROMOTE] > 0 and ran > 0:
            waited = job[WAITED, j] + now - job[SINCE, j]
            if waited >= np.floor(ran * params[PROMOTE]):
                job[BASE, j] = job[EXECUTED, j]
                job[WAITED, j] = -(now - job[SINCE, j])
                queue = 0
                tie[i] = 4.0 * n + j
        job[QUEUE, j] = queue
        key[i] = queue


@wake
def wake_like_symbiotic(now: float, active: Index, n: int, job: Table, cluster: Vector, params: Vector, memory: Vector) -> float:
    """The earliest planned look at any job."""
    due = np.inf
    for i in range(n):
        j = active[i]
        queue = int(job[QUEUE, j])
        ran = executed_s(job, j, now) - job[BASE, j]
        if job[STATUS, j] == RUNNING:
            if queue < params[QUEUES] - 1:
                ahead = params[THRESHOLDS + queue] - ran
                if params[BY_SERVICE] > 0:
                    ahead = np.floor(ahead / job[GPUS, j])
                due = min(due, now + ahead)
        elif params[PROMOTE] > 0 and queue > 0 and ran > 0:
            ahead = np.floor(ran * params[PROMOTE] - (job[WAITED, j] + now - job[SINCE, j]))
            if ahead > 0:
                due = min(due, now + ahead)
    return due

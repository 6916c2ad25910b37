"""The life of one job inside the general loop: what it has done, its start, its preemption, its return from a snapshot."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Ledger, Table, Vector
from autoscout.sched.kernel.columns import (
    COST,
    EXECUTED,
    FINISH,
    FREE_GPUS,
    GPUS,
    GRANTS,
    HOME,
    LAG,
    LISTED,
    LOGGING,
    PENDING,
    PLACEMENT,
    PREEMPTIONS,
    RATE,
    REMAINDER_NEXT,
    REMAINING,
    RUNNING,
    SINCE,
    SLOW_MORE,
    SLOW_TWO,
    START,
    STATUS,
    WAITED,
)
from autoscout.sched.kernel.jit import jit
from autoscout.sched.kernel.log import Log, note
from autoscout.sched.kernel.place import place, stay

# Places of the loop's own counters.
ACTIVE_JOBS, ARRIVED, LISTED_SO_FAR, DECISIONS = 0, 1, 2, 3


@jit
def executed_s(job: Table, j: int, now: float) -> float:
    """Seconds job `j` has run by `now`."""
    if job[STATUS, j] != RUNNING:
        return job[EXECUTED, j]
    return job[EXECUTED, j] + min(now - job[SINCE, j], job[REMAINING, j] / job[RATE, j])


@jit
def remaining_s(job: Table, j: int, now: float) -> float:
    """Seconds of work job `j` still has at `now`."""
    if job[STATUS, j] != RUNNING:
        return job[REMAINING, j]
    return max(0.0, job[REMAINING, j] - (now - job[SINCE, j]) * job[RATE, j])


@jit
def start(job: Table, j: int, now: float, lag: float, count: Index) -> None:
    """Job `j` has just been placed."""
    if job[START, j] < 0:
        job[START, j] = now
    job[WAITED, j] += now - job[SINCE, j]
    job[STATUS, j] = RUNNING
    job[SINCE, j] = now
    job[GRANTS, j] = 0.0
    job[FINISH, j] = now + job[REMAINING, j] / job[RATE, j] + lag
    job[LISTED, j] = count[LISTED_SO_FAR]
    count[LISTED_SO_FAR] += 1


@jit
def stop(job: Table, j: int, now: float, checkpoint_s: float, count: Index) -> None:
    """Job `j` loses its GPUs before it is done."""
    ran = executed_s(job, j, now)
    left = remaining_s(job, j, now)
    if checkpoint_s > 0:
        done = job[REMAINING, j] - left
        left += done % checkpoint_s
    job[EXECUTED, j] = ran
    job[REMAINING, j] = left + job[COST, j]
    job[STATUS, j] = PENDING
    job[SINCE, j] = now
    job[FINISH, j] = np.inf
    job[PREEMPTIONS, j] += 1
    job[LISTED, j] = count[LISTED_SO_FAR]
    count[LISTED_SO_FAR] += 1


@jit
def resume_running(
    job: Table, active: Index, now: float, node: Table, option: Vector, ledger: Ledger, count: Index, cluster: Vector, log: Log
) -> Log:
    """Jobs of a snapshot that were running get GPUs before anything else happens, where they were if that is known.

    Those that do not fit wait.
    """
    for at_home in (True, False):
        for j in range(job.shape[1]):
            if job[STATUS, j] != RUNNING or job[FINISH, j] < np.inf or (job[HOME, j] >= 0) != at_home:
                continue
            active[count[ACTIVE_JOBS]] = j
            count[ACTIVE_JOBS] += 1
            job[STATUS, j] = PENDING
            fits = job[GPUS, j] <= cluster[FREE_GPUS] + 1e-9
            if fits and not (at_home and stay(job, j, node, option[PLACEMENT], ledger)):
                fits = place(
                    job, j, node, option[PLACEMENT], False, option[REMAINDER_NEXT] > 0, option[SLOW_TWO], option[SLOW_MORE], ledger
                )
            if fits:
                cluster[FREE_GPUS] -= job[GPUS, j]
                job[SINCE, j] = now
                start(job, j, now, option[LAG], count)
                if option[LOGGING] > 0:
                    log = note(log, now, j, job[GPUS, j], ledger, 1.0)
    return log

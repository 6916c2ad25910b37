"""Order by finish-time fairness with leases (Themis)."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Table, Vector
from autoscout.sched.kernel.columns import (
    CAPACITY,
    DESERVED,
    ELIGIBLE,
    GPUS,
    GRANTS,
    LISTED,
    PENDING,
    ROUND,
    RUNNING,
    SINCE,
    SKEW,
    STATUS,
    SUBMIT,
)
from autoscout.sched.kernel.jit import jit, rank, wake
from autoscout.sched.kernel.ranked import COMPETES, PROTECTED
from autoscout.sched.kernel.state import executed_s, remaining_s

# Places of the parameters.
LEASE = 0
BY_SERVICE = 1  # 1: the lease is in GPU-seconds
ELIGIBLE_SHARE = 2  # share of the candidates, the worst treated first, that may be granted GPUs
SPREAD_ABOVE = 3  # a candidate with a rho (or, with SPREAD_BY_WAIT, a wait in seconds) above it may be spread over nodes
SPREAD_BY_WAIT = 4
TITAN = 5  # 1: its formula

# Places of the memory.
LAST, PRESENT_BEFORE = 0, 1


@jit
def _lease_end(job: Table, j: int, params: Vector) -> float:
    length = params[LEASE] / job[GPUS, j] if params[BY_SERVICE] > 0 else params[LEASE]
    return job[SINCE, j] + (job[GRANTS, j] + 1.0) * length


@jit
def _titan_rho(job: Table, j: int, now: float, capacity: float, running: float) -> float:
    """The formula of Titan's Themis, in which the number of jobs is twice the number of running ones."""
    deserved = job[DESERVED, j]
    if deserved == 0:
        return 1.0
    gpus = job[GPUS, j]
    share = max(1.0, np.floor(min(capacity / (2.0 * running + 1e-3), gpus)))
    left = remaining_s(job, j, now)
    ran = executed_s(job, j, now)
    stayed = now - job[SUBMIT, j]
    served = ran * gpus
    alone = ran * (deserved / (served + 1e-3)) + (stayed - ran) + left * gpus / share
    together = stayed + left * (served / (deserved + 1e-3))
    return together / alone


@jit
def rho(job: Table, j: int, now: float, capacity: float, present: float) -> float:
    """Expected time in the shared cluster over the time with a fair share throughout."""
    gpus = job[GPUS, j]
    stayed = now - job[SUBMIT, j]
    left = remaining_s(job, j, now)
    done = executed_s(job, j, now)
    rate_now = min(capacity / present, gpus) / gpus
    rate_so_far = job[DESERVED, j] / (gpus * stayed) if stayed > 0 else rate_now
    ideal = left / rate_now + (done / rate_so_far if rate_so_far > 0 else done)
    return (stayed + left) / ideal if ideal > 0 else 1.0


@rank
def rank_by_fairness(
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
    """The worst treated first; jobs inside their lease take no part."""
    running = 0.0
    for i in range(n):
        if job[STATUS, active[i]] == RUNNING:
            running += 1.0
    before = memory[PRESENT_BEFORE] if params[TITAN] == 0 and memory[PRESENT_BEFORE] > 0 else n + 1e-3
    share = cluster[CAPACITY] / before
    for i in range(n):
        j = active[i]
        job[DESERVED, j] += min(share, job[GPUS, j]) * (now - max(memory[LAST], job[SUBMIT, j]))
        pending = job[STATUS, j] == PENDING
        tie[i] = job[LISTED, j] + (0.0 if pending else 1e15)
        flag[i] = COMPETES if pending or now >= _lease_end(job, j, params) - 1e-6 else PROTECTED
        capacity = cluster[CAPACITY]
        value = _titan_rho(job, j, now, capacity, running) if params[TITAN] > 0 else rho(job, j, now, capacity, float(n))
        key[i] = 1.0 / value
        if params[SPREAD_ABOVE] > 0:
            judged = now - job[SINCE, j] if params[SPREAD_BY_WAIT] > 0 else value
            job[SKEW, j] = 0.0 if judged > params[SPREAD_ABOVE] else 1.0
    memory[LAST], memory[PRESENT_BEFORE] = now, n
    cluster[ELIGIBLE] = params[ELIGIBLE_SHARE]


@wake
def wake_by_fairness(now: float, active: Index, n: int, job: Table, cluster: Vector, params: Vector, memory: Vector) -> float:
    """While somebody waits every round, since fairness never stands still; without rounds when the next lease ends.

    Titan adds up what jobs deserve round by round, so that with its formula no round may be left out.
    """
    due = np.inf
    waiting = params[TITAN] > 0 and n > 0
    for i in range(n):
        j = active[i]
        if job[STATUS, j] == RUNNING:
            due = min(due, max(_lease_end(job, j, params), now + 1e-3))
        elif job[STATUS, j] == PENDING:
            waiting = True
    if not waiting:
        return np.inf
    return now + cluster[ROUND] if cluster[ROUND] > 0 else due

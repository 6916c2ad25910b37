"""Order by attained service in priority queues (Tiresias)."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Table, Vector
from autoscout.sched.kernel.columns import BASE, EXECUTED, GPUS, LISTED, PENDING, QUEUE, RUNNING, SINCE, STATUS, WAITED
from autoscout.sched.kernel.jit import jit, rank, wake
from autoscout.sched.kernel.ranked import COMPETES
from autoscout.sched.kernel.state import executed_s

# Places of the parameters; thresholds follow.
BY_SERVICE = 0  # 1: seconds x GPUs; 0: seconds
QUEUES = 1
STRICTLY_ABOVE = 2  # 1: a job leaves its queue only above the threshold (Lucid's artifact)
STARVE_S = 3  # promote after waiting this long; 0: never
PROMOTE = 4  # promote after waiting this many times the time run; 0: never
LISTS = 5  # 1: equals stand as in Lucid's artifact, running before pending
GITTINS = 6  # 1: inside a queue by Gittins index
QUANTUM = 7  # service quantum of the index in the last queue
THRESHOLDS = 8

_ALMOST = 1e-6  # seconds; a threshold is a time computed by division


@jit
def attained(job: Table, j: int, now: float, params: Vector) -> float:
    """Service since the last promotion, in the unit of the thresholds."""
    ran = executed_s(job, j, now) - job[BASE, j]
    return ran * job[GPUS, j] if params[BY_SERVICE] > 0 else ran


@jit
def queue_of(value: float, params: Vector) -> int:
    """The queue for an attained service."""
    queue = 0
    while queue < params[QUEUES] - 1:
        limit = params[THRESHOLDS + queue]
        if value < limit - _ALMOST or (params[STRICTLY_ABOVE] > 0 and value <= limit):
            break
        queue += 1
    return queue


@jit
def _waiting_s(job: Table, j: int, now: float) -> float:
    return now - job[SINCE, j]


@jit
def _starves(job: Table, j: int, now: float, params: Vector) -> bool:
    """Whether a pending job below the first queue has waited too long, by either rule."""
    waited = _waiting_s(job, j, now)
    if params[STARVE_S] > 0 and waited >= params[STARVE_S] - _ALMOST:
        return True
    ran = job[EXECUTED, j] - job[BASE, j]
    return params[PROMOTE] > 0 and ran > 0 and job[WAITED, j] + waited >= params[PROMOTE] * ran - _ALMOST


@jit
def gittins(value: float, quantum: float, memory: Vector) -> float:
    """P(S <= a + D | S > a) / E[min(S - a, D) | S > a] on a sorted sample; memory: size, the sample, its prefix sums."""
    size = int(memory[0])
    sample = memory[1 : 1 + size]
    sums = memory[1 + size : 2 + 2 * size]
    low = np.searchsorted(sample, value, side="right")
    if low >= size:
        return 0.0
    high = np.searchsorted(sample, value + quantum, side="right")
    ending = high - low
    spent = sums[high] - sums[low] - ending * value + (size - high) * quantum
    return float(ending / spent) if spent > 0 else 0.0


@rank
def rank_by_attained(
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
    """Queue by queue; inside a queue by arrival, or by Gittins index."""
    for i in range(n):
        j = active[i]
        value = attained(job, j, now, params)
        queue = queue_of(value, params)
        if queue > 0 and job[STATUS, j] == PENDING and _starves(job, j, now, params):
            job[BASE, j] = job[EXECUTED, j]
            job[WAITED, j] = -_waiting_s(job, j, now)
            value = 0.0
            queue = 0
        job[QUEUE, j] = queue
        flag[i] = COMPETES
        tie[i] = float(j)
        if params[GITTINS] > 0:
            ahead = params[THRESHOLDS + queue] - value if queue < params[QUEUES] - 1 else params[QUANTUM]
            key[i] = queue - min(0.5, gittins(value, ahead, memory) * 1e-3)
        else:
            key[i] = queue
            if params[LISTS] > 0:  # by second of arrival, then running before pending, each in order of entry
                key[i] = queue * 1e12 + job[0, j]
                tie[i] = job[LISTED, j] + (0.0 if job[STATUS, j] == RUNNING else 1e15)


@wake
def wake_by_attained(now: float, active: Index, n: int, job: Table, cluster: Vector, params: Vector, memory: Vector) -> float:
    """The next crossing of a threshold by a running job, or promotion of a pending one."""
    due = np.inf
    for i in range(n):
        j = active[i]
        if job[STATUS, j] == RUNNING:
            value = attained(job, j, now, params)
            queue = queue_of(value, params)
            if queue < params[QUEUES] - 1:
                ahead = params[THRESHOLDS + queue] - value
                if params[BY_SERVICE] > 0:
                    ahead /= job[GPUS, j]
                due = min(due, now + max(ahead, _ALMOST))
        elif job[STATUS, j] == PENDING and queue_of(attained(job, j, now, params), params) > 0:
            if params[STARVE_S] > 0:
                due = min(due, max(job[SINCE, j] + params[STARVE_S], now + _ALMOST))
            ran = job[EXECUTED, j] - job[BASE, j]
            if params[PROMOTE] > 0 and ran > 0:
                due = min(due, max(job[SINCE, j] + params[PROMOTE] * ran - job[WAITED, j], now + _ALMOST))
    return due

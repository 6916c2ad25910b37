"""Order by attained service in priority queues (Tiresias)."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit, rank, wake
from autosched.kernel.records import PENDING, RECENT, RUNNING, PolicyView, Records, Vector
from autosched.kernel.state import executed_by

# Places of the parameters; thresholds follow, and after them the sample of past services, if one is given.
BY_SERVICE = 0  # 1: seconds x GPUs; 0: seconds
QUEUES = 1
STARVE_S = 2  # promote after waiting this long; 0: never
PROMOTE = 3  # promote after waiting this many times the time run; 0: never
GITTINS = 4  # 1: inside a queue by Gittins index
QUANTUM = 5  # service quantum of the index in the last queue
SAMPLE = 6  # where the sample begins; 0: none is given, and services are learnt from the jobs that end
THRESHOLDS = 7

# Places of the memory, for services that are learnt: how many jobs had ended when they were last looked at, then a sample.
LOOKED, LEARNT = 0, 1
LOOK_EVERY = 128  # ends after which the services are looked at again

THRESHOLD_MARGIN_S = 1e-6  # a threshold is reached this many seconds early: the moment is computed by division


@jit
def attained(job: Records, j: int, now: float, params: Vector) -> float:
    """Service since the last promotion, in the unit of the thresholds."""
    ran = executed_by(job, j, now) - job[j].base_s
    return ran * job[j].gpus if params[BY_SERVICE] > 0 else ran


@jit
def queue_of(value: float, params: Vector) -> int:
    """The queue for an attained service."""
    queue = 0
    while queue < params[QUEUES] - 1 and value >= params[THRESHOLDS + queue] - THRESHOLD_MARGIN_S:
        queue += 1
    return queue


@jit
def _is_starving(job: Records, j: int, now: float, params: Vector) -> bool:
    """Whether a pending job below the first queue has waited too long, by either rule."""
    waited = now - job[j].since_s
    if params[STARVE_S] > 0 and waited >= params[STARVE_S] - THRESHOLD_MARGIN_S:
        return True
    ran = job[j].executed_s - job[j].base_s
    return params[PROMOTE] > 0 and ran > 0 and job[j].waited_s + waited >= params[PROMOTE] * ran - THRESHOLD_MARGIN_S


@jit
def gittins(value: float, quantum: float, past: Vector) -> float:
    """P(S <= a + D | S > a) / E[min(S - a, D) | S > a] on a sorted sample; `past`: size, the sample, its prefix sums."""
    size = int(past[0])
    sample = past[1 : 1 + size]
    sums = past[1 + size : 2 + 2 * size]
    low = np.searchsorted(sample, value, side="right")
    if low >= size:
        return 0.0
    high = np.searchsorted(sample, value + quantum, side="right")
    ending = high - low
    spent = sums[high] - sums[low] - ending * value + (size - high) * quantum
    return float(ending / spent) if spent > 0 else 0.0


@jit
def _learn(ended: int, recent: Vector, memory: Vector) -> None:
    """Make the services of the latest jobs that ended the sample, now and then."""
    if ended < memory[LOOKED] + LOOK_EVERY and not (memory[LEARNT] == 0 and ended > memory[LOOKED]):
        return
    memory[LOOKED] = ended
    size = min(ended, RECENT)
    sample = np.sort(recent[:size])
    past = memory[LEARNT:]
    past[0] = size
    past[1 : 1 + size] = sample
    past[1 + size] = 0.0
    for i in range(size):
        past[2 + size + i] = past[1 + size + i] + sample[i]


@rank
def rank_by_attained(view: PolicyView) -> None:
    """Queue by queue; inside a queue by arrival, or by Gittins index."""
    job, active, key, memory = view.job, view.active, view.key, view.memory
    now, params = view.now, view.params
    past = memory
    if params[GITTINS] > 0:
        if params[SAMPLE] > 0:
            past = params[int(params[SAMPLE]) :]
        else:
            _learn(view.cluster.ended, view.recent, memory)
            past = memory[LEARNT:]
    for i in range(len(active)):
        j = active[i]
        value = attained(job, j, now, params)
        queue = queue_of(value, params)
        if queue > 0 and job[j].status == PENDING and _is_starving(job, j, now, params):
            job[j].base_s = job[j].executed_s
            job[j].waited_s = -(now - job[j].since_s)
            view.cluster.promotions += 1
            value = 0.0
            queue = 0
        job[j].queue = queue
        key[i] = queue
        if params[GITTINS] > 0:
            ahead = params[THRESHOLDS + queue] - value if queue < params[QUEUES] - 1 else params[QUANTUM]
            key[i] = queue - min(0.5, gittins(value, ahead, past) * 1e-3)


@wake
def wake_by_attained(view: PolicyView) -> float:
    """The next crossing of a threshold by a running job, or promotion of a pending one."""
    job, now, params = view.job, view.now, view.params
    due = np.inf
    for j in view.active:
        if job[j].status == RUNNING:
            value = attained(job, j, now, params)
            queue = queue_of(value, params)
            if queue < params[QUEUES] - 1:
                ahead = params[THRESHOLDS + queue] - value
                if params[BY_SERVICE] > 0:
                    ahead /= job[j].gpus
                due = min(due, now + max(ahead, THRESHOLD_MARGIN_S))
        elif job[j].status == PENDING and queue_of(attained(job, j, now, params), params) > 0:
            if params[STARVE_S] > 0:
                due = min(due, max(job[j].since_s + params[STARVE_S], now + THRESHOLD_MARGIN_S))
            ran = job[j].executed_s - job[j].base_s
            if params[PROMOTE] > 0 and ran > 0:
                due = min(due, max(job[j].since_s + params[PROMOTE] * ran - job[j].waited_s, now + THRESHOLD_MARGIN_S))
    return due

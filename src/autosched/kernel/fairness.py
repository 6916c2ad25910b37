"""Order by finish-time fairness with leases (Themis)."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit, rank, wake
from autosched.kernel.records import PENDING, PROTECTED, RUNNING, PolicyView, Records, Vector
from autosched.kernel.state import executed_by, remaining_at

# Places of the parameters.
LEASE = 0
BY_SERVICE = 1  # 1: the lease is in GPU-seconds
ELIGIBLE_SHARE = 2  # share of the candidates, the worst treated first, that may be granted GPUs
SPREAD_ABOVE = 3  # a candidate with a rho (or, with SPREAD_BY_WAIT, a wait in seconds) above it may be spread over nodes
SPREAD_BY_WAIT = 4

# Places of the memory.
LAST, PRESENT_BEFORE = 0, 1


@jit
def lease_end(job: Records, j: int, params: Vector) -> float:
    """When the lease of a running job ends."""
    length = params[LEASE] / job[j].gpus if params[BY_SERVICE] > 0 else params[LEASE]
    return job[j].since_s + (job[j].grants + 1.0) * length


@jit
def rho(job: Records, j: int, now: float, capacity: float, present: float) -> float:
    """Expected time in the shared cluster over the time with a fair share throughout."""
    gpus = job[j].gpus
    stayed = now - job[j].submit_s
    remaining_s = remaining_at(job, j, now)
    done = executed_by(job, j, now)
    rate_now = min(capacity / present, gpus) / gpus
    rate_so_far = job[j].deserved / (gpus * stayed) if stayed > 0 else rate_now
    ideal = remaining_s / rate_now + (done / rate_so_far if rate_so_far > 0 else done)
    return (stayed + remaining_s) / ideal if ideal > 0 else 1.0


@jit
def order_within_leases(view: PolicyView) -> None:
    """From the fairness of each job in `key` to the order: the worst treated first, pending before running, leases protected."""
    job, active, params, key, tie, flag = view.job, view.active, view.params, view.key, view.tie, view.flag
    for i in range(len(active)):
        j = active[i]
        pending = job[j].status == PENDING
        if params[SPREAD_ABOVE] > 0:
            unfairness = view.now - job[j].since_s if params[SPREAD_BY_WAIT] > 0 else key[i]
            job[j].skew = 0.0 if unfairness > params[SPREAD_ABOVE] else 1.0
        key[i] = 1.0 / key[i]
        tie[i] = job[j].listed + (0.0 if pending else 1e15)
        if pending:
            job[j].queue = 0.0
        elif view.now < lease_end(job, j, params) - 1e-6:
            flag[i] = PROTECTED
        elif job[j].queue <= job[j].grants:  # this lease has just ended; while it waits for a decision it counts once
            job[j].queue = job[j].grants + 1.0
            view.cluster.expiries += 1
    view.cluster.eligible = params[ELIGIBLE_SHARE]


@rank
def rank_by_fairness(view: PolicyView) -> None:
    """The worst treated first; jobs inside their lease take no part."""
    job, active, key, memory = view.job, view.active, view.key, view.memory
    now, capacity = view.now, view.cluster.capacity
    n = len(active)
    before = memory[PRESENT_BEFORE] if memory[PRESENT_BEFORE] > 0 else n + 1e-3
    share = capacity / before
    for i in range(n):
        j = active[i]
        job[j].deserved += min(share, job[j].gpus) * (now - max(memory[LAST], job[j].submit_s))
        key[i] = rho(job, j, now, capacity, float(n))
    memory[LAST], memory[PRESENT_BEFORE] = now, n
    order_within_leases(view)


@wake
def wake_by_fairness(view: PolicyView) -> float:
    """While somebody waits every round, since fairness never stops changing; without rounds when the next lease ends."""
    job, params = view.job, view.params
    due = np.inf
    waiting = False
    for j in view.active:
        if job[j].status == RUNNING:
            due = min(due, max(lease_end(job, j, params), view.now + 1e-3))
        elif job[j].status == PENDING:
            waiting = True
    if not waiting:
        return np.inf
    return view.now + view.cluster.round_s if view.cluster.round_s > 0 else due

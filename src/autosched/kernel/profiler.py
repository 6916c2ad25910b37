"""Lucid's profiler: new jobs first run for a short while on a few nodes of their own, the smallest first."""

from __future__ import annotations

import numpy as np

from autosched.kernel.fixed import heaps, pop, push
from autosched.kernel.jit import jit
from autosched.kernel.log import append, new_log
from autosched.kernel.place import give_back, place
from autosched.kernel.records import ENDED, PENDING, RUNNING, Allocations, Index, Log, Record, Records, Vector, record
from autosched.kernel.shelves import set_free

PROFILER = record(
    "gpu_limit",  # larger jobs skip the profiler
    "time_limit_s",
    "elastic",  # 1: borrow one node while many wait
    "grow_at",  # more waiting jobs than this: borrow
    "shrink_at",  # fewer waiting than this: give back, if ...
    "calm_gpus",  # ... no more GPUs than this are expected per ten minutes
    "clock_zero_s",  # moment from which checks are counted
    "grow_every_s",
    "shrink_every_s",
    "tick_s",  # a borrowed node can be used this much later
)

AHEAD = 5  # forecasts looked at


@jit
def expected(now: float, at: Vector, values: Vector) -> float:
    """Mean of the next forecasts after `now`; NaN when there are none."""
    first = np.searchsorted(at, now, side="right")
    others = at.shape[0] - first
    if others <= 0:
        return np.nan
    until = first + AHEAD if others > AHEAD else at.shape[0]
    return float(values[first:until].mean())


@jit
def next_check(now: float, every_s: float, zero: float) -> float:
    """The first check at or after `now`."""
    return float(zero + np.ceil((now - zero) / every_s) * every_s)


@jit
def _scaling(now: float, waiting: int, grown: bool, idle: bool, option: Record, forecast_at: Vector, forecast_gpus: Vector) -> float:
    """1: borrow a node now; -1: give it back; 0: leave it."""
    if option.elastic > 0 and not grown and waiting > option.grow_at:
        return 1.0 if next_check(now, option.grow_every_s, option.clock_zero_s) == now else 0.0
    if grown and waiting < option.shrink_at and idle:
        hopeful = expected(now, forecast_at, forecast_gpus) <= option.calm_gpus or forecast_at.shape[0] == 0
        if hopeful and next_check(now, option.shrink_every_s, option.clock_zero_s) == now:
            return -1.0
    return 0.0


@jit
def run_profiler(
    job: Records,
    node: Records,
    clusters: Records,
    active: Index,
    allocations: Allocations,
    options: Records,
    settings: Records,
    forecast_at: Vector,
    forecast_gpus: Vector,
) -> Log:
    """Run until everybody has left the profiler, or the time is up; returns when the borrowed node came and went.

    A job that leaves is ENDED; `start_s` and `end_s` are the moments it entered and left, `remaining_s` is the longest it might have
    stayed. One that is too large leaves when it arrives and has no `start_s`. The last of `node` is the one that may be borrowed.
    """
    option, rules, cluster = settings[0], options[0], clusters[0]
    jobs = len(job)
    key, finish = np.empty((1, jobs)), np.full((1, jobs), np.inf)
    for j in range(jobs):
        key[0, j] = job[j].gpus
    queue, running = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    busy, waiting = heaps(job, active, cluster.present, running, finish, queue, key)
    moves = new_log(True)
    extra = len(node) - 1
    wait_s = max(option.tick_s, 1e-6)
    while True:
        while cluster.arrived < jobs and job[cluster.arrived].gpus > option.gpu_limit and job[cluster.arrived].submit_s < rules.until_s:
            job[cluster.arrived].status, job[cluster.arrived].end_s = ENDED, job[cluster.arrived].submit_s
            cluster.arrived += 1
        due = min(cluster.usable_s, cluster.woken_s)
        if cluster.arrived < jobs:
            due = min(due, job[cluster.arrived].submit_s)
        if busy > 0:
            due = min(due, finish[0, running[0]])
        idle = node[extra].free == node[extra].gpus
        if option.elastic > 0 and cluster.grown == 0 and waiting > option.grow_at:
            due = min(due, next_check(cluster.now_s + wait_s, option.grow_every_s, option.clock_zero_s))
        if cluster.grown > 0 and waiting < option.shrink_at and idle and (cluster.arrived < jobs or busy > 0):
            due = min(due, next_check(cluster.now_s + wait_s, option.shrink_every_s, option.clock_zero_s))
        if due == np.inf or due >= rules.until_s:
            break
        now = cluster.now_s = due
        cluster.usable_s = cluster.woken_s = np.inf
        while busy > 0 and finish[0, running[0]] <= now:
            j = running[0]
            busy = pop(running, busy, finish)
            job[j].status, job[j].end_s = ENDED, finish[0, j]
            cluster.free_gpus += job[j].gpus
            give_back(job, j, node, rules.placement, allocations)
        while cluster.arrived < jobs and job[cluster.arrived].submit_s <= now:
            j = cluster.arrived
            cluster.arrived += 1
            if job[j].gpus <= option.gpu_limit:
                job[j].status = PENDING
                waiting = push(queue, waiting, key, j)
            else:
                job[j].status, job[j].end_s = ENDED, job[j].submit_s
        while waiting > 0:
            j = queue[0]
            if job[j].gpus > cluster.free_gpus + 1e-9 or not place(job, j, node, rules, True, allocations):
                break
            waiting = pop(queue, waiting, key)
            cluster.free_gpus -= job[j].gpus
            job[j].status, job[j].start_s, job[j].remaining_s = RUNNING, now, option.time_limit_s
            job[j].finish_s = finish[0, j] = now + min(job[j].work_s, option.time_limit_s)
            busy = push(running, busy, finish, j)
        idle = node[extra].free == node[extra].gpus
        change = _scaling(now, waiting, cluster.grown > 0, idle, option, forecast_at, forecast_gpus)
        if change != 0.0:
            cluster.grown = 1 if change > 0 else 0
            set_free(node, extra, node[extra].gpus if change > 0 else 0.0, allocations.shelves)
            cluster.free_gpus += change * node[extra].gpus
            cluster.usable_s = now + option.tick_s if change > 0 else np.inf
            moves = append(moves, now, 0, extra, change)
    active[:busy], active[busy : busy + waiting] = running[:busy], queue[:waiting]
    cluster.present, cluster.pending = busy + waiting, waiting
    return moves

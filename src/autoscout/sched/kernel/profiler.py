"""Lucid's profiler: new jobs first run for a short while on a few nodes of their own, the smallest first."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.fixed import pop, push
from autoscout.sched.kernel.jit import jit
from autoscout.sched.kernel.place import give_back, new_ledger, place
from autoscout.sched.kernel.records import Record, Records, Table, Vector, record

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
    """Mean of the next forecasts after `now`; not-a-number when there are none."""
    first = np.searchsorted(at, now, side="right")
    left = at.shape[0] - first
    if left <= 0:
        return np.nan
    until = first + AHEAD if left > AHEAD else at.shape[0]
    return float(values[first:until].mean())


@jit
def next_check(now: float, every_s: float, zero: float) -> float:
    """The first check at or after `now`."""
    return float(zero + np.ceil((now - zero) / every_s) * every_s)


@jit
def _with_room(rows: Table, used: int) -> Table:
    if used < rows.shape[0]:
        return rows
    larger = np.zeros((2 * used, 2))
    larger[:used] = rows
    return larger


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
    job: Records, node: Records, placing: Records, options: Records, change_at: Vector, forecast_at: Vector, forecast_gpus: Vector
) -> tuple[Vector, Vector, Vector, Table]:
    """When each job entered and left the profiler (-1: it never did), how long it might stay, how the borrowed node came and went.

    The last of `node` is the one that may be borrowed, with nothing free. `placing` holds one record of `OPTIONS` for placement. Row i of
    `options` holds from `change_at[i]`.
    """
    option = options[0]
    rules = placing[0]
    row = 0
    jobs = len(job)
    allowed = np.zeros(jobs)
    entered, left = np.full(jobs, -1.0), np.full(jobs, -1.0)
    scaling = np.zeros((16, 2))
    scalings = 0
    key = np.empty((1, jobs))
    for j in range(jobs):
        key[0, j] = job[j].gpus
    finish = np.full((1, jobs), np.inf)
    queue, running = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    extra = len(node) - 1
    ledger = new_ledger(jobs, node)
    free = node["free"].sum()
    waiting = busy = arrived = 0
    grown = False
    usable = np.inf
    now = -1.0
    wait_s = max(option.tick_s, 1e-6)
    while True:
        due = usable
        while row + 1 == change_at.shape[0] and arrived < jobs and job[arrived].gpus > option.gpu_limit:
            arrived += 1  # nobody will ever look at it
        if arrived < jobs:
            due = min(due, job[arrived].submit_s)
        if busy > 0:
            due = min(due, finish[0, running[0]])
        calm = grown and waiting < option.shrink_at and node[extra].free == node[extra].gpus
        crowded = option.elastic > 0 and not grown and waiting > option.grow_at
        if crowded:
            due = min(due, next_check(now + wait_s, option.grow_every_s, option.clock_zero_s))
        if calm and (arrived < jobs or busy > 0):
            due = min(due, next_check(now + wait_s, option.shrink_every_s, option.clock_zero_s))
        if due == np.inf:
            break
        now = due
        while row + 1 < change_at.shape[0] and change_at[row + 1] <= now:
            row += 1
            option = options[row]
        usable = np.inf
        while busy > 0 and finish[0, running[0]] <= now:
            j = running[0]
            busy = pop(running, busy, finish)
            free += job[j].gpus
            give_back(job, j, node, rules.placement, ledger)
        while arrived < jobs and job[arrived].submit_s <= now:
            if job[arrived].gpus <= option.gpu_limit:
                waiting = push(queue, waiting, key, arrived)
            arrived += 1
        while waiting > 0:
            j = queue[0]
            if job[j].gpus > free or not place(job, j, node, rules, True, ledger):
                break
            waiting = pop(queue, waiting, key)
            free -= job[j].gpus
            entered[j] = now
            allowed[j] = option.time_limit_s
            left[j] = finish[0, j] = now + min(job[j].work_s, allowed[j])
            busy = push(running, busy, finish, j)
        change = _scaling(now, waiting, grown, node[extra].free == node[extra].gpus, option, forecast_at, forecast_gpus)
        if change != 0.0:
            grown = change > 0
            node[extra].free = node[extra].gpus if grown else 0.0
            free += change * node[extra].gpus
            usable = now + option.tick_s if grown else np.inf
            scaling = _with_room(scaling, scalings)
            scaling[scalings, 0], scaling[scalings, 1] = now, change
            scalings += 1
    return entered, left, allowed, scaling[:scalings]

"""Lucid's profiler: new jobs first run for a short while on a few nodes of their own, the smallest first."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Table, Vector
from autoscout.sched.kernel.columns import FREE, GPUS, NODE_ROWS, PLACE_CONSOLIDATED, SIZE, SPEED, SUBMIT, TYPE, WORK
from autoscout.sched.kernel.fixed import pop, push
from autoscout.sched.kernel.jit import jit
from autoscout.sched.kernel.place import give_back, new_ledger, place

# Places of the profiler's options.
NODES = 0
NODE_GPUS = 1
GPU_LIMIT = 2  # larger jobs skip the profiler
TIME_LIMIT_S = 3
ELASTIC = 4  # 1: borrow one node while many wait
GROW_AT = 5  # more waiting jobs than this: borrow
SHRINK_AT = 6  # fewer waiting than this: give back, if ...
CALM_GPUS = 7  # ... no more GPUs than this are expected per ten minutes
CLOCK_ZERO = 8  # moment from which checks are counted
GROW_EVERY_S = 9
SHRINK_EVERY_S = 10
TICK_S = 11  # a borrowed node can be used this much later
PROFILER_PLACES = 12

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
def _nodes(option: Vector) -> Table:
    count = int(option[NODES])
    node = np.zeros((NODE_ROWS, count + 1))
    node[SIZE] = option[NODE_GPUS]
    node[FREE, :count] = option[NODE_GPUS]
    node[SPEED] = 1.0
    node[TYPE] = 0.0
    return node


@jit
def _with_room(rows: Table, used: int) -> Table:
    if used < rows.shape[0]:
        return rows
    larger = np.zeros((2 * used, 2))
    larger[:used] = rows
    return larger


@jit
def _scaling(now: float, waiting: int, grown: bool, idle: bool, option: Vector, forecast_at: Vector, forecast_gpus: Vector) -> float:
    """1: borrow a node now; -1: give it back; 0: leave it."""
    if option[ELASTIC] > 0 and not grown and waiting > option[GROW_AT]:
        return 1.0 if next_check(now, option[GROW_EVERY_S], option[CLOCK_ZERO]) == now else 0.0
    if grown and waiting < option[SHRINK_AT] and idle:
        hopeful = expected(now, forecast_at, forecast_gpus) <= option[CALM_GPUS] or forecast_at.shape[0] == 0
        if hopeful and next_check(now, option[SHRINK_EVERY_S], option[CLOCK_ZERO]) == now:
            return -1.0
    return 0.0


@jit
def run_profiler(
    job: Table, options: Table, change_at: Vector, forecast_at: Vector, forecast_gpus: Vector
) -> tuple[Vector, Vector, Vector, Table]:
    """When each job entered and left the profiler (-1: it never did), how long it might stay, how the borrowed node came and went.

    Works on a job table of the whole cluster and leaves it as it was. Of the options, one row for each moment of `change_at`, all
    may change in flight but the nodes.
    """
    option = options[0]
    row = 0
    jobs = job.shape[1]
    allowed = np.zeros(jobs)
    entered, left = np.full(jobs, -1.0), np.full(jobs, -1.0)
    scaling = np.zeros((16, 2))
    scalings = 0
    state = job.copy()
    key = job[GPUS : GPUS + 1].copy()
    finish = np.full((1, jobs), np.inf)
    queue, running = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    node = _nodes(option)
    extra = node.shape[1] - 1
    ledger = new_ledger(jobs, node)
    free = node[FREE].sum()
    waiting = busy = arrived = 0
    grown = False
    usable = np.inf
    now = -1.0
    wait_s = max(option[TICK_S], 1e-6)
    while True:
        due = usable
        while row + 1 == change_at.shape[0] and arrived < jobs and job[GPUS, arrived] > option[GPU_LIMIT]:
            arrived += 1  # nobody will ever look at it
        if arrived < jobs:
            due = min(due, job[SUBMIT, arrived])
        if busy > 0:
            due = min(due, finish[0, running[0]])
        calm = grown and waiting < option[SHRINK_AT] and node[FREE, extra] == node[SIZE, extra]
        crowded = option[ELASTIC] > 0 and not grown and waiting > option[GROW_AT]
        if crowded:
            due = min(due, next_check(now + wait_s, option[GROW_EVERY_S], option[CLOCK_ZERO]))
        if calm and (arrived < jobs or busy > 0):
            due = min(due, next_check(now + wait_s, option[SHRINK_EVERY_S], option[CLOCK_ZERO]))
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
            free += job[GPUS, j]
            give_back(state, j, node, PLACE_CONSOLIDATED, ledger)
        while arrived < jobs and job[SUBMIT, arrived] <= now:
            if job[GPUS, arrived] <= option[GPU_LIMIT]:
                waiting = push(queue, waiting, key, arrived)
            arrived += 1
        while waiting > 0:
            j = queue[0]
            if job[GPUS, j] > free or not place(state, j, node, PLACE_CONSOLIDATED, True, True, 1.0, 1.0, ledger):
                break
            waiting = pop(queue, waiting, key)
            free -= job[GPUS, j]
            entered[j] = now
            allowed[j] = option[TIME_LIMIT_S]
            left[j] = finish[0, j] = now + min(job[WORK, j], allowed[j])
            busy = push(running, busy, finish, j)
        change = _scaling(now, waiting, grown, node[FREE, extra] == node[SIZE, extra], option, forecast_at, forecast_gpus)
        if change != 0.0:
            grown = change > 0
            node[FREE, extra] = node[SIZE, extra] if grown else 0.0
            free += change * node[SIZE, extra]
            usable = now + option[TICK_S] if grown else np.inf
            scaling = _with_room(scaling, scalings)
            scaling[scalings, 0], scaling[scalings, 1] = now, change
            scalings += 1
    return entered, left, allowed, scaling[:scalings]

"""Backfill as Slurm does it: reservations of whole nodes for all jobs that must wait, one job after the other.

Of each job in the order of priority, Slurm asks on which nodes it could begin, and when. Nodes that are reserved for jobs before it at any
time while it would run do not count. Ends of running jobs are those of their time limits, and are looked at in windows: all of the first
half minute at once, then of a minute, then of twice as much each time, so the answer is the last end of a window. When nodes become free
of a reservation before that, it asks again from there on. A job that can begin now does; any other reserves its nodes, whole ones, even
if it needs a part of them, from the grid's step before its begin to the one before its end, at least one step.
"""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.place import give_back, place
from autosched.kernel.records import COMPETES, PENDING, RUNNING, Allocations, Flags, Index, Log, LoopState, Record, Records, Vector
from autosched.kernel.shelves import set_free
from autosched.kernel.state import start

FIRST_WINDOW_S = 30.0  # of ends of running jobs that count as one
ENDLESS_S = 365 * 86_400.0  # what a job without a limit is taken to run
_AT_ONCE_S = 1.0  # when a job that has outlived its limit is believed to end


@jit
def _grid(at: float, step: float, origin: float) -> float:
    """The last multiple of a step, on the clock of the trace, at or before a moment of the loop's."""
    return float(np.floor((at + origin) / step) * step - origin)


@jit
def _show(node: Records, free: Vector, is_open: Flags, allocations: Allocations) -> None:
    """Have nodes as many free GPUs as they are believed to have; closed ones none."""
    for i in range(len(node)):
        set_free(node, i, free[i] if is_open[i] else 0.0, allocations.shelves)


@jit
def _mark(allocations: Allocations, j: int, mine: Flags) -> None:
    """Which nodes job `j` holds GPUs of."""
    mine[:] = False
    if allocations.held[0, j] >= 0:
        mine[allocations.held[0, j]] = True
        return
    link = allocations.held[1, j]
    while link >= 0:
        mine[allocations.link_node[link]] = True
        link = allocations.link_next[link]


@jit
def _is_on(allocations: Allocations, j: int, nodes: Flags) -> bool:
    """Whether job `j` holds GPUs of one of the nodes."""
    if allocations.held[0, j] >= 0:
        return bool(nodes[allocations.held[0, j]])
    link = allocations.held[1, j]
    while link >= 0:
        if nodes[allocations.link_node[link]]:
            return True
        link = allocations.link_next[link]
    return False


@jit
def _return(job: Records, allocations: Allocations, j: int, free: Vector) -> None:
    """Count the GPUs of job `j` as free; those of a shared GPU stay taken."""
    if job[j].gpus < 1.0:
        return
    if allocations.held[0, j] >= 0:
        free[allocations.held[0, j]] += job[j].gpus
        return
    link = allocations.held[1, j]
    while link >= 0:
        free[allocations.link_node[link]] += allocations.link_gpus[link]
        link = allocations.link_next[link]


@jit
def _fits(state: LoopState, j: int, option: Record, free: Vector, is_open: Flags, mine: Flags) -> bool:
    """Whether job `j` finds a place on the open nodes; `mine` are the nodes it would have."""
    _show(state.node, free, is_open, state.allocations)
    if not place(state.job, j, state.node, option, state.job[j].skew > option.pack_limit, state.allocations):
        return False
    _mark(state.allocations, j, mine)
    give_back(state.job, j, state.node, option.placement, state.allocations)
    return True


@jit
def _first_begin(
    state: LoopState, j: int, now: float, option: Record, free: Vector, is_open: Flags, running: Index, ends: Vector, mine: Flags
) -> float:
    """When job `j` could begin on the open nodes, by the limits of running jobs; -1: never."""
    if _fits(state, j, option, free, is_open, mine):
        return now
    future = free.copy()
    window_s = FIRST_WINDOW_S
    first = np.nan
    k = 0
    while k < len(running):
        last = np.nan
        while k < len(running):
            if _is_on(state.allocations, running[k], is_open):
                if np.isnan(first):
                    first = _grid(ends[k], FIRST_WINDOW_S, option.origin_s) + FIRST_WINDOW_S
                _return(state.job, state.allocations, running[k], future)
                last = ends[k]
                k += 1
                if k < len(running) and ends[k] > first + window_s:
                    break
            else:
                k += 1
        if np.isnan(last):
            break
        window_s *= 2
        while k < len(running) and ends[k] > first + window_s:
            window_s *= 2
        if _fits(state, j, option, future, is_open, mine):
            return max(last, now + _AT_ONCE_S)
    return -1.0


@jit
def _running(state: LoopState, now: float) -> tuple[Index, Vector]:
    """The running jobs in the order in which their limits end, and when that is."""
    job, active, n = state.job, state.active, state.cluster.present
    jobs, ends = np.empty(n, np.int64), np.empty(n)
    count = 0
    for i in range(n):
        j = active[i]
        if job[j].status == RUNNING:
            jobs[count] = j
            ends[count] = now + min(ENDLESS_S, job[j].since_s + job[j].estimate_s - job[j].executed_s - now)
            count += 1
    order = np.argsort(ends[:count], kind="mergesort")
    return jobs[:count][order], ends[:count][order]


@jit
def _last_that_fits(state: LoopState, flag: Vector) -> int:
    """The place in the order of the last job that is no larger than what is free: behind it, nobody can begin now; -1: nobody at all."""
    job, active = state.job, state.active
    last = -1
    for i in range(state.cluster.present):
        if flag[i] == COMPETES and job[active[i]].status == PENDING and job[active[i]].gpus <= state.cluster.free_gpus + 1e-9:
            last = i
    return last


@jit
def _open_from(at: float, span: float, begins: Vector, ends: Vector, reserved: Flags, count: int, is_open: Flags) -> float:
    """Close the nodes that are reserved at some time of a span that begins at `at`; the next moment at which a reservation ends."""
    is_open[:] = True
    later = np.inf
    for k in range(count):
        if ends[k] > at:
            later = min(later, ends[k])
            if begins[k] <= at + span:
                for i in range(len(is_open)):
                    if reserved[k, i]:
                        is_open[i] = False
    return later


@jit
def _overlaps(begin: float, end: float, begins: Vector, ends: Vector, reserved: Flags, count: int, mine: Flags) -> bool:
    """Whether some of the nodes are reserved between two moments."""
    for k in range(count):
        if ends[k] > begin and begins[k] < end:
            for i in range(len(mine)):
                if reserved[k, i] and mine[i]:
                    return True
    return False


@jit
def _search(
    state: LoopState, j: int, now: float, option: Record, free: Vector, running: tuple[Index, Vector],
    plan: tuple[Vector, Vector, Flags], count: int, is_open: Flags, mine: Flags,
) -> float:  # fmt: skip
    """When job `j` may begin next to all reservations, on the nodes `mine`; -1: never, or too far ahead to reserve."""
    begins, ends, reserved = plan
    step, origin = option.resolution_s, option.origin_s
    span = min(ENDLESS_S, state.job[j].estimate_s)
    far = _grid(now + option.backfill_window_s, step, origin)
    at = now
    for _ in range(2 * count + 2):
        later = _open_from(at, span, begins, ends, reserved, count, is_open)
        begin = _first_begin(state, j, now, option, free, is_open, running[0], running[1], mine)
        if begin >= 0:
            begin = max(begin, at)
            if begin <= now:
                return now
        if (begin < 0 or begin > later) and later < far:
            at = later
        elif begin < 0 or begin > now + option.backfill_window_s:
            return -1.0
        elif _overlaps(_grid(begin, step, origin), _grid(begin + span, step, origin), begins, ends, reserved, count, mine):
            at = begin
        else:
            return begin
    return -1.0


@jit
def _start_on(state: LoopState, j: int, now: float, option: Record, free: Vector, is_open: Flags, log: Log) -> Log:
    """Begin a job on open nodes, where it fits."""
    _show(state.node, free, is_open, state.allocations)
    place(state.job, j, state.node, option, state.job[j].skew > option.pack_limit, state.allocations)
    for i in range(len(free)):
        if is_open[i]:
            free[i] = state.node[i].free
    return start(state.job, j, now, option, state.cluster, state.allocations, log)


@jit
def reserve_all(state: LoopState, now: float, flag: Vector, option: Record, log: Log) -> tuple[int, Log]:
    """Walk in order; start who can start next to all reservations, and reserve for the others; how many were started."""
    job, active, node = state.job, state.active, state.node
    last = _last_that_fits(state, flag)
    if last < 0:
        return 0, log
    size = int(min(option.backfill, last + 1))
    step, origin = option.resolution_s, option.origin_s
    begins, ends, reserved = np.empty(size), np.empty(size), np.zeros((size, len(node)), np.bool_)
    is_open, mine, free = np.ones(len(node), np.bool_), np.zeros(len(node), np.bool_), node["free"].copy()
    running, limits = _running(state, now)
    placed = tried = count = 0
    slots = 1  # of the table of reservations, which is as long as there are jobs to try
    for i in range(last + 1):
        j = active[i]
        if flag[i] != COMPETES or job[j].status != PENDING:
            continue
        tried += 1
        if tried > option.backfill:
            break
        begin = _search(state, j, now, option, free, (running, limits), (begins, ends, reserved), count, is_open, mine)
        if begin == now:
            log = _start_on(state, j, now, option, free, is_open, log)
            running, limits = _running(state, now)
            placed += 1
        elif begin > now:
            if slots >= option.backfill:
                break
            begins[count] = max(_grid(begin, step, origin), _grid(now, step, origin))
            ends[count] = max(_grid(begin + min(ENDLESS_S, job[j].estimate_s), step, origin), begins[count] + step)
            reserved[count] = mine
            slots += 2 - int((ends[:count] == begins[count]).any()) - int((ends[:count] == ends[count]).any())
            count += 1
    is_open[:] = True
    _show(node, free, is_open, state.allocations)
    return placed, log

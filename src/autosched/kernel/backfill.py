"""Backfill: who may start behind a job that must wait, by what is believed about durations."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.place import holdings, place
from autosched.kernel.records import COMPETES, PENDING, RUNNING, Index, Log, LoopState, Record, Records, Vector
from autosched.kernel.state import start


@jit
def _shadow(state: LoopState, now: float, demand: float, free: float, option: Record, kind: int) -> tuple[float, float]:
    """When `demand` GPUs will be free by the estimates of running jobs, of one type or (-1) of any, and how many are left over then."""
    job, active, n = state.job, state.active, state.cluster.present
    ends, gpus = np.empty(n), np.empty(n)
    mine = np.zeros(max(1, int(option.kinds)))
    running = 0
    for i in range(n):
        j = active[i]
        if job[j].status == RUNNING:
            ends[running] = max(now, job[j].since_s + job[j].estimate_s - job[j].executed_s)
            gpus[running] = job[j].gpus
            if kind >= 0:
                holdings(state.node, state.allocations, j, job[j].gpus, mine)
                gpus[running] = mine[kind]
            running += 1
    order = np.argsort(ends[:running])
    for k in range(running):
        free += gpus[order[k]]
        if free >= demand:
            return ends[order[k]], free - demand
    return np.inf, 0.0


@jit
def _reserve_first(state: LoopState, now: float, flag: Vector, option: Record, log: Log) -> tuple[int, Log]:
    """Walk in order and place; behind the first job that finds no place only those that do not delay it, by all estimates.

    A job that wants GPUs of another type than the first one cannot delay it.
    """
    job, active, node, cluster, allocations = state.job, state.active, state.node, state.cluster, state.allocations
    placed = 0
    tried = 0
    blocked = False
    shadow, spare = np.inf, 0.0
    kind = -1
    for i in range(cluster.present):
        j = active[i]
        if flag[i] != COMPETES or job[j].status != PENDING:
            continue
        gpus = job[j].gpus
        apart = kind >= 0 and job[j].kind >= 0 and job[j].kind != kind
        late = now + job[j].estimate_s > shadow and not apart
        if blocked:
            tried += 1
            if tried > option.backfill:
                break
            if late and gpus > spare:
                continue
        must_pack = job[j].skew > option.pack_limit
        if gpus <= cluster.free_gpus + 1e-9 and place(job, j, node, option, must_pack, allocations):
            log = start(job, j, now, option, cluster, allocations, log)
            placed += 1
            if blocked and late:
                spare -= gpus
        elif not blocked:
            blocked = True
            free = cluster.free_gpus
            if option.kinds > 0 and job[j].kind >= 0:
                kind = int(job[j].kind)
                free = 0.0
                for k in range(len(node)):
                    if node[k].kind == kind:
                        free += node[k].free
            short = gpus > free + 1e-9  # else there are enough free GPUs but on too many nodes, and somebody must end first
            shadow, spare = _shadow(state, now, gpus if short else free + 1e-3, free, option, kind)
            spare = spare if short else 0.0
    return placed, log


@jit
def _expected_end(job: Records, j: int, now: float, resolution: float) -> float:
    """When a running job is believed to end, on the grid of the plan; one that outlives its limit may end any moment."""
    end = max(now, job[j].since_s + job[j].estimate_s - job[j].executed_s)
    return now + max(1.0, np.ceil((end - now) / resolution)) * resolution


@jit
def _cut(times: Vector, free: Vector, steps: int, at: float) -> tuple[int, int]:
    """Make `at` a step of the plan; its place, and the number of steps."""
    place_of = int(np.searchsorted(times[:steps], at))
    if place_of < steps and times[place_of] == at:
        return place_of, steps
    for i in range(steps, place_of, -1):
        times[i], free[i] = times[i - 1], free[i - 1]
    times[place_of], free[place_of] = at, free[place_of - 1]
    return place_of, steps + 1


@jit
def _earliest(times: Vector, free: Vector, steps: int, gpus: float, span: float, first: int) -> int:
    """The first step from `first` on at which `gpus` are free for `span` seconds; -1: never."""
    i = first
    while i < steps:
        ok = True
        k = i
        while k < steps and times[k] < times[i] + span:
            if free[k] < gpus - 1e-9:
                ok = False
                break
            k += 1
        if ok:
            return i
        i = k + 1
    return -1


@jit
def _plan(job: Records, active: Index, n: int, now: float, option: Record, unused: float) -> tuple[Vector, Vector, int]:
    """Free GPUs over time, as running jobs are believed to end; there is room for two steps per job."""
    ends = np.empty(n)
    gpus = np.empty(n)
    running = 0
    for i in range(n):
        j = active[i]
        if job[j].status == RUNNING:
            ends[running] = _expected_end(job, j, now, option.resolution_s)
            gpus[running] = job[j].gpus
            running += 1
    size = running + 2 * n + 2
    times, free = np.empty(size), np.empty(size)
    times[0], free[0] = now, unused
    steps = 1
    order = np.argsort(ends[:running])
    for k in range(running):
        end = ends[order[k]]
        if end == np.inf:
            break
        if times[steps - 1] != end:
            times[steps], free[steps] = end, free[steps - 1]
            steps += 1
        free[steps - 1] += gpus[order[k]]
    return times, free, steps


@jit
def _reserve_all(state: LoopState, now: float, flag: Vector, option: Record, log: Log) -> tuple[int, Log]:
    """Walk in order; everybody who cannot start gets a reservation that nobody behind may delay, if it begins within the window."""
    job, active, node, cluster, allocations = state.job, state.active, state.node, state.cluster, state.allocations
    n = cluster.present
    least = np.inf
    for i in range(n):
        if flag[i] == COMPETES and job[active[i]].status == PENDING:
            least = min(least, job[active[i]].gpus)
    if least > cluster.free_gpus + 1e-9:  # nobody can start, and the next decision plans anew
        return 0, log
    times, free, steps = _plan(job, active, n, now, option, cluster.free_gpus)
    placed = tried = 0
    blocked = False
    for i in range(n):
        j = active[i]
        if flag[i] != COMPETES or job[j].status != PENDING:
            continue
        if least > min(cluster.free_gpus, free[0]) + 1e-9:  # nobody behind can start either
            break
        if blocked:
            tried += 1
            if tried > option.backfill:
                break
        gpus = job[j].gpus
        span = max(1.0, np.ceil(job[j].estimate_s / option.resolution_s)) * option.resolution_s
        at = _earliest(times, free, steps, gpus, span, 0)
        if at == 0:
            must_pack = job[j].skew > option.pack_limit
            if gpus <= cluster.free_gpus + 1e-9 and place(job, j, node, option, must_pack, allocations):
                log = start(job, j, now, option, cluster, allocations, log)
                placed += 1
            else:  # enough free GPUs, but on too many nodes: somebody must end first
                at = _earliest(times, free, steps, gpus, span, 1)
        blocked = blocked or at != 0
        if at < 0 or times[at] > now + option.backfill_window_s:
            continue
        begin = times[at]
        end = steps
        if span < np.inf:
            end, steps = _cut(times, free, steps, begin + span)
        for k in range(at, end):
            free[k] -= gpus
    return placed, log


@jit
def backfill(state: LoopState, now: float, flag: Vector, option: Record, log: Log) -> tuple[int, Log]:
    """Walk in order and place, with reservations for all or for the first that does not fit; how many were placed."""
    if option.reserve_all > 0:
        return _reserve_all(state, now, flag, option, log)
    return _reserve_first(state, now, flag, option, log)

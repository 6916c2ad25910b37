"""Backfill: who may start behind a job that must wait, by what is believed about durations."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Ledger, Table, Vector
from autoscout.sched.kernel.columns import (
    BACKFILL,
    BACKFILL_WINDOW_S,
    COMPETES,
    ESTIMATE,
    EXECUTED,
    FREE_GPUS,
    GPUS,
    LAG,
    LOGGING,
    PACK_LIMIT,
    PENDING,
    PLACEMENT,
    REMAINDER_NEXT,
    RESOLUTION_S,
    RUNNING,
    SINCE,
    SKEW,
    SLOW_MORE,
    SLOW_TWO,
    STATUS,
)
from autoscout.sched.kernel.jit import jit
from autoscout.sched.kernel.log import Log, note
from autoscout.sched.kernel.place import place
from autoscout.sched.kernel.state import ACTIVE_JOBS, start


@jit
def _shadow(job: Table, active: Index, n: int, now: float, wanted: float, free: float) -> tuple[float, float]:
    """When `wanted` GPUs will be free by the estimates of running jobs, and how many are left over then."""
    ends = np.empty(n)
    gpus = np.empty(n)
    running = 0
    for i in range(n):
        j = active[i]
        if job[STATUS, j] == RUNNING:
            ends[running] = max(now, job[SINCE, j] + job[ESTIMATE, j] - job[EXECUTED, j])
            gpus[running] = job[GPUS, j]
            running += 1
    order = np.argsort(ends[:running])
    for k in range(running):
        free += gpus[order[k]]
        if free >= wanted:
            return ends[order[k]], free - wanted
    return np.inf, 0.0


@jit
def backfill_first(
    job: Table,
    active: Index,
    now: float,
    flag: Vector,
    node: Table,
    option: Vector,
    ledger: Ledger,
    count: Index,
    cluster: Vector,
    log: Log,
) -> tuple[int, Log]:
    """Walk in order and place; behind the first job that finds no place only those that do not delay it, by all estimates."""
    placed = 0
    tried = 0
    blocked = False
    shadow, spare = np.inf, 0.0
    for i in range(count[ACTIVE_JOBS]):
        j = active[i]
        if flag[i] != COMPETES or job[STATUS, j] != PENDING:
            continue
        gpus = job[GPUS, j]
        late = now + job[ESTIMATE, j] > shadow
        if blocked:
            tried += 1
            if tried > option[BACKFILL]:
                break
            if late and gpus > spare:
                continue
        must_pack = job[SKEW, j] > option[PACK_LIMIT]
        if gpus <= cluster[FREE_GPUS] + 1e-9 and place(
            job, j, node, option[PLACEMENT], must_pack, option[REMAINDER_NEXT] > 0, option[SLOW_TWO], option[SLOW_MORE], ledger
        ):
            cluster[FREE_GPUS] -= gpus
            start(job, j, now, option[LAG], count)
            if option[LOGGING] > 0:
                log = note(log, now, j, gpus, ledger, 1.0)
            placed += 1
            if blocked and late:
                spare -= gpus
        elif not blocked:
            blocked = True
            short = gpus > cluster[FREE_GPUS] + 1e-9  # else the free GPUs lie scattered, and somebody must end first
            shadow, spare = _shadow(job, active, count[ACTIVE_JOBS], now, gpus if short else cluster[FREE_GPUS] + 1e-3, cluster[FREE_GPUS])
            spare = spare if short else 0.0
    return placed, log


@jit
def _expected_end(job: Table, j: int, now: float, resolution: float) -> float:
    """When a running job is believed to end, on the grid of the plan; one that outlives its limit may end any moment."""
    end = max(now, job[SINCE, j] + job[ESTIMATE, j] - job[EXECUTED, j])
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
def _plan(job: Table, active: Index, n: int, now: float, option: Vector, unused: float) -> tuple[Vector, Vector, int]:
    """Free GPUs over time, as running jobs are believed to end; there is room for two steps per job."""
    ends = np.empty(n)
    gpus = np.empty(n)
    running = 0
    for i in range(n):
        j = active[i]
        if job[STATUS, j] == RUNNING:
            ends[running] = _expected_end(job, j, now, option[RESOLUTION_S])
            gpus[running] = job[GPUS, j]
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
def backfill_all(
    job: Table,
    active: Index,
    now: float,
    flag: Vector,
    node: Table,
    option: Vector,
    ledger: Ledger,
    count: Index,
    cluster: Vector,
    log: Log,
) -> tuple[int, Log]:
    """Walk in order; everybody who cannot start gets a reservation that nobody behind may delay, if it lies within the window."""
    n = count[ACTIVE_JOBS]
    least = np.inf
    for i in range(n):
        if flag[i] == COMPETES and job[STATUS, active[i]] == PENDING:
            least = min(least, job[GPUS, active[i]])
    if least > cluster[FREE_GPUS] + 1e-9:  # nobody can start, and the next decision plans anew
        return 0, log
    times, free, steps = _plan(job, active, n, now, option, cluster[FREE_GPUS])
    placed = tried = 0
    blocked = False
    for i in range(n):
        j = active[i]
        if flag[i] != COMPETES or job[STATUS, j] != PENDING:
            continue
        if least > min(cluster[FREE_GPUS], free[0]) + 1e-9:  # nobody behind can start either
            break
        if blocked:
            tried += 1
            if tried > option[BACKFILL]:
                break
        gpus = job[GPUS, j]
        span = max(1.0, np.ceil(job[ESTIMATE, j] / option[RESOLUTION_S])) * option[RESOLUTION_S]
        at = _earliest(times, free, steps, gpus, span, 0)
        if at == 0:
            must_pack = job[SKEW, j] > option[PACK_LIMIT]
            if gpus <= cluster[FREE_GPUS] + 1e-9 and place(
                job, j, node, option[PLACEMENT], must_pack, option[REMAINDER_NEXT] > 0, option[SLOW_TWO], option[SLOW_MORE], ledger
            ):
                cluster[FREE_GPUS] -= gpus
                start(job, j, now, option[LAG], count)
                if option[LOGGING] > 0:
                    log = note(log, now, j, gpus, ledger, 1.0)
                placed += 1
            else:  # the free GPUs lie scattered: somebody must end first
                at = _earliest(times, free, steps, gpus, span, 1)
        blocked = blocked or at != 0
        if at < 0 or times[at] > now + option[BACKFILL_WINDOW_S]:
            continue
        begin = times[at]
        end = steps
        if span < np.inf:
            end, steps = _cut(times, free, steps, begin + span)
        for k in range(at, end):
            free[k] -= gpus
    return placed, log

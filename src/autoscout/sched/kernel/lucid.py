"""Lucid's main loop: waiting jobs join running ones on the same GPUs when both profiles promise little harm."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.arrays import Index, Ledger, Table, Vector
from autoscout.sched.kernel.columns import (
    ABSENT,
    END,
    ENDED,
    EXECUTED,
    FINISH,
    FREE,
    GPUS,
    KIND,
    LOGGING,
    NODES,
    PENDING,
    PLACEMENT,
    RANK_KEY,
    RATE,
    REMAINDER_NEXT,
    REMAINING,
    RUNNING,
    SINCE,
    SIZE,
    SPEED,
    START,
    STATUS,
    SUBMIT,
    UNTIL,
)
from autoscout.sched.kernel.jit import jit
from autoscout.sched.kernel.log import Log, new_log, note
from autoscout.sched.kernel.place import give_back, new_ledger, place
from autoscout.sched.kernel.profiler import expected, next_check

# Rows of the profile table, one column per job.
SCORE, MEMORY_MB, MODEL, UTILISATION, PARTNER, PACKED_AT, ALONE, FULL_RATE = 0, 1, 2, 3, 4, 5, 6, 7
PROFILE_ROWS = 8

# Places of the options.
TICKS = 0  # 1: time advances in whole seconds and a job leaves one second after its work is done
MEMORY_LIMIT = 1
SCORE_LIMIT = 2  # packing allowed up to this sum of scores; negative: off
ESTIMATE_FACTOR = 3
QUIET_JOBS = 4  # with no more jobs expected per ten minutes, packing pauses; negative: never
PACK_GPUS = 5
RESTORE = 6  # 1: whoever is left alone returns to full speed; 0: only the one that started first
CLOCK_ZERO = 7
CHECK_EVERY_S = 8
LUCID_PLACES = 9

_BORROWED = 9999  # name of a node that came back; higher than all others


@jit
def _ticks_to_end(left: float, rate: float) -> float:
    """Whole seconds until the work is done; counted out where rounding could matter."""
    if rate == 1.0:
        return max(0.0, np.ceil(left))
    ticks = 0.0
    while left > 0:
        left -= rate
        ticks += 1.0
    return ticks


@jit
def _advance(job: Table, j: int, now: float, ticks: bool) -> None:
    """Bring the remaining work of a running job up to `now`."""
    passed = now - job[SINCE, j]
    left = job[REMAINING, j]
    rate = job[RATE, j]
    if ticks and rate != 1.0:
        for _ in range(int(passed)):
            if left <= 0:
                break
            left -= rate
    else:
        left -= passed * rate
    job[EXECUTED, j] += passed
    job[REMAINING, j] = left
    job[SINCE, j] = now


@jit
def _foresee(job: Table, j: int, ticks: bool) -> None:
    if ticks:
        job[FINISH, j] = job[SINCE, j] + _ticks_to_end(job[REMAINING, j], job[RATE, j]) + 1.0
    else:
        job[FINISH, j] = job[SINCE, j] + max(0.0, job[REMAINING, j]) / job[RATE, j]


@jit
def _pair_speed(profile: Table, a: int, b: int, pairs: Table, fallback: Table) -> float:
    """Speed of `a` beside `b`: measured, or by their joint utilisation."""
    row, column = int(profile[MODEL, a]), int(profile[MODEL, b])
    if row >= 0 and column >= 0 and pairs[row, column] > 0:
        return pairs[row, column]
    joint = profile[UTILISATION, a] + profile[UTILISATION, b]
    for step in range(fallback.shape[0]):
        if joint <= fallback[step, 0]:
            return fallback[step, 1]
    return fallback[fallback.shape[0] - 1, 1]


@jit
def _partner_for(job: Table, profile: Table, j: int, running: Index, busy: int, option: Vector) -> int:
    """The first running job, in order of start, that `j` may join; -1 if there is none."""
    if job[GPUS, j] > option[PACK_GPUS] or option[SCORE_LIMIT] < 0:
        return -1
    room = option[MEMORY_LIMIT] - profile[MEMORY_MB, j]
    for i in range(busy):
        r = running[i]
        if (
            profile[ALONE, r] > 0
            and job[GPUS, r] == job[GPUS, j]
            and profile[MEMORY_MB, r] < room
            and profile[SCORE, r] + profile[SCORE, j] <= option[SCORE_LIMIT]
            and job[RANK_KEY, j] <= job[RANK_KEY, r] * option[ESTIMATE_FACTOR]
        ):
            return r
    return -1


@jit
def _begin(job: Table, profile: Table, j: int, now: float, ticks: bool) -> None:
    job[START, j] = now
    job[SINCE, j] = now
    job[STATUS, j] = RUNNING
    _foresee(job, j, ticks)


@jit
def _join(
    job: Table, profile: Table, j: int, r: int, now: float, joining: Table, hosting: Table, fallback: Table, ticks: bool, node: Table
) -> None:
    """`j` starts on the GPUs of `r`; both slow down."""
    _advance(job, r, now, ticks)
    base = profile[FULL_RATE, j] = profile[FULL_RATE, r]
    job[RATE, j] = base * _pair_speed(profile, j, r, joining, fallback)
    job[RATE, r] = base * _pair_speed(profile, r, j, hosting, fallback)
    job[NODES, j] = job[NODES, r]
    profile[PARTNER, j], profile[PARTNER, r] = r, j
    profile[ALONE, j] = profile[ALONE, r] = 0.0
    profile[PACKED_AT, j] = now
    _begin(job, profile, j, now, ticks)
    _foresee(job, r, ticks)


@jit
def _hand_over(ledger: Ledger, j: int, r: int) -> None:
    """What stood in the ledger for `j` now stands for `r`."""
    held = ledger[0]
    held[0, r], held[1, r] = held[0, j], held[1, j]
    held[0, j] = held[1, j] = -1


@jit
def _end_due(
    job: Table, profile: Table, running: Index, busy: int, now: float, node: Table, option: Vector, common: Vector, ledger: Ledger, log: Log
) -> tuple[int, Log]:
    """Take out all running jobs that end by `now`, in order of start."""
    kept = 0
    for i in range(busy):
        j = running[i]
        if job[FINISH, j] > now:
            running[kept] = j
            kept += 1
            continue
        job[EXECUTED, j] += now - job[SINCE, j] - option[TICKS]
        job[REMAINING, j] = 0.0
        job[STATUS, j] = ENDED
        job[END, j] = now
        r = int(profile[PARTNER, j])
        if r < 0:
            if common[LOGGING] > 0:
                log = note(log, now, j, job[GPUS, j], ledger, -1.0)
            give_back(job, j, node, common[PLACEMENT], ledger)
            continue
        profile[PARTNER, r] = -1.0
        if ledger[0][0, j] >= 0 or ledger[0][1, j] >= 0:
            if common[LOGGING] > 0:
                log = note(log, now, j, job[GPUS, j], ledger, -1.0)
            _hand_over(ledger, j, r)
            if common[LOGGING] > 0:
                log = note(log, now, r, job[GPUS, r], ledger, 1.0)
            first = False
        else:
            first = True  # the survivor started first
        if option[RESTORE] > 0 or first:
            _advance(job, r, now, option[TICKS] > 0)
            job[RATE, r] = profile[FULL_RATE, r]
            profile[ALONE, r] = 1.0
            _foresee(job, r, option[TICKS] > 0)
    return kept, log


@jit
def _insert(queue: Index, waiting: int, job: Table, j: int) -> int:
    """Keep the queue sorted by estimate x GPUs; equals by arrival."""
    p = waiting - 1
    while p >= 0 and job[RANK_KEY, queue[p]] > job[RANK_KEY, j]:
        queue[p + 1] = queue[p]
        p -= 1
    queue[p + 1] = j
    return waiting + 1


@jit
def _resize(node: Table, name: Index, count: int, change: float) -> int:
    """A node leaves (an idle one, the highest name first; nobody leaves when all are busy) or one comes; the number of slots in use."""
    if change > 0:
        for i in range(count):
            if node[SIZE, i] > 0 and name[i] == _BORROWED:
                return count
        node[SIZE, count] = node[FREE, count] = node[SIZE].max()
        node[SPEED, count] = 1.0
        name[count] = _BORROWED
        return count + 1
    idle = -1
    for i in range(count):
        if node[SIZE, i] > 0 and node[FREE, i] == node[SIZE, i] and (idle < 0 or name[i] > name[idle]):
            idle = i
    if idle >= 0:
        for i in range(count):  # the borrowed name leaves, whichever machine carries it
            if name[i] == _BORROWED and i != idle and node[SIZE, i] > 0:
                name[i], name[idle] = name[idle], name[i]
                break
        node[SIZE, idle] = node[FREE, idle] = 0.0
    return count


@jit
def _least_score(profile: Table, running: Index, busy: int) -> float:
    """The lowest sharing score among running jobs that are alone."""
    least = np.inf
    for i in range(busy):
        if profile[ALONE, running[i]] > 0:
            least = min(least, profile[SCORE, running[i]])
    return least


@jit
def _serve(
    job: Table,
    profile: Table,
    queue: Index,
    waiting: int,
    running: Index,
    busy: int,
    now: float,
    packing: bool,
    node: Table,
    joining: Table,
    hosting: Table,
    fallback: Table,
    option: Vector,
    common: Vector,
    ledger: Ledger,
    log: Log,
) -> tuple[int, int, Log]:
    """Walk the queue: join a partner, or take free GPUs. While packing pauses nobody overtakes."""
    ticks = option[TICKS] > 0
    kept = 0
    stopped = False
    least = _least_score(profile, running, busy)
    hopeless = np.inf  # a size that failed this time: no larger job fits either
    for i in range(waiting):
        j = queue[i]
        started = False
        if not stopped:
            r = -1
            if packing and profile[SCORE, j] + least <= option[SCORE_LIMIT]:
                r = _partner_for(job, profile, j, running, busy, option)
            if r >= 0:
                _join(job, profile, j, r, now, joining, hosting, fallback, ticks, node)
                started = True
            elif job[GPUS, j] < hopeless and place(job, j, node, common[PLACEMENT], True, common[REMAINDER_NEXT] > 0, 1.0, 1.0, ledger):
                profile[ALONE, j] = 1.0
                profile[FULL_RATE, j] = job[RATE, j]
                least = min(least, profile[SCORE, j])
                _begin(job, profile, j, now, ticks)
                if common[LOGGING] > 0:
                    log = note(log, now, j, job[GPUS, j], ledger, 1.0)
                started = True
            else:
                if job[KIND, j] < 0:
                    hopeless = min(hopeless, job[GPUS, j])
                stopped = not packing
        if started:
            running[busy] = j
            busy += 1
        else:
            queue[kept] = j
            kept += 1
    return kept, busy, log


@jit
def _resume(job: Table, profile: Table, running: Index, node: Table, option: Vector, common: Vector, ledger: Ledger) -> int:
    """Place the jobs of a snapshot that were running; how many found a place."""
    busy = 0
    for j in range(job.shape[1]):
        if job[STATUS, j] == RUNNING:
            job[STATUS, j] = ABSENT
            if place(job, j, node, common[PLACEMENT], True, common[REMAINDER_NEXT] > 0, 1.0, 1.0, ledger):
                profile[ALONE, j] = 1.0
                profile[FULL_RATE, j] = job[RATE, j]
                _begin(job, profile, j, 0.0, option[TICKS] > 0)
                running[busy] = j
                busy += 1
    return busy


@jit
def run_lucid(
    job: Table,
    profile: Table,
    node: Table,
    name: Index,
    scaling: Table,
    joining: Table,
    hosting: Table,
    fallback: Table,
    forecast_at: Vector,
    forecast_jobs: Vector,
    options: Table,
    change_at: Vector,
    common: Vector,
) -> tuple[Log, int]:
    """Run until every job ended or nothing can happen any more; jobs that ended in the profiler are marked so beforehand.

    `node` has free columns at its end for nodes that `scaling` (moment, change) brings. Row i of `options` holds from `change_at[i]`.
    """
    option = options[0]
    row = 0
    jobs = job.shape[1]
    queue, running = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    ledger = new_ledger(jobs, node)
    log = new_log(common[LOGGING] > 0)
    slots = name.shape[0] - scaling.shape[0]
    waiting = arrived = scaled = decisions = 0
    packing = option[QUIET_JOBS] < 0
    checked = -np.inf
    now = 0.0
    busy = _resume(job, profile, running, node, option, common, ledger)
    while True:
        while arrived < jobs and job[STATUS, arrived] != ABSENT:
            arrived += 1
        due = np.inf
        if arrived < jobs:
            due = job[SUBMIT, arrived]
        for i in range(busy):
            due = min(due, job[FINISH, running[i]])
        if waiting > 0:
            if option[QUIET_JOBS] >= 0:
                due = min(due, next_check(now + 1.0, option[CHECK_EVERY_S], option[CLOCK_ZERO]))
            if scaled < scaling.shape[0]:
                due = min(due, scaling[scaled, 0])
        if scaled > 0 and waiting > 0 and scaling[scaled - 1, 0] == now:
            due = min(due, now + 1.0)
        if row + 1 < change_at.shape[0] and waiting > 0:
            due = min(due, change_at[row + 1])
        due = max(due, now)
        if due == np.inf or due > common[UNTIL]:
            break
        while row + 1 < change_at.shape[0] and change_at[row + 1] <= due:
            row += 1
            option = options[row]
            packing = packing or option[QUIET_JOBS] < 0
            checked = -np.inf
        while scaled < scaling.shape[0] and scaling[scaled, 0] < due:
            slots = _resize(node, name, slots, scaling[scaled, 1])
            scaled += 1
        now = due
        busy, log = _end_due(job, profile, running, busy, now, node, option, common, ledger, log)
        while arrived < jobs and job[SUBMIT, arrived] <= now:
            if job[STATUS, arrived] == ABSENT:
                job[STATUS, arrived] = PENDING
                job[SINCE, arrived] = job[SUBMIT, arrived]
                waiting = _insert(queue, waiting, job, arrived)
            arrived += 1
        if option[QUIET_JOBS] >= 0:
            check = next_check(now + 1e-9 - option[CHECK_EVERY_S], option[CHECK_EVERY_S], option[CLOCK_ZERO])
            if check > checked:
                packing = not expected(check, forecast_at, forecast_jobs) <= option[QUIET_JOBS]
                checked = check
        decisions += 1
        waiting, busy, log = _serve(
            job, profile, queue, waiting, running, busy, now, packing, node, joining, hosting, fallback, option, common, ledger, log
        )
        while scaled < scaling.shape[0] and scaling[scaled, 0] <= now:
            slots = _resize(node, name, slots, scaling[scaled, 1])
            scaled += 1
    return log, decisions

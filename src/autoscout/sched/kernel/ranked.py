"""The general event loop: whenever something happened, put all jobs in order, say who should run, preempt, place.

A policy is two functions:

- `rank(now, active, n, job, cluster, params, memory, key, tie, flag)` fills `key[i]` (smaller first), `tie[i]` (second key) and
  `flag[i]` for the n jobs `active[i]` in the system, running or pending. Jobs equal in both keep the order they had. The flags
  say who takes part: `COMPETES`; `PROTECTED` keeps its GPUs and takes no part; `SET_ASIDE` is left as it is, while its
  GPUs count as free for the others. Writing `cluster[ELIGIBLE]` sets all but the first share of those that compete aside.
  `memory` is the policy's own and survives between calls.
- `wake(now, active, n, job, cluster, params, memory)` is called after the decision and returns when the order will
  change although nobody arrives or ends (a threshold is crossed, a lease ends), or infinity.

A life of one decision: ends free GPUs, arrivals join, `rank`, walk in order with all free GPUs as quota, preempt running
jobs that got none, place pending jobs that got some, `wake`. In rounds, decisions fall on multiples of the round length; a round
in which nothing can change is skipped, which does not alter any result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autoscout.sched.kernel.arrays import Index, Ledger, Table, Vector
from autoscout.sched.kernel.backfill import backfill_all, backfill_first
from autoscout.sched.kernel.columns import (
    ABSENT,
    BACKFILL,
    CAPACITY,
    CHECKPOINT_S,
    CLUSTER_PLACES,
    COMPETES,
    ELIGIBLE,
    END,
    ENDED,
    EVERY_EVENT,
    EXECUTED,
    FINISH,
    FREE_GPUS,
    GPUS,
    GRANTS,
    KIND,
    LAG,
    LARGEST_FIRST,
    LISTED,
    LOGGING,
    PACK_LIMIT,
    PENDING,
    PLACE_CONSOLIDATED,
    PLACEMENT,
    PREEMPTIVE,
    PRESENT,
    PROTECTED,
    RATE,
    REMAINDER_NEXT,
    REMAINING,
    RESERVE_ALL,
    ROUND,
    ROUND_OFFSET,
    ROUND_S,
    RUNNING,
    SET_ASIDE,
    SINCE,
    SIZE,
    SKEW,
    SLOW_MORE,
    SLOW_TWO,
    STATUS,
    SUBMIT,
    UNTIL,
    WALK,
    WALK_STRICT,
)
from autoscout.sched.kernel.jit import jit, loop
from autoscout.sched.kernel.log import Log, new_log, note
from autoscout.sched.kernel.place import give_back, new_ledger, place
from autoscout.sched.kernel.state import ACTIVE_JOBS, ARRIVED, DECISIONS, LISTED_SO_FAR, remaining_s, resume_running, start, stop

__all__ = ["COMPETES", "PROTECTED", "SET_ASIDE", "run_ranked"]

_STUCK_LIMIT = 1_000  # decisions in vain, with nothing running and nobody to come, after which a policy is taken to have given up
_LOOK_EVERY, _FUTILE_LIMIT = 1_000, 50
"""Once nobody is to come, how many decisions lie between looks at the work that is left, and how many looks in a row may find no less than
ever before: restarts then cost more than is done between them, and that goes on for good."""


@jit
def _sort(active: Index, n: int, key: Vector, tie: Vector, flag: Vector) -> None:
    """Insertion sort: stable, and nearly free because the order hardly changes between decisions."""
    for i in range(1, n):
        k, s, f, j = key[i], tie[i], flag[i], active[i]
        p = i - 1
        while p >= 0 and (key[p] > k or (key[p] == k and tie[p] > s)):
            key[p + 1], tie[p + 1], flag[p + 1], active[p + 1] = key[p], tie[p], flag[p], active[p]
            p -= 1
        key[p + 1], tie[p + 1], flag[p + 1], active[p + 1] = k, s, f, j


@jit
def _protect_running(job: Table, active: Index, n: int, flag: Vector) -> None:
    for i in range(n):
        if job[STATUS, active[i]] == RUNNING:
            flag[i] = PROTECTED


@jit
def _set_aside(n: int, flag: Vector, eligible: float) -> None:
    """Only the first share of those that compete may be granted anything; the others are left as they are."""
    if eligible >= 1.0:
        return
    count = 0
    for i in range(n):
        if flag[i] == COMPETES:
            count += 1
    kept = max(1, int(np.round(count * eligible)))  # somebody must be served, or nothing would ever end
    for i in range(n):
        if flag[i] == COMPETES:
            if kept == 0:
                flag[i] = SET_ASIDE
            else:
                kept -= 1


@jit
def _futile(job: Table, active: Index, now: float, count: Index, watch: Vector) -> bool:
    """Whether no work gets done any more; `watch` holds the least that was left at a look, and the looks since."""
    if count[DECISIONS] % _LOOK_EVERY > 0:
        return False
    left = 0.0
    for i in range(count[ACTIVE_JOBS]):
        left += remaining_s(job, active[i], now)
    watch[1] = 0.0 if left < watch[0] else watch[1] + 1.0
    watch[0] = min(watch[0], left)
    return watch[1] > _FUTILE_LIMIT


@jit
def _finish_due(
    job: Table, active: Index, now: float, node: Table, option: Vector, ledger: Ledger, count: Index, cluster: Vector, log: Log
) -> Log:
    """Take out all jobs that end by `now`, in list order."""
    kept = 0
    for i in range(count[ACTIVE_JOBS]):
        j = active[i]
        if job[STATUS, j] == RUNNING and job[FINISH, j] <= now:
            job[EXECUTED, j] += job[REMAINING, j] / job[RATE, j]
            job[REMAINING, j] = 0.0
            job[STATUS, j] = ENDED
            job[END, j] = job[FINISH, j]
            cluster[FREE_GPUS] += job[GPUS, j]
            if option[LOGGING] > 0:
                log = note(log, job[FINISH, j], j, job[GPUS, j], ledger, -1.0)
            give_back(job, j, node, option[PLACEMENT], ledger)
        else:
            active[kept] = j
            kept += 1
    count[ACTIVE_JOBS] = kept
    return log


@jit
def _arrive_due(job: Table, active: Index, now: float, count: Index) -> None:
    while count[ARRIVED] < job.shape[1] and job[SUBMIT, count[ARRIVED]] <= now:
        j = count[ARRIVED]
        count[ARRIVED] += 1
        if job[STATUS, j] == ABSENT:
            job[STATUS, j] = PENDING
            job[SINCE, j] = job[SUBMIT, j]
            job[LISTED, j] = count[LISTED_SO_FAR]
            count[LISTED_SO_FAR] += 1
            active[count[ACTIVE_JOBS]] = j
            count[ACTIVE_JOBS] += 1


@jit
def _select(
    job: Table,
    active: Index,
    flag: Vector,
    option: Vector,
    count: Index,
    cluster: Vector,
    chosen: Index,
    losers: Index,
) -> tuple[int, int]:
    """Walk in order; `chosen` are pending jobs to place, `losers` running jobs to preempt."""
    n = count[ACTIVE_JOBS]
    quota = cluster[CAPACITY]
    for i in range(n):
        if flag[i] == PROTECTED and job[STATUS, active[i]] == RUNNING:
            quota -= job[GPUS, active[i]]
    starts = 0
    stops = 0
    greedy = option[PREEMPTIVE] == 0 and option[WALK] != WALK_STRICT  # whoever finds no place holds back nobody behind him
    for i in range(n):
        j = active[i]
        if flag[i] != COMPETES:
            continue
        gpus = job[GPUS, j]
        pending = job[STATUS, j] == PENDING
        fits = gpus <= quota + 1e-9
        if fits:
            if not greedy:
                quota -= gpus
            if pending:
                chosen[starts] = j
                starts += 1
            else:
                job[GRANTS, j] += 1
        elif not pending:
            losers[stops] = j
            stops += 1
        elif option[WALK] == WALK_STRICT:
            break
    return starts, stops


@jit
def _by_size(job: Table, chosen: Index, n: int) -> None:
    for i in range(1, n):
        j = chosen[i]
        p = i - 1
        while p >= 0 and job[GPUS, chosen[p]] < job[GPUS, j]:
            chosen[p + 1] = chosen[p]
            p -= 1
        chosen[p + 1] = j


@jit
def _place_chosen(
    job: Table, chosen: Index, starts: int, now: float, node: Table, option: Vector, ledger: Ledger, count: Index, cluster: Vector, log: Log
) -> tuple[int, Log]:
    """Place the chosen in order; returns how many got their GPUs."""
    placed = 0
    hopeless = np.inf  # a size that failed this time: no larger job of any type fits either
    mode = option[PLACEMENT]
    for i in range(starts):
        j = chosen[i]
        gpus = job[GPUS, j]
        must_pack = job[SKEW, j] > option[PACK_LIMIT]
        if gpus > cluster[FREE_GPUS] + 1e-9 or (gpus >= hopeless and job[KIND, j] < 0):
            fits = False
        else:
            fits = place(job, j, node, mode, must_pack, option[REMAINDER_NEXT] > 0, option[SLOW_TWO], option[SLOW_MORE], ledger)
        if fits:
            cluster[FREE_GPUS] -= gpus
            start(job, j, now, option[LAG], count)
            if option[LOGGING] > 0:
                log = note(log, now, j, gpus, ledger, 1.0)
            placed += 1
        else:
            if mode == PLACE_CONSOLIDATED and job[KIND, j] < 0:
                hopeless = min(hopeless, gpus)
            if option[WALK] == WALK_STRICT:
                break
    return placed, log


@jit
def _preempt(
    job: Table,
    losers: Index,
    stops: int,
    now: float,
    node: Table,
    option: Vector,
    ledger: Ledger,
    count: Index,
    cluster: Vector,
    log: Log,
) -> Log:
    """Take the GPUs of the losers away."""
    for i in range(stops):
        j = losers[i]
        if option[LOGGING] > 0:
            log = note(log, now, j, job[GPUS, j], ledger, -1.0)
        give_back(job, j, node, option[PLACEMENT], ledger)
        cluster[FREE_GPUS] += job[GPUS, j]
        stop(job, j, now, option[CHECKPOINT_S], count)
    return log


@jit
def _next_finish(job: Table, active: Index, n: int) -> float:
    due = np.inf
    for i in range(n):
        j = active[i]
        if job[STATUS, j] == RUNNING and job[FINISH, j] < due:
            due = job[FINISH, j]
    return due


@jit
def _pending(job: Table, active: Index, n: int) -> int:
    waiting = 0
    for i in range(n):
        if job[STATUS, active[i]] == PENDING:
            waiting += 1
    return waiting


@jit
def _round_for(due: float, now: float, round_s: float, offset: float) -> float:
    """The first round at or after `due`; the round at `now` is over."""
    rounds = np.ceil((due - offset) / round_s)
    if offset + rounds * round_s <= now:
        rounds = np.floor((now - offset) / round_s) + 1
    return float(offset + rounds * round_s)


@jit
def _next_due(
    job: Table, active: Index, count: Index, woken: float, change_at: Vector, row: int, changed: bool, now: float, option: Vector
) -> float:
    """When to decide next: something ends, arrives, wakes or is reconfigured; in rounds also right after a change."""
    due = min(woken, _next_finish(job, active, count[ACTIVE_JOBS]))
    if count[ARRIVED] < job.shape[1]:
        due = min(due, job[SUBMIT, count[ARRIVED]])
    if row + 1 < change_at.shape[0] and count[ACTIVE_JOBS] > 0:
        due = min(due, change_at[row + 1])
    due = max(due, 0.0)  # jobs of a snapshot arrived before
    round_s = option[ROUND_S]
    if round_s > 0:
        if changed:
            due = min(due, now + round_s)
        if due < np.inf:
            due = _round_for(due, now, round_s, option[ROUND_OFFSET])
    return due


@loop
def run_ranked(
    rank: Callable[..., None],
    wake: Callable[..., float],
    job: Table,
    node: Table,
    params: Table,
    change_at: Vector,
    memory: Vector,
    options: Table,
) -> tuple[Log, int, float]:
    """Run until every job ended, nothing can happen any more, what happens gets no work done any more, or the time is up.

    Returns:
        The log, the number of decisions taken, and the GPU-seconds that lay idle while somebody waited.
    """
    option = options[0]
    jobs = job.shape[1]
    active, chosen, losers = np.empty(jobs, np.int64), np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    key, tie, flag = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    count = np.zeros(4, np.int64)
    cluster = np.zeros(CLUSTER_PLACES)
    cluster[ELIGIBLE] = 1.0
    cluster[CAPACITY] = cluster[FREE_GPUS] = node[SIZE].sum()
    cluster[ROUND] = option[ROUND_S]
    ledger = new_ledger(jobs, node)
    log = new_log(option[LOGGING] > 0)
    log = resume_running(job, active, 0.0, node, option, ledger, count, cluster, log)
    woken = 0.0 if count[ACTIVE_JOBS] > 0 else np.inf
    now = -1.0  # a round may fall on the very start
    changed = blocked = False
    idle = 0.0
    vain = row = 0
    watch = np.array([np.inf, 0.0])
    while True:
        due = _next_due(job, active, count, woken, change_at, row, changed, now, option)
        if due == np.inf or due > option[UNTIL]:
            break
        if blocked:
            idle += cluster[FREE_GPUS] * (due - now)
        now = max(now, due)
        while row + 1 < change_at.shape[0] and change_at[row + 1] <= now:
            row += 1
            option = options[row]
            cluster[ROUND] = option[ROUND_S]
            cluster[ELIGIBLE] = 1.0
        log = _finish_due(job, active, now, node, option, ledger, count, cluster, log)
        _arrive_due(job, active, now, count)
        n = count[ACTIVE_JOBS]
        cluster[PRESENT] = n
        changed, woken = False, np.inf
        pending = _pending(job, active, n)
        blocked = pending > 0
        if option[EVERY_EVENT] == 0 and pending == 0:
            continue
        count[DECISIONS] += 1
        rank(now, active, n, job, cluster, params[row], memory, key, tie, flag)
        if option[PREEMPTIVE] == 0:
            _protect_running(job, active, n, flag)
        _sort(active, n, key, tie, flag)
        _set_aside(n, flag, cluster[ELIGIBLE])
        stops = 0
        if option[BACKFILL] > 0:
            if option[RESERVE_ALL] > 0:
                placed, log = backfill_all(job, active, now, flag, node, option, ledger, count, cluster, log)
            else:
                placed, log = backfill_first(job, active, now, flag, node, option, ledger, count, cluster, log)
        else:
            starts, stops = _select(job, active, flag, option, count, cluster, chosen, losers)
            log = _preempt(job, losers, stops, now, node, option, ledger, count, cluster, log)
            if option[LARGEST_FIRST] > 0:
                _by_size(job, chosen, starts)
            placed, log = _place_chosen(job, chosen, starts, now, node, option, ledger, count, cluster, log)
        changed = placed + stops > 0
        blocked = placed < pending + stops
        woken = wake(now, active, n, job, cluster, params[row], memory)
        vain = 0 if changed or cluster[FREE_GPUS] < cluster[CAPACITY] or count[ARRIVED] < jobs else vain + 1
        for_good = option[UNTIL] == np.inf and count[ARRIVED] == jobs and row + 1 == change_at.shape[0]
        if vain > _STUCK_LIMIT or (for_good and _futile(job, active, now, count, watch)):
            break
    return log, count[DECISIONS], idle

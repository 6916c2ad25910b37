"""The general event loop: whenever something happened, put all jobs in order, say who should run, preempt, place.

A policy is two functions of a `PolicyView` (`records.py`):

- `rank(view)` sets `view.key[i]` for each job `view.active[i]` in the system, running or pending: smaller keys first. Equal keys
  are ordered by `view.tie[i]`, which is the job's number unless `rank` sets it; jobs equal in both keep the order they had.
  `view.flag[i]` says who takes part: `COMPETES` unless `rank` sets it; `PROTECTED` keeps its GPUs and takes no part; `SET_ASIDE` is
  left as it is, while its GPUs count as free for the others. Setting `view.cluster.eligible` sets all but the first share of those
  that compete aside. `view.params` are the policy's settings, `view.memory` is its own and survives between calls; of `view.job` it
  may write the fields `queue`, `base_s`, `waited_s`, `deserved` and `skew`.
- `wake(view)` is called after the decision, with `active` in the new order, and returns when the order will change although nobody
  arrives or ends (a threshold is crossed, a lease ends), or infinity.

One decision: ended jobs free GPUs, arrivals join, `rank`, walk in order with all free GPUs as quota, preempt running
jobs that got none, place pending jobs that got some, `wake`. In rounds, decisions fall on multiples of the round length; a round
in which nothing can change is skipped, which does not alter any result.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from autosched.kernel.backfill import backfill
from autosched.kernel.jit import jit, loop
from autosched.kernel.log import new_log, note
from autosched.kernel.place import give_back, holdings, place
from autosched.kernel.records import (
    COMPETES,
    PENDING,
    PLACE_CONSOLIDATED,
    PROTECTED,
    RUNNING,
    SAME_S,
    SET_ASIDE,
    WALK_STRICT,
    Allocations,
    Index,
    Log,
    LoopState,
    PolicyView,
    Record,
    Records,
    Vector,
)
from autosched.kernel.state import arrive, end, remaining_at, start, stop

_STUCK_LIMIT = 1_000  # decisions in vain, with nothing running and nobody to come, after which a run ends
_ASK_AGAIN_S = 1.0  # a policy that wakes at once although nothing has changed is asked again this much later: time must pass
_LOOK_EVERY, _FUTILE_LIMIT = 1_000, 50
"""After the last arrival: decisions between looks at the work that is left, and how many looks in a row may find no less than ever
before. Beyond that restarts cost more than is done between them, and the run would never end."""


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
def _protect_running(job: Records, active: Index, n: int, flag: Vector) -> None:
    for i in range(n):
        if job[active[i]].status == RUNNING:
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
    length = max(1, int(np.round(count * eligible)))  # somebody must be served, or nothing would ever end
    for i in range(n):
        if flag[i] == COMPETES:
            if length == 0:
                flag[i] = SET_ASIDE
            else:
                length -= 1


@jit
def _is_futile(job: Records, active: Index, now: float, cluster: Record) -> bool:
    """Whether no work gets done any more, however often one looks."""
    if cluster.decisions % _LOOK_EVERY > 0:
        return False
    work = 0.0
    for i in range(cluster.present):
        work += remaining_at(job, active[i], now)
    cluster.looks = 0.0 if work < cluster.least_left_s else cluster.looks + 1.0
    cluster.least_left_s = min(cluster.least_left_s, work)
    return cluster.looks > _FUTILE_LIMIT


@jit
def _finish_due(state: LoopState, now: float, option: Record, log: Log) -> Log:
    """Take out all jobs that end by `now`, in list order, and look up when the next one ends."""
    job, active, cluster = state.job, state.active, state.cluster
    length = 0
    finish_s = np.inf
    for i in range(cluster.present):
        j = active[i]
        if job[j].status == RUNNING and job[j].finish_s <= now + SAME_S:
            log = end(state, j, now, option, log)
        else:
            active[length] = j
            length += 1
            if job[j].status == RUNNING:
                finish_s = min(finish_s, job[j].finish_s)
    cluster.finish_s = finish_s
    return log


@jit
def _arrive_due(job: Records, active: Index, now: float, cluster: Record) -> None:
    while cluster.arrived < len(job) and job[cluster.arrived].submit_s <= now:
        active[cluster.present] = cluster.arrived
        arrive(job, cluster.arrived, cluster)


@jit
def _has_room(job: Records, j: int, quota: float, by_kind: Vector, mine: Vector) -> bool:
    """Whether what is left of the quota holds job `j`: all in all, and of the types it wants (`mine`: the types it holds now)."""
    if job[j].gpus > quota + 1e-9:
        return False
    for kind in range(len(by_kind)):
        free = mine[kind] if job[j].status == RUNNING else (job[j].gpus if job[j].kind == kind else 0.0)
        if free > by_kind[kind] + 1e-9:
            return False
    return True


@jit
def _select(state: LoopState, flag: Vector, option: Record, chosen: Index, losers: Index) -> tuple[int, int]:
    """Walk in order; `chosen` are pending jobs to place, `losers` running jobs to preempt.

    The quota is all GPUs; where jobs want types, also all GPUs of each type.
    """
    job, active, node, cluster, allocations = state.job, state.active, state.node, state.cluster, state.allocations
    n = cluster.present
    quota = cluster.capacity
    kinds = int(option.kinds)
    by_kind, mine = np.zeros(kinds), np.zeros(kinds)
    if kinds > 0:
        for i in range(len(node)):
            by_kind[int(node[i].kind)] += node[i].gpus
    for i in range(n):
        j = active[i]
        if flag[i] == PROTECTED and job[j].status == RUNNING:
            quota -= job[j].gpus
            if kinds > 0:
                holdings(node, allocations, j, job[j].gpus, mine)
                by_kind -= mine
    starts = 0
    stops = 0
    greedy = option.preemptive == 0 and option.walk != WALK_STRICT  # a job that finds no place holds back nobody behind it
    for i in range(n):
        j = active[i]
        if flag[i] != COMPETES:
            continue
        gpus = job[j].gpus
        pending = job[j].status == PENDING
        if kinds > 0 and not pending:
            holdings(node, allocations, j, gpus, mine)
        if _has_room(job, j, quota, by_kind, mine):
            if not greedy:
                quota -= gpus
                if kinds > 0 and not pending:
                    by_kind -= mine
                elif kinds > 0 and job[j].kind >= 0:
                    by_kind[int(job[j].kind)] -= gpus
            if pending:
                chosen[starts] = j
                starts += 1
            else:
                job[j].grants += 1
        elif not pending:
            losers[stops] = j
            stops += 1
        elif option.walk == WALK_STRICT:
            break
    return starts, stops


@jit
def _by_size(job: Records, chosen: Index, n: int) -> None:
    for i in range(1, n):
        j = chosen[i]
        p = i - 1
        while p >= 0 and job[chosen[p]].gpus < job[j].gpus:
            chosen[p + 1] = chosen[p]
            p -= 1
        chosen[p + 1] = j


@jit
def _place_chosen(state: LoopState, chosen: Index, starts: int, now: float, option: Record, log: Log) -> tuple[int, Log]:
    """Place the chosen in order; returns how many got their GPUs."""
    job, node, cluster, allocations = state.job, state.node, state.cluster, state.allocations
    placed = 0
    hopeless = np.inf  # a size that failed this time: no larger job of any type fits either
    for i in range(starts):
        j = chosen[i]
        gpus = job[j].gpus
        room = gpus <= cluster.free_gpus + 1e-9 and not (gpus >= hopeless and job[j].kind < 0)
        if room and place(job, j, node, option, job[j].skew > option.pack_limit, allocations):
            log = start(job, j, now, option, cluster, allocations, log)
            placed += 1
        else:
            if option.placement == PLACE_CONSOLIDATED and job[j].kind < 0:
                hopeless = min(hopeless, gpus)
            if option.walk == WALK_STRICT:
                break
    return placed, log


@jit
def _preempt(state: LoopState, losers: Index, stops: int, now: float, option: Record, log: Log) -> Log:
    """Take the GPUs of the losers away."""
    job, active, node, cluster, allocations = state.job, state.active, state.node, state.cluster, state.allocations
    for i in range(stops):
        j = losers[i]
        if option.logging > 0:
            log = note(log, now, j, job[j].gpus, allocations, -1.0)
        give_back(job, j, node, option.placement, allocations)
        cluster.free_gpus += job[j].gpus
        stop(job, j, now, option.checkpoint_s, cluster)
    if stops > 0:
        cluster.finish_s = np.inf
        for i in range(cluster.present):
            j = active[i]
            if job[j].status == RUNNING:
                cluster.finish_s = min(cluster.finish_s, job[j].finish_s)
    return log


@jit
def _round_for(due: float, now: float, round_s: float, offset: float) -> float:
    """The first round at or after `due`; the round at `now` is over."""
    rounds = np.ceil((due - offset) / round_s)
    if offset + rounds * round_s <= now:
        rounds = np.floor((now - offset) / round_s) + 1
    return float(offset + rounds * round_s)


@jit
def _reviewed(now: float, option: Record) -> float:
    """The moment as of which the policy orders: the last review, or now."""
    if option.review_s <= 0:
        return now
    return float(np.floor((now - option.review_offset_s + SAME_S) / option.review_s) * option.review_s + option.review_offset_s)


@jit
def _woken(asked: float, cluster: Record, option: Record) -> float:
    """When to decide although nothing happens: when the policy asks for it; while somebody waits also at a review and a late backfill."""
    if cluster.pending == 0:
        return asked
    if option.review_s > 0:
        asked = min(asked, cluster.reviewed_s + option.review_s)
    if option.backfill > 0 and cluster.backfilled_s < cluster.now_s:
        asked = min(asked, max(cluster.now_s, cluster.backfilled_s + option.backfill_every_s))
    return asked


@jit
def _next_due(job: Records, cluster: Record, option: Record) -> float:
    """When to decide next: something ends, arrives or wakes; in rounds also right after a change."""
    due = min(cluster.woken_s, cluster.finish_s)
    if cluster.arrived < len(job):
        due = min(due, job[cluster.arrived].submit_s)
    round_s = option.round_s
    if round_s > 0:
        if cluster.changed > 0:
            due = min(due, cluster.now_s + round_s)
        if due < np.inf:
            due = _round_for(due, cluster.now_s, round_s, option.round_offset_s)
    return due


@loop
def run_ranked(
    rank: Callable[[PolicyView], None],
    wake: Callable[[PolicyView], float],
    job: Records,
    node: Records,
    clusters: Records,
    active: Index,
    allocations: Allocations,
    recent: Vector,
    params: Vector,
    memory: Vector,
    options: Records,
) -> Log:
    """Run until every job ended, nothing can happen any more, what happens gets no work done any more, or the time is up."""
    option, cluster = options[0], clusters[0]
    jobs = len(job)
    chosen, losers = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    key, tie, flag = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    state = LoopState(job, active, node, cluster, allocations, recent)
    log = new_log(option.logging > 0)
    while True:
        due = _next_due(job, cluster, option)
        if due == np.inf or due >= option.until_s:
            break
        if cluster.blocked > 0:
            cluster.idle_gpu_s += cluster.free_gpus * (due - cluster.now_s)
        now = cluster.now_s = max(cluster.now_s, due)
        if cluster.finish_s <= now + SAME_S:
            log = _finish_due(state, now, option, log)
        _arrive_due(job, active, now, cluster)
        n = cluster.present
        cluster.changed, cluster.woken_s = 0.0, np.inf
        pending = cluster.pending
        cluster.blocked = 1.0 if pending > 0 else 0.0
        if option.every_event == 0 and pending == 0:
            continue
        cluster.decisions += 1
        cluster.reviewed_s = _reviewed(now, option)
        tie[:n], flag[:n] = active[:n], COMPETES
        view = PolicyView(now, active[:n], job, cluster, params, memory, key[:n], tie[:n], flag[:n], recent)
        rank(view)
        if option.preemptive == 0:
            _protect_running(job, active, n, flag)
        _sort(active, n, key, tie, flag)
        _set_aside(n, flag, cluster.eligible)
        stops = 0
        if option.backfill > 0:
            placed, log = backfill(state, now, flag, option, log)
        else:
            starts, stops = _select(state, flag, option, chosen, losers)
            log = _preempt(state, losers, stops, now, option, log)
            if option.largest_first > 0:
                _by_size(job, chosen, starts)
            placed, log = _place_chosen(state, chosen, starts, now, option, log)
        changed = placed + stops > 0
        cluster.changed = 1.0 if changed else 0.0
        cluster.blocked = 1.0 if placed < pending + stops else 0.0
        cluster.woken_s = _woken(wake(view), cluster, option)
        if not changed and cluster.woken_s <= now:
            cluster.woken_s = now + _ASK_AGAIN_S
        cluster.vain = 0 if changed or cluster.free_gpus < cluster.capacity or cluster.arrived < jobs else cluster.vain + 1
        endless = option.until_s == np.inf and cluster.arrived == jobs
        if cluster.vain > _STUCK_LIMIT or (endless and _is_futile(job, active, now, cluster)):
            break
        if 0 < option.most_decisions <= cluster.decisions:
            break
    return log

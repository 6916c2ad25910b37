"""The shortest remaining time first, in a loop of its own: what it decides is what `ranked.py` decides with `remaining.py`.

While all jobs run at one speed, running jobs are in the order of their ends and waiting ones in the order of their work, whatever time it
is. So both are kept as sorted lists, and a decision looks only at those whose turn can change: the jobs that wait, and behind them as many
running jobs, the longest first, as hold the GPUs that are wanted. The time per event hardly grows with the jobs that are running.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.log import new_log, note
from autosched.kernel.place import give_back
from autosched.kernel.ranked import _place_chosen
from autosched.kernel.records import RUNNING, SAME_S, Allocations, Index, Log, LoopState, Record, Records, Vector
from autosched.kernel.state import arrive, end, stop

_AGAIN_S = 1e-6  # after a running job has overtaken a waiting one that held its quota
_SLACK = 1e-9  # of GPUs: shares of one do not add up exactly


class Sorted(NamedTuple):
    """Jobs in the order of a key, then of their numbers; `size[0]` of them."""

    who: Index
    key: Vector
    gpus: Vector
    size: Index


@jit
def _new_list(jobs: int) -> Sorted:
    return Sorted(np.empty(jobs, np.int64), np.empty(jobs), np.empty(jobs), np.zeros(1, np.int64))


@jit
def _place_of(some: Sorted, key: float, j: int) -> int:
    """How many of the list come before job `j` with this key."""
    low, high = 0, some.size[0]
    while low < high:
        middle = (low + high) >> 1
        if some.key[middle] < key or (some.key[middle] == key and some.who[middle] < j):
            low = middle + 1
        else:
            high = middle
    return low


@jit
def _insert(some: Sorted, j: int, key: float, gpus: float) -> None:
    who, keys, sizes = some.who, some.key, some.gpus
    at = _place_of(some, key, j)
    for i in range(some.size[0], at, -1):
        who[i], keys[i], sizes[i] = who[i - 1], keys[i - 1], sizes[i - 1]
    who[at], keys[at], sizes[at] = j, key, gpus
    some.size[0] += 1


@jit
def _remove(some: Sorted, at: int, count: int) -> None:
    """Take `count` jobs out, from place `at` on."""
    who, keys, sizes = some.who, some.key, some.gpus
    some.size[0] -= count
    for i in range(at, some.size[0]):
        who[i], keys[i], sizes[i] = who[i + count], keys[i + count], sizes[i + count]


@jit
def _from(running: Sorted, waiting: Sorted, cluster: Record, now: float) -> tuple[int, int, float]:
    """Where a walk may begin: a place in each list, and the quota there. Everybody before it gets GPUs, whoever comes.

    Behind it are running jobs with as many GPUs as all who wait lack, the longest first, as far as they are behind the first who waits.
    """
    free = cluster.free_gpus
    lacking = -free
    for i in range(waiting.size[0]):
        lacking += waiting.gpus[i]
        if lacking > cluster.capacity:  # more than all running jobs hold
            break
    first = running.size[0]
    quota = free
    while first > 0 and quota - free < lacking and running.key[first - 1] - now > waiting.key[0]:
        first -= 1
        quota += running.gpus[first]
    begun = 0
    if first < running.size[0]:
        while begun < waiting.size[0] and waiting.key[begun] < running.key[first] - now:
            quota -= waiting.gpus[begun]
            begun += 1
        if quota < -_SLACK:  # it begins with the first who waits, and not all before the running job fit: walk them too
            for i in range(begun):
                quota += waiting.gpus[i]
            begun = 0
    return first, begun, quota


@jit
def _select(running: Sorted, waiting: Sorted, cluster: Record, now: float, chosen: Index, losers: Index) -> tuple[int, int]:
    """Walk both lists as one, by remaining work, running jobs first among equals; who does not fit what is left of all GPUs is skipped.

    `chosen` are waiting jobs to place, `losers` places in the list of running ones.
    """
    i, k, quota = _from(running, waiting, cluster, now)
    starts = stops = 0
    for number in range(k):
        chosen[starts] = waiting.who[number]
        starts += 1
    while i < running.size[0] or k < waiting.size[0]:
        if k == waiting.size[0] or (i < running.size[0] and running.key[i] - now <= waiting.key[k]):
            if running.gpus[i] <= quota + _SLACK:
                quota -= running.gpus[i]
            else:
                losers[stops] = i
                stops += 1
            i += 1
            continue
        if waiting.gpus[k] <= quota + _SLACK:
            quota -= waiting.gpus[k]
            chosen[starts] = waiting.who[k]
            starts += 1
        k += 1
        if i == running.size[0] and quota <= _SLACK:
            break
    return starts, stops


@jit
def _preempt(state: LoopState, running: Sorted, waiting: Sorted, losers: Index, stops: int, now: float, option: Record, log: Log) -> Log:
    """Take the GPUs of the losers away; they wait."""
    job, cluster, allocations = state.job, state.cluster, state.allocations
    for number in range(stops):
        j = running.who[losers[number]]
        if option.logging > 0:
            log = note(log, now, j, job[j].gpus, allocations, -1.0)
        give_back(job, j, state.node, option.placement, allocations)
        cluster.free_gpus += job[j].gpus
        stop(job, j, now, option.checkpoint_s, cluster)
        _insert(waiting, j, job[j].remaining_s, job[j].gpus)
    for number in range(stops - 1, -1, -1):
        _remove(running, losers[number], 1)
    return log


@jit
def _overtaking(running: Sorted, waiting: Sorted, job: Records, chosen: Index, starts: int, now: float) -> float:
    """When a running job will overtake a chosen one that found no place: the quota that one held then falls to others."""
    due = np.inf
    for number in range(starts):
        j = chosen[number]
        if job[j].status != RUNNING:
            behind = _place_of(running, now + job[j].remaining_s, len(job))
            if behind < running.size[0]:
                due = min(due, running.key[behind] - job[j].remaining_s)
    return max(due, now) + _AGAIN_S


@jit
def _enter(job: Records, active: Index, present: int, running: Sorted, waiting: Sorted) -> None:
    """Those who are there already."""
    for i in range(present):
        j = active[i]
        if job[j].status == RUNNING:
            _insert(running, j, job[j].finish_s, job[j].gpus)
        else:
            _insert(waiting, j, job[j].remaining_s, job[j].gpus)


@jit
def run_shortest(
    job: Records, node: Records, clusters: Records, active: Index, allocations: Allocations, recent: Vector, options: Records
) -> Log:
    """Run until every job ended, nothing can happen any more, or the time is up. The lists follow from the records of the jobs."""
    option, cluster = options[0], clusters[0]
    jobs = len(job)
    state = LoopState(job, active, node, cluster, allocations, recent)
    chosen, losers = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    running, waiting = _new_list(jobs), _new_list(jobs)
    _enter(job, active, cluster.present, running, waiting)
    log = new_log(option.logging > 0)
    while True:
        due = cluster.woken_s
        if cluster.arrived < jobs:
            due = min(due, job[cluster.arrived].submit_s)
        if running.size[0] > 0:
            due = min(due, running.key[0])
        if due == np.inf or due >= option.until_s:
            break
        if cluster.blocked > 0:
            cluster.idle_gpu_s += cluster.free_gpus * (due - cluster.now_s)
        now = cluster.now_s = max(cluster.now_s, due)
        over = 0
        while over < running.size[0] and running.key[over] <= now + SAME_S:
            log = end(state, running.who[over], now, option, log)
            over += 1
        if over > 0:
            _remove(running, 0, over)
        while cluster.arrived < jobs and job[cluster.arrived].submit_s <= now:
            j = cluster.arrived
            arrive(job, j, cluster)
            _insert(waiting, j, job[j].remaining_s, job[j].gpus)
        cluster.woken_s = np.inf
        pending = waiting.size[0]
        cluster.blocked = 1.0 if pending > 0 else 0.0
        if pending == 0:
            continue
        cluster.decisions += 1
        starts, stops = _select(running, waiting, cluster, now, chosen, losers)
        log = _preempt(state, running, waiting, losers, stops, now, option, log)
        placed, log = _place_chosen(state, chosen, starts, now, option, log)
        for number in range(starts):
            j = chosen[number]
            if job[j].status == RUNNING:
                _remove(waiting, _place_of(waiting, job[j].remaining_s, j), 1)
                _insert(running, j, job[j].finish_s, job[j].gpus)
        cluster.blocked = 1.0 if placed < pending + stops else 0.0
        cluster.woken_s = _overtaking(running, waiting, job, chosen, starts, now)
        if 0 < option.most_decisions <= cluster.decisions:
            break
    busy = running.size[0]
    cluster.present = busy + waiting.size[0]
    cluster.finish_s = running.key[0] if busy > 0 else np.inf
    active[:busy], active[busy : cluster.present] = running.who[:busy], waiting.who[: waiting.size[0]]
    return log

"""The fast loop: one order for all time, nobody overtakes, nobody is preempted. Two heaps, O(log n) per job."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.jit import jit
from autoscout.sched.kernel.log import new_log, note
from autoscout.sched.kernel.place import give_back, new_ledger, place
from autoscout.sched.kernel.records import ENDED, PENDING, RUNNING, Index, Log, Records, Table, Vector


@jit
def _before(key: Table, a: int, b: int) -> bool:
    for level in range(key.shape[0]):
        if key[level, a] != key[level, b]:
            return bool(key[level, a] < key[level, b])
    return a < b


@jit
def push(heap: Index, size: int, key: Table, j: int) -> int:
    """Add a job to a heap ordered by the rows of `key`, then by job number; returns the new size."""
    heap[size] = j
    child = size
    while child > 0:
        parent = (child - 1) >> 1
        if not _before(key, heap[child], heap[parent]):
            break
        heap[child], heap[parent] = heap[parent], heap[child]
        child = parent
    return size + 1


@jit
def pop(heap: Index, size: int, key: Table) -> int:
    """Remove the first job of a heap; returns the new size."""
    size -= 1
    heap[0] = heap[size]
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and _before(key, heap[child + 1], heap[child]):
            child += 1
        if not _before(key, heap[child], heap[parent]):
            break
        heap[child], heap[parent] = heap[parent], heap[child]
        parent = child
    return size


@jit
def run_fixed(job: Records, node: Records, key: Table, newcomers: Vector, options: Records) -> tuple[Log, int, float]:
    """Run until every job ended, nothing can happen any more, or the time is up.

    `key` orders the queue. Jobs that arrive together while nobody waits are tried in the order of `newcomers` first.
    """
    option = options[0]
    jobs = len(job)
    queue = np.empty(jobs, np.int64)
    running = np.empty(jobs, np.int64)
    finish = np.full((1, jobs), np.inf)
    fresh_key = newcomers.reshape((1, jobs))
    waiting = 0
    busy = 0
    arrived = 0
    decisions = 0
    free = node["gpus"].sum()
    ledger = new_ledger(jobs, node)
    log = new_log(option.logging > 0)
    now = 0.0
    idle = 0.0
    while True:
        due = np.inf
        if arrived < jobs:
            due = job[arrived].submit_s
        if busy > 0:
            due = min(due, finish[0, running[0]])
        if due == np.inf or due > option.until_s:
            break
        if waiting > 0:
            idle += free * (due - now)
        now = max(now, due)
        while busy > 0 and finish[0, running[0]] <= now:
            j = running[0]
            busy = pop(running, busy, finish)
            job[j].status = ENDED
            job[j].executed_s += job[j].remaining_s / job[j].rate
            job[j].remaining_s = 0.0
            job[j].end_s = finish[0, j]
            free += job[j].gpus
            if option.logging > 0:
                log = note(log, now, j, job[j].gpus, ledger, -1.0)
            give_back(job, j, node, option.placement, ledger)
        by_newcomer = waiting == 0
        first = arrived
        while arrived < jobs and job[arrived].submit_s <= now:
            job[arrived].status = PENDING
            job[arrived].since_s = job[arrived].submit_s
            waiting = push(queue, waiting, fresh_key if by_newcomer else key, arrived)
            arrived += 1
        decisions += 1
        while waiting > 0:
            j = queue[0]
            gpus = job[j].gpus
            if gpus > free + 1e-9 or not place(job, j, node, option, job[j].skew > option.pack_limit, ledger):
                break
            waiting = pop(queue, waiting, fresh_key if by_newcomer else key)
            free -= gpus
            job[j].start_s = now
            job[j].since_s = now
            job[j].status = RUNNING
            finish[0, j] = now + job[j].remaining_s / job[j].rate + option.tick_s
            busy = push(running, busy, finish, j)
            if option.logging > 0:
                log = note(log, now, j, gpus, ledger, 1.0)
        if by_newcomer and waiting > 0:  # from now on these wait in the queue like all others
            waiting = 0
            for j in range(first, arrived):
                if job[j].status == PENDING:
                    waiting = push(queue, waiting, key, j)
    return log, decisions, idle

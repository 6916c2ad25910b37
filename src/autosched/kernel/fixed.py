"""The fast loop: one order for all time, nobody overtakes, nobody is preempted. Two heaps, O(log n) per job."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.log import new_log
from autosched.kernel.place import place
from autosched.kernel.records import PENDING, RUNNING, SAME_S, Allocations, Index, Log, LoopState, Records, Table, Vector
from autosched.kernel.state import arrive, end, start


@jit
def _is_before(key: Table, a: int, b: int) -> bool:
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
        if not _is_before(key, heap[child], heap[parent]):
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
        if child + 1 < size and _is_before(key, heap[child + 1], heap[child]):
            child += 1
        if not _is_before(key, heap[child], heap[parent]):
            break
        heap[child], heap[parent] = heap[parent], heap[child]
        parent = child
    return size


@jit
def heaps(job: Records, active: Index, present: int, running: Index, finish: Table, queue: Index, key: Table) -> tuple[int, int]:
    """Fill the heap of running jobs, by their ends, and that of waiting ones, by `key`; how many are in each."""
    busy = waiting = 0
    for i in range(present):
        j = active[i]
        if job[j].status == RUNNING:
            finish[0, j] = job[j].finish_s
            busy = push(running, busy, finish, j)
        else:
            waiting = push(queue, waiting, key, j)
    return busy, waiting


@jit
def run_fixed(
    job: Records,
    node: Records,
    clusters: Records,
    active: Index,
    allocations: Allocations,
    recent: Vector,
    key: Table,
    newcomers: Vector,
    options: Records,
) -> Log:
    """Run until every job ended, nothing can happen any more, or the time is up.

    `key` orders the queue. Jobs that arrive together while nobody waits are tried in the order of `newcomers` first. The two heaps
    follow from the records of the jobs in the system.
    """
    option, cluster = options[0], clusters[0]
    jobs = len(job)
    state = LoopState(job, active, node, cluster, allocations, recent)
    queue, running = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    finish = np.full((1, jobs), np.inf)
    fresh_key = newcomers.reshape((1, jobs))
    busy, waiting = heaps(job, active, cluster.present, running, finish, queue, key)
    log = new_log(option.logging > 0)
    while True:
        due = cluster.woken_s
        if cluster.arrived < jobs:
            due = min(due, job[cluster.arrived].submit_s)
        if busy > 0:
            due = min(due, finish[0, running[0]])
        if due == np.inf or due >= option.until_s:
            break
        if cluster.blocked > 0:
            cluster.idle_gpu_s += cluster.free_gpus * (due - cluster.now_s)
        now = cluster.now_s = max(cluster.now_s, due)
        cluster.woken_s = np.inf
        while busy > 0 and finish[0, running[0]] <= now + SAME_S:
            j = running[0]
            busy = pop(running, busy, finish)
            log = end(state, j, now, option, log)
        by_newcomer = waiting == 0
        first = cluster.arrived
        while cluster.arrived < jobs and job[cluster.arrived].submit_s <= now:
            arrive(job, cluster.arrived, cluster)
            waiting = push(queue, waiting, fresh_key if by_newcomer else key, cluster.arrived - 1)
        cluster.decisions += 1
        while waiting > 0:
            j = queue[0]
            gpus = job[j].gpus
            if gpus > cluster.free_gpus + 1e-9 or not place(job, j, node, option, job[j].skew > option.pack_limit, allocations):
                break
            waiting = pop(queue, waiting, fresh_key if by_newcomer else key)
            log = start(job, j, now, option, cluster, allocations, log)
            finish[0, j] = job[j].finish_s
            busy = push(running, busy, finish, j)
        if by_newcomer and waiting > 0:  # from now on these wait in the queue like all others
            waiting = 0
            for j in range(first, cluster.arrived):
                if job[j].status == PENDING:
                    waiting = push(queue, waiting, key, j)
        cluster.blocked = 1.0 if waiting > 0 else 0.0
    active[:busy], active[busy : busy + waiting] = running[:busy], queue[:waiting]
    cluster.present = busy + waiting
    return log

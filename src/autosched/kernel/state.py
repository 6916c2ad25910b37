"""The life of one job inside the general loop: what it has done, its start, its preemption, its end."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.log import new_log, note
from autosched.kernel.place import give_back, place, stay
from autosched.kernel.records import (
    ENDED,
    PENDING,
    PLACE_COUNT,
    RECENT,
    RUNNING,
    Allocations,
    Index,
    Log,
    LoopState,
    Record,
    Records,
    Table,
)


@jit
def executed_by(job: Records, j: int, now: float) -> float:
    """Seconds job `j` has run by `now`."""
    if job[j].status != RUNNING:
        return job[j].executed_s
    return job[j].executed_s + min(now - job[j].since_s, job[j].remaining_s / job[j].rate)


@jit
def remaining_at(job: Records, j: int, now: float) -> float:
    """Seconds of work job `j` still has at `now`."""
    if job[j].status != RUNNING:
        return job[j].remaining_s
    return max(0.0, job[j].remaining_s - (now - job[j].since_s) * job[j].rate)


@jit
def arrive(job: Records, j: int, cluster: Record) -> None:
    """Job `j` joins; the caller puts it into the list of jobs in the system."""
    cluster.arrived += 1
    job[j].status = PENDING
    job[j].since_s = job[j].submit_s
    job[j].listed = cluster.listed
    cluster.listed += 1
    cluster.present += 1
    cluster.pending += 1


@jit
def start(job: Records, j: int, now: float, option: Record, cluster: Record, allocations: Allocations, log: Log) -> Log:
    """Job `j` has just been placed."""
    cluster.free_gpus -= job[j].gpus
    cluster.pending -= 1
    if job[j].start_s < 0:
        job[j].start_s = now
    job[j].waited_s += now - job[j].since_s
    job[j].status = RUNNING
    job[j].since_s = now
    job[j].grants = 0.0
    job[j].finish_s = now + job[j].remaining_s / job[j].rate + option.tick_s
    cluster.finish_s = min(cluster.finish_s, job[j].finish_s)
    job[j].listed = cluster.listed
    cluster.listed += 1
    if option.logging > 0:
        log = note(log, now, j, job[j].gpus, allocations, 1.0)
    return log


@jit
def stop(job: Records, j: int, now: float, checkpoint_s: float, cluster: Record) -> None:
    """Job `j` loses its GPUs before it is done."""
    ran = executed_by(job, j, now)
    remaining = remaining_at(job, j, now)
    if checkpoint_s > 0:
        done = job[j].remaining_s - remaining
        remaining += done % checkpoint_s
    job[j].executed_s = ran
    job[j].remaining_s = remaining + job[j].cost_s
    job[j].status = PENDING
    job[j].since_s = now
    job[j].finish_s = np.inf
    job[j].preemptions += 1
    cluster.pending += 1
    job[j].listed = cluster.listed
    cluster.listed += 1


@jit
def end(state: LoopState, j: int, now: float, option: Record, log: Log) -> Log:
    """Running job `j` is done; the caller takes it out of the list of jobs in the system."""
    job, cluster, allocations = state.job, state.cluster, state.allocations
    job[j].executed_s += job[j].remaining_s / job[j].rate
    job[j].remaining_s = 0.0
    job[j].status = ENDED
    job[j].end_s = job[j].finish_s
    cluster.free_gpus += job[j].gpus
    state.recent[cluster.ended % RECENT] = job[j].executed_s * job[j].gpus
    cluster.ended += 1
    cluster.present -= 1
    if option.logging > 0:
        log = note(log, min(now, job[j].finish_s), j, job[j].gpus, allocations, -1.0)
    give_back(job, j, state.node, option.placement, allocations)
    return log


@jit
def settle_in(
    job: Records,
    node: Records,
    clusters: Records,
    active: Index,
    allocations: Allocations,
    where: Table,
    options: Records,
    now: float,
) -> Log:
    """Jobs that are already there at `now` enter: running ones get GPUs on the nodes of `where`, else anywhere, the others wait.

    `where` has rows of (job, node, GPUs), the rows of one job together. Running jobs that find no room wait too.
    """
    option, cluster = options[0], clusters[0]
    log = new_log(option.logging > 0)
    housed = np.zeros(len(job), np.bool_)
    row = 0
    while row < len(where):
        j = int(where[row, 0])
        last = row
        while last < len(where) and where[last, 0] == j:
            last += 1
        housed[j] = stay(job, j, node, option, where[row:last], allocations)
        row = last
    for running_first in (True, False):
        for j in range(len(job)):
            running = job[j].status == RUNNING and job[j].finish_s == np.inf
            if running != running_first or not (running or job[j].status == PENDING) or (not running_first and job[j].listed >= 0):
                continue
            active[cluster.present] = j
            cluster.present += 1
            cluster.pending += 1
            job[j].status = PENDING
            job[j].listed = cluster.listed
            cluster.listed += 1
            if not running:
                continue
            job[j].since_s = now
            if housed[j] or (job[j].gpus <= cluster.free_gpus + 1e-9 and place(job, j, node, option, False, allocations)):
                log = start(job, j, now, option, cluster, allocations, log)
    cluster.woken_s = now if cluster.present > 0 else np.inf
    return log


@jit
def evict(
    job: Records,
    node: Records,
    clusters: Records,
    active: Index,
    allocations: Allocations,
    out: Index,
    options: Records,
    now: float,
    mode: float,
) -> Log:
    """Running jobs `out` lose their GPUs, which `mode` placed; they wait."""
    option, cluster = options[0], clusters[0]
    log = new_log(option.logging > 0)
    for j in out:
        held = allocations.held[0, j] >= 0 or allocations.held[1, j] >= 0 or mode == PLACE_COUNT
        if held:  # who shares the GPUs of another job holds none
            if option.logging > 0:
                log = note(log, now, j, job[j].gpus, allocations, -1.0)
            give_back(job, j, node, mode, allocations)
            cluster.free_gpus += job[j].gpus
        stop(job, j, now, option.checkpoint_s, cluster)
    cluster.finish_s = np.inf
    for i in range(cluster.present):
        if job[active[i]].status == RUNNING:
            cluster.finish_s = min(cluster.finish_s, job[active[i]].finish_s)
    return log


@jit
def house(job: Records, node: Records, clusters: Records, active: Index, allocations: Allocations, options: Records, now: float) -> Index:
    """Running jobs get nodes that so far did not matter; returns those for which there is no room."""
    option, cluster = options[0], clusters[0]
    homeless = np.empty(cluster.present, np.int64)
    count = 0
    for i in range(cluster.present):
        j = active[i]
        if job[j].status != RUNNING:
            continue
        ran, remaining = executed_by(job, j, now), remaining_at(job, j, now)
        if not place(job, j, node, option, False, allocations):
            homeless[count] = j
            count += 1
            continue
        job[j].executed_s, job[j].remaining_s = ran, remaining
        job[j].finish_s = now + remaining / job[j].rate + option.tick_s
        job[j].since_s = now
    return homeless[:count]

"""The life of one job inside the general loop: what it has done, its start, its preemption, its return from a snapshot."""

from __future__ import annotations

import numpy as np

from autoscout.sched.kernel.jit import jit
from autoscout.sched.kernel.log import note
from autoscout.sched.kernel.place import place, stay
from autoscout.sched.kernel.records import PENDING, RUNNING, Ledger, Log, Record, Records, State


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
def start(job: Records, j: int, now: float, option: Record, cluster: Record, ledger: Ledger, log: Log) -> Log:
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
        log = note(log, now, j, job[j].gpus, ledger, 1.0)
    return log


@jit
def stop(job: Records, j: int, now: float, checkpoint_s: float, cluster: Record) -> None:
    """Job `j` loses its GPUs before it is done."""
    ran = executed_by(job, j, now)
    left = remaining_at(job, j, now)
    if checkpoint_s > 0:
        done = job[j].remaining_s - left
        left += done % checkpoint_s
    job[j].executed_s = ran
    job[j].remaining_s = left + job[j].cost_s
    job[j].status = PENDING
    job[j].since_s = now
    job[j].finish_s = np.inf
    job[j].preemptions += 1
    cluster.pending += 1
    job[j].listed = cluster.listed
    cluster.listed += 1


@jit
def resume_running(state: State, now: float, option: Record, log: Log) -> Log:
    """Jobs of a snapshot that were running get GPUs before anything else happens, where they were if that is known.

    Those that do not fit wait.
    """
    job, active, node, cluster, ledger = state.job, state.active, state.node, state.cluster, state.ledger
    for at_home in (True, False):
        for j in range(len(job)):
            if job[j].status != RUNNING or job[j].finish_s < np.inf or (job[j].home >= 0) != at_home:
                continue
            active[cluster.present] = j
            cluster.present += 1
            cluster.pending += 1
            job[j].status = PENDING
            room = job[j].gpus <= cluster.free_gpus + 1e-9
            if room and not (at_home and stay(job, j, node, option.placement, ledger)):
                room = place(job, j, node, option, False, ledger)
            if room:
                job[j].since_s = now
                log = start(job, j, now, option, cluster, ledger, log)
    return log

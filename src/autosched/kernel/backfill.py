"""Backfill: who may start behind a job that must wait, by what is believed about durations."""

from __future__ import annotations

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.place import holdings, place
from autosched.kernel.records import COMPETES, PENDING, PLACE_COUNT, RUNNING, SAME_S, Log, LoopState, Record, Vector
from autosched.kernel.reservations import reserve_all
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
def _in_order(state: LoopState, now: float, flag: Vector, option: Record, log: Log) -> tuple[int, Log]:
    """Start the first in order as far as they find a place."""
    job, active, cluster = state.job, state.active, state.cluster
    placed = 0
    for i in range(cluster.present):
        j = active[i]
        if flag[i] != COMPETES or job[j].status != PENDING:
            continue
        must_pack = job[j].skew > option.pack_limit
        if job[j].gpus > cluster.free_gpus + 1e-9 or not place(job, j, state.node, option, must_pack, state.allocations):
            break
        log = start(job, j, now, option, cluster, state.allocations, log)
        placed += 1
    return placed, log


@jit
def backfill(state: LoopState, now: float, flag: Vector, option: Record, log: Log) -> tuple[int, Log]:
    """Walk in order and place; when a backfill is due, also behind the first that does not fit. How many were placed.

    Where nodes do not matter there is nothing to reserve for all, so only the first that does not fit is not delayed.
    """
    cluster = state.cluster
    if cluster.backfilled_s == -np.inf and option.backfill_every_s > 0:
        passed = now - option.backfill_offset_s
        cluster.backfilled_s = now - passed % option.backfill_every_s
    if now < cluster.backfilled_s + option.backfill_every_s - SAME_S:
        return _in_order(state, now, flag, option, log)
    cluster.backfilled_s = now
    if option.reserve_all == 0 or option.placement == PLACE_COUNT:
        return _reserve_first(state, now, flag, option, log)
    first, log = _in_order(state, now, flag, option, log)
    more, log = reserve_all(state, now, flag, option, log)
    return first + more, log

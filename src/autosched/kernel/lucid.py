"""Lucid's main loop: waiting jobs join running ones on the same GPUs when by both profiles they hardly disturb each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from autosched.kernel.jit import jit
from autosched.kernel.log import new_log, note
from autosched.kernel.partners import (
    NONE,
    Ends,
    Partners,
    add_due,
    new_ends,
    new_partners,
    next_end,
    not_alone,
    now_alone,
    push_end,
    take_due,
)
from autosched.kernel.place import give_back, place
from autosched.kernel.profiler import expected, next_check
from autosched.kernel.records import ENDED, RECENT, RUNNING, SAME_S, Allocations, Index, Log, Record, Records, Table, Vector, record
from autosched.kernel.shelves import measure, set_free
from autosched.kernel.state import arrive

PROFILE = record(  # one per job
    "score",  # 0 tiny, 1 medium, 2 jumbo
    "memory_mb",
    "model",  # row in the tables of pairs; -1: unknown
    "utilisation",  # of the GPU, in per cent
    "partner",  # the job on the same GPUs; -1: none
    "packed_at_s",
    "alone",  # 1: others may join
    "full_rate",
)

LUCID = record(
    "ticks",  # 1: time advances in whole seconds and a job leaves one second after its work is done
    "memory_limit_mb",
    "score_limit",  # packing allowed up to this sum of scores; negative: off
    "smallest_gpus",  # of all jobs
    "estimate_factor",
    "quiet_jobs",  # packing pauses while no more jobs are expected per ten minutes; negative: never
    "pack_gpus",
    "restore",  # 1: a job left alone returns to full speed; 0: only if it started first
    "clock_zero_s",
    "check_every_s",
)


class Pairs(NamedTuple):
    """Speeds of jobs that share GPUs: of who joins, of who is joined, and by joint utilisation where a pair was never measured."""

    joining: Table
    hosting: Table
    fallback: Table


class Packing(NamedTuple):
    """What Lucid's loop works on; `queue` holds numbers of jobs."""

    job: Records
    profile: Records
    node: Records
    queue: Index
    ends: Ends
    partners: Partners
    allocations: Allocations
    pairs: Pairs
    common: Record
    cluster: Record
    recent: Vector
    started: Index  # how many have been put in order of start


_BORROWED = 9999  # name of a node that came back; higher than all others


@jit
def _ticks_to_end(work: float, rate: float) -> float:
    """Whole seconds until the work is done; counted out where rounding could matter."""
    if rate == 1.0:
        return max(0.0, np.ceil(work))
    ticks = 0.0
    while work > 0:
        work -= rate
        ticks += 1.0
    return ticks


@jit
def _advance(job: Records, j: int, now: float, ticks: bool) -> None:
    """Bring the remaining work of a running job up to `now`."""
    passed = now - job[j].since_s
    work = job[j].remaining_s
    rate = job[j].rate
    if ticks and rate != 1.0:
        for _ in range(int(passed)):
            if work <= 0:
                break
            work -= rate
    else:
        work -= passed * rate
    job[j].executed_s += passed
    job[j].remaining_s = work
    job[j].since_s = now


@jit
def _expect_end(job: Records, j: int, ticks: bool) -> None:
    if ticks:
        job[j].finish_s = job[j].since_s + _ticks_to_end(job[j].remaining_s, job[j].rate) + 1.0
    else:
        job[j].finish_s = job[j].since_s + max(0.0, job[j].remaining_s) / job[j].rate


@jit
def _pair_speed(profile: Records, a: int, b: int, pairs: Table, fallback: Table) -> float:
    """Speed of `a` together with `b`: measured, or by their joint utilisation."""
    row, column = int(profile[a].model), int(profile[b].model)
    if row >= 0 and column >= 0 and pairs[row, column] > 0:
        return pairs[row, column]
    joint = profile[a].utilisation + profile[b].utilisation
    for step in range(fallback.shape[0]):
        if joint <= fallback[step, 0]:
            return fallback[step, 1]
    return fallback[fallback.shape[0] - 1, 1]


@jit
def _may_join(packing: Packing, j: int, r: int, option: Record) -> bool:
    job, profile = packing.job, packing.profile
    return bool(
        profile[r].memory_mb < option.memory_limit_mb - profile[j].memory_mb
        and profile[r].score + profile[j].score <= option.score_limit
        and job[j].rank_key <= job[r].rank_key * option.estimate_factor
    )


@jit
def _partner_for(packing: Packing, j: int, option: Record) -> int:
    """The first running job, in order of start, that `j` may join; -1 if there is none."""
    partners = packing.partners
    at = partners.size[j]
    if at == NONE or option.score_limit < 0 or partners.seen[j] == partners.last[at] != NONE:
        return -1
    last = -1
    if partners.seen[j] == NONE:
        for i in range(partners.first[at], partners.first[at] + partners.filled[at]):
            if _may_join(packing, j, partners.alone[i], option):
                return partners.alone[i]
    else:
        link = partners.after[partners.seen[j]]
        while link != NONE:
            r = partners.came[link]
            first = last < 0 or partners.order[r] < partners.order[last]
            if first and packing.profile[r].alone > 0 and packing.job[r].status == RUNNING and _may_join(packing, j, r, option):
                last = r
            link = partners.after[link]
    if last < 0:
        partners.seen[j] = partners.last[at]
    return last


@jit
def _begin(packing: Packing, j: int, now: float, ticks: bool) -> None:
    job, cluster = packing.job, packing.cluster
    if job[j].start_s < 0:
        job[j].start_s = now
    job[j].waited_s += now - job[j].since_s
    job[j].since_s = now
    job[j].status = RUNNING
    job[j].grants = 0.0
    job[j].listed = cluster.listed
    packing.partners.order[j] = packing.started[0]
    packing.started[0] += 1
    cluster.listed += 1
    cluster.pending -= 1
    _expect_end(job, j, ticks)
    push_end(packing.ends, job[j].finish_s, j)


@jit
def _begin_alone(packing: Packing, j: int, now: float, ticks: bool) -> None:
    """`j` has just been placed on GPUs of its own."""
    packing.profile[j].alone = 1.0
    packing.profile[j].full_rate = packing.job[j].rate
    packing.cluster.free_gpus -= packing.job[j].gpus
    _begin(packing, j, now, ticks)
    now_alone(packing.partners, j)


@jit
def _join(packing: Packing, j: int, r: int, now: float, ticks: bool) -> None:
    """`j` starts on the GPUs of `r`; both slow down."""
    job, profile, pairs = packing.job, packing.profile, packing.pairs
    _advance(job, r, now, ticks)
    full = profile[r].full_rate
    profile[j].full_rate = full
    job[j].rate = full * _pair_speed(profile, j, r, pairs.joining, pairs.fallback)
    job[r].rate = full * _pair_speed(profile, r, j, pairs.hosting, pairs.fallback)
    job[j].nodes = job[r].nodes
    profile[j].partner, profile[r].partner = r, j
    profile[j].alone = profile[r].alone = 0.0
    not_alone(packing.partners, r)
    profile[j].packed_at_s = now
    _begin(packing, j, now, ticks)
    _expect_end(job, r, ticks)
    push_end(packing.ends, job[r].finish_s, r)


@jit
def _hand_over(allocations: Allocations, j: int, r: int) -> None:
    """What the allocations had for `j` it now has for `r`."""
    held = allocations.held
    held[0, r], held[1, r] = held[0, j], held[1, j]
    held[0, j] = held[1, j] = -1


@jit
def _end_due(packing: Packing, now: float, option: Record, log: Log, due: Index) -> Log:
    """Take out all running jobs that end by `now`, in order of start."""
    job, profile, allocations, cluster, partners = packing.job, packing.profile, packing.allocations, packing.cluster, packing.partners
    logging = packing.common.logging > 0
    count = take_due(job, packing.ends, now + SAME_S, partners.order, due)
    place_in = 0
    while place_in < count:
        j = due[place_in]
        place_in += 1
        job[j].executed_s += now - job[j].since_s - option.ticks
        job[j].remaining_s = 0.0
        job[j].status = ENDED
        job[j].end_s = now
        packing.recent[cluster.ended % RECENT] = job[j].executed_s * job[j].gpus
        cluster.ended += 1
        cluster.present -= 1
        if profile[j].alone > 0:
            not_alone(partners, j)
        r = int(profile[j].partner)
        if r < 0:
            cluster.free_gpus += job[j].gpus
            if logging:
                log = note(log, now, j, job[j].gpus, allocations, -1.0)
            give_back(job, j, packing.node, packing.common.placement, allocations)
            continue
        profile[r].partner = -1.0
        started_first = True  # the survivor did
        if allocations.held[0, j] >= 0 or allocations.held[1, j] >= 0:
            if logging:
                log = note(log, now, j, job[j].gpus, allocations, -1.0)
            _hand_over(allocations, j, r)
            if logging:
                log = note(log, now, r, job[r].gpus, allocations, 1.0)
            started_first = False
        if option.restore > 0 or started_first:
            _advance(job, r, now, option.ticks > 0)
            job[r].rate = profile[r].full_rate
            profile[r].alone = 1.0
            now_alone(partners, r)
            _expect_end(job, r, option.ticks > 0)
            if job[r].finish_s <= now + SAME_S and partners.order[r] > partners.order[j]:
                count = add_due(due, count, partners.order, r)
            else:
                push_end(packing.ends, job[r].finish_s, r)
    return log


@jit
def _insert(queue: Index, waiting: int, job: Records, j: int) -> int:
    """Keep the queue sorted by estimate x GPUs; equals by arrival."""
    low, high = 0, waiting
    while low < high:
        middle = (low + high) >> 1
        if job[queue[middle]].rank_key > job[j].rank_key:
            high = middle
        else:
            low = middle + 1
    for p in range(waiting, low, -1):
        queue[p] = queue[p - 1]
    queue[low] = j
    return waiting + 1


@jit
def _resize(node: Records, name: Index, cluster: Record, allocations: Allocations, change: float) -> None:
    """A node leaves (an idle one, the highest name first; nobody leaves when all are busy) or one comes."""
    count = cluster.slots
    if change > 0:
        for i in range(count):
            if node[i].gpus > 0 and name[i] == _BORROWED:
                return
        node[count].gpus = node["gpus"].max()
        set_free(node, count, node[count].gpus, allocations.shelves)
        measure(node, allocations.sizes)
        node[count].speed = 1.0
        name[count] = _BORROWED
        cluster.slots += 1
        cluster.free_gpus += node[count].gpus
        return
    idle = -1
    for i in range(count):
        if node[i].gpus > 0 and node[i].free == node[i].gpus and (idle < 0 or name[i] > name[idle]):
            idle = i
    if idle >= 0:
        for i in range(count):  # the borrowed name leaves, whichever machine carries it
            if name[i] == _BORROWED and i != idle and node[i].gpus > 0:
                name[i], name[idle] = name[idle], name[i]
                break
        cluster.free_gpus -= node[idle].gpus
        node[idle].gpus = 0.0
        set_free(node, idle, 0.0, allocations.shelves)
        measure(node, allocations.sizes)


@jit
def _serve(packing: Packing, waiting: int, now: float, may_pack: bool, option: Record, log: Log) -> tuple[int, Log]:
    """Walk the queue: join a partner, or take free GPUs. While packing pauses nobody overtakes."""
    job, queue = packing.job, packing.queue
    ticks = option.ticks > 0
    length = at = 0
    hopeless = np.inf  # a size that failed this time: no larger job fits either
    while at < waiting and (hopeless > option.smallest_gpus or (may_pack and option.score_limit >= 0)):
        j = queue[at]
        at += 1
        r = _partner_for(packing, j, option) if may_pack else -1
        if r >= 0:
            _join(packing, j, r, now, ticks)
        elif job[j].gpus < hopeless and place(job, j, packing.node, packing.common, True, packing.allocations):
            _begin_alone(packing, j, now, ticks)
            if packing.common.logging > 0:
                log = note(log, now, j, job[j].gpus, packing.allocations, 1.0)
        else:
            queue[length] = j
            length += 1
            if not may_pack:
                break
            if job[j].kind < 0:
                hopeless = min(hopeless, job[j].gpus)
    if length < at:
        for i in range(at, waiting):
            queue[length + i - at] = queue[i]
    return waiting - at + length, log


@jit
def _enter(packing: Packing, active: Index) -> int:
    """Those who are there already; returns how many of them wait."""
    job, waiting = packing.job, 0
    for i in range(packing.cluster.present):
        j = active[i]
        if job[j].status == RUNNING:
            packing.partners.order[j] = packing.started[0]
            packing.started[0] += 1
            push_end(packing.ends, job[j].finish_s, j)
            if packing.profile[j].alone > 0:
                now_alone(packing.partners, j)
        else:
            packing.queue[waiting] = j
            waiting += 1
    return waiting


@jit
def _leave(packing: Packing, active: Index, waiting: int) -> None:
    """Write down who is there: the running jobs in order of start and then the waiting ones in order."""
    job, order = packing.job, packing.partners.order
    busy = packing.cluster.present - waiting
    place_of = np.full(packing.started[0], NONE, np.int64)
    for j in range(len(job)):
        if job[j].status == RUNNING:
            place_of[order[j]] = j
    at = 0
    for number in range(len(place_of)):
        if place_of[number] != NONE:
            active[at] = place_of[number]
            at += 1
    active[busy : busy + waiting] = packing.queue[:waiting]


@jit
def run_lucid(
    job: Records,
    node: Records,
    clusters: Records,
    active: Index,
    allocations: Allocations,
    recent: Vector,
    profile: Records,
    name: Index,
    scaling: Table,
    pairs: Pairs,
    forecast_at: Vector,
    forecast_jobs: Vector,
    settings: Records,
    options: Records,
) -> Log:
    """Run until every job ended, nothing can happen any more, or the time is up.

    `active` holds the running jobs in order of start and then the waiting ones in order. `node` and `name` have free records at their end
    for nodes that `scaling` (moment, change) brings.
    """
    option, common, cluster = settings[0], options[0], clusters[0]
    jobs = len(job)
    if jobs > 0:
        option.smallest_gpus = job["gpus"].min()
        if 2.0 * profile["score"].min() > option.score_limit:  # no pair may share: nobody need look for a partner
            option.score_limit = -1.0
    queue, due_jobs = np.empty(jobs, np.int64), np.empty(jobs, np.int64)
    partners = new_partners(job, option.pack_gpus, cluster.capacity + (scaling.shape[0] + 1) * option.pack_gpus)
    started = np.zeros(1, np.int64)
    packing = Packing(job, profile, node, queue, new_ends(jobs), partners, allocations, pairs, common, cluster, recent, started)
    waiting = _enter(packing, active)
    log = new_log(common.logging > 0)
    scaled = 0
    while True:
        now = cluster.now_s
        due = np.inf
        if cluster.arrived < jobs:
            due = job[cluster.arrived].submit_s
        due = min(due, next_end(job, packing.ends))
        if waiting > 0:
            due = min(due, cluster.woken_s)
            if option.quiet_jobs >= 0:
                due = min(due, next_check(now + 1.0, option.check_every_s, option.clock_zero_s))
            if scaled < scaling.shape[0]:
                due = min(due, scaling[scaled, 0])
        due = max(due, now)
        if due == np.inf or due >= common.until_s:
            break
        cluster.woken_s = np.inf
        while scaled < scaling.shape[0] and scaling[scaled, 0] < due:
            _resize(node, name, cluster, allocations, scaling[scaled, 1])
            scaled += 1
        if cluster.blocked > 0:
            cluster.idle_gpu_s += cluster.free_gpus * (due - now)
        now = cluster.now_s = due
        log = _end_due(packing, now, option, log, due_jobs)
        while cluster.arrived < jobs and job[cluster.arrived].submit_s <= now:
            arrive(job, cluster.arrived, cluster)
            waiting = _insert(queue, waiting, job, cluster.arrived - 1)
        if option.quiet_jobs >= 0:
            check = next_check(now + 1e-9 - option.check_every_s, option.check_every_s, option.clock_zero_s)
            if check > cluster.checked_s:
                cluster.may_pack = 0.0 if expected(check, forecast_at, forecast_jobs) <= option.quiet_jobs else 1.0
                cluster.checked_s = check
        cluster.decisions += 1
        waiting, log = _serve(packing, waiting, now, cluster.may_pack > 0, option, log)
        while scaled < scaling.shape[0] and scaling[scaled, 0] <= now:
            _resize(node, name, cluster, allocations, scaling[scaled, 1])
            scaled += 1
            cluster.woken_s = now + 1.0  # whoever waits may find room a second later
        cluster.blocked = 1.0 if waiting > 0 else 0.0
    while scaled < scaling.shape[0]:
        _resize(node, name, cluster, allocations, scaling[scaled, 1])
        scaled += 1
    _leave(packing, active, waiting)
    return log

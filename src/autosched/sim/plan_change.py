"""Plan change: another plan is put in charge of a virtual cluster while jobs are running."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autosched.kernel import records
from autosched.kernel.records import Index, Records, Table, Vector
from autosched.kernel.state import evict, house
from autosched.sim.cluster import Cluster
from autosched.sim.part import Part, describe, options_of, params_of, policy_of
from autosched.sim.scheduler import OwnLoop, Ranking, SchedulePlan
from autosched.sim.trace import Trace

_NO_ROWS: Table = np.empty((0, records.LOG_COLUMNS))


def put_in_charge(part: Part, plan: SchedulePlan, trace: Trace, cluster: Cluster, now: float, logging: bool) -> Table:
    """Let `plan` decide from `now` on; returns the changes of GPUs.

    With the settings that are in force already nothing happens. With other settings of the same policy everything is kept that the policy
    knows. Another policy starts from what all have in common: arrivals, time run, waits, who holds which GPUs. Pairs on the same
    GPUs are split when the new policy does not pack: who joined waits again. Whoever takes over decides at once.
    """
    policy, params, options = policy_of(plan), params_of(plan), options_of(plan, part.origin_s)
    other = policy != part.policy
    equal = not other and np.array_equal(params, part.params, equal_nan=True) and bool(options == part.options)
    describe(part.job, trace, cluster, plan)
    log = _NO_ROWS
    before = part.options
    first = not part.policy
    own = plan.scheduling.own if isinstance(plan.scheduling, OwnLoop) else np.zeros(len(part.job), np.dtype([("none", np.float64)]))
    if other and "partner" not in (own.dtype.names or ()):
        log = _split_pairs(part, options, now, logging)
    _own_records(part, own, plan.scheduling.loop_fields if isinstance(plan.scheduling, OwnLoop) else (), other)
    part.memory = _memory(part, plan, other)
    part.policy, part.params, part.options, part.plan = policy, params, options, plan
    if equal:
        return log
    if other:
        part.job["grants"] = part.job["deserved"] = part.job["queue"] = 0.0
        _in_order(part, isinstance(plan.scheduling, OwnLoop))
    if not first:
        log = np.concatenate([log, _change_of_places(part, float(before["placement"][0]), now, logging)])
    cluster_record = part.cluster[0]
    if not first:
        _bring_clock_to(part, now)
    cluster_record["round_s"], cluster_record["eligible"] = options["round_s"][0], 1.0
    _forget_forecast(part, plan, first)
    if cluster_record["present"] > 0:
        cluster_record["woken_s"] = min(float(cluster_record["woken_s"]), now)
    _next_end(part)
    return log


def take_nodes(part: Part, numbers: Index, now: float, logging: bool) -> Table:
    """Nodes leave; the jobs on them lose their GPUs and wait."""
    there = part.where[np.isin(part.where[:, 1].astype(np.int64), numbers), 0].astype(np.int64)
    out = _with_guests(part, np.unique(there))
    log = stop_jobs(part, out, now, logging)
    gone = part.node["gpus"][numbers].sum()
    part.node["gpus"][numbers] = part.node["free"][numbers] = 0.0
    part.cluster["capacity"] -= gone
    part.cluster["free_gpus"] -= gone
    return log


def return_nodes(part: Part, numbers: Index, gpus: float) -> None:
    """Nodes come back, all GPUs free."""
    part.node["gpus"][numbers] = part.node["free"][numbers] = gpus
    part.cluster["capacity"] += gpus * len(numbers)
    part.cluster["free_gpus"] += gpus * len(numbers)


def stop_jobs(part: Part, out: Index, now: float, logging: bool) -> Table:
    """Running jobs lose their GPUs and wait."""
    if not len(out):
        return _NO_ROWS
    options = _logged(part.options, logging)
    allocations = part.allocations()
    common = (part.job, part.node, part.cluster, part.active, allocations)
    rows, filled = evict(*common, out, options, now, float(part.options["placement"][0]))
    part.store_allocations(allocations)
    part.cluster["blocked"] = 1.0
    return rows[: filled[0]]


def _with_guests(part: Part, out: Index) -> Index:
    """Those jobs and who shares their GPUs; the pairs are no pairs any more."""
    if "partner" not in (part.own.dtype.names or ()):
        return out
    partner = part.own["partner"][out].astype(np.int64)
    both: Index = np.concatenate([out, partner[partner >= 0]])
    part.own["partner"][both] = -1.0
    part.own["alone"][both] = 0.0
    return both


def _split_pairs(part: Part, options: Records, now: float, logging: bool) -> Table:
    """Who joined another job's GPUs waits again; the other one returns to full speed."""
    if "partner" not in (part.own.dtype.names or ()):
        return _NO_ROWS
    holds = np.zeros(len(part.job), bool)
    holds[part.where[:, 0].astype(np.int64)] = True
    running = part.job["status"] == records.RUNNING
    guests = np.flatnonzero(running & ~holds)
    hosts = part.own["partner"][guests].astype(np.int64)
    log = stop_jobs(part, guests, now, logging)
    job = part.job
    ran = np.minimum(now - job["since_s"][hosts], job["remaining_s"][hosts] / job["rate"][hosts])
    job["executed_s"][hosts] += ran
    job["remaining_s"][hosts] -= ran * job["rate"][hosts]
    job["since_s"][hosts] = now
    job["rate"][hosts] = part.own["full_rate"][hosts]
    job["finish_s"][hosts] = now + job["remaining_s"][hosts] / job["rate"][hosts] + options["tick_s"][0]
    return log


def _own_records(part: Part, own: Records, loop_fields: tuple[str, ...], other: bool) -> None:
    """Records of the loop's own: new for a loop that takes over, else only what the plan says of each job."""
    before, part.own = part.own, own.copy()
    if not other:
        present = part.job["status"] != records.ABSENT
        for name in loop_fields:
            part.own[name][present] = before[name][present]
    elif "alone" in (part.own.dtype.names or ()):
        running = part.job["status"] == records.RUNNING
        part.own["alone"][running] = 1.0
        part.own["full_rate"][running] = part.job["rate"][running]


def _memory(part: Part, plan: SchedulePlan, other: bool) -> Vector:
    """The memory of the policy: what it knew, as far as it goes, and room for what came later."""
    if not isinstance(plan.scheduling, Ranking):
        return np.zeros(1)
    fresh = plan.scheduling.memory.copy()
    if not other:
        fresh[: len(part.memory)] = part.memory[: len(fresh)]
    return fresh


def _in_order(part: Part, own_loop: bool) -> None:
    """Put the jobs in the system into the order that a policy expects which did not see them come."""
    present = part.jobs_in_system
    job = part.job
    if own_loop:  # running ones by start, then the others by their key
        running: NDArray[np.bool_] = job["status"][present] == records.RUNNING
        key = np.where(running, job["since_s"][present], job["rank_key"][present])
        present[:] = present[np.lexsort((present, key, ~running))]
    else:
        present[:] = np.sort(present)


def _change_of_places(part: Part, before: float, now: float, logging: bool) -> Table:
    """Nodes begin or cease to matter."""
    counted, counts = before == records.PLACE_COUNT, part.options["placement"][0] == records.PLACE_COUNT
    if counts and not counted:
        part.where = np.empty((0, 4))
        part.node["free"], part.node["shared"], part.shares[:] = part.node["gpus"], 0.0, -1.0
    elif counted and not counts:
        allocations = part.allocations()
        common = (part.job, part.node, part.cluster, part.active, allocations)
        homeless = house(*common, _logged(part.options, logging), now)
        part.store_allocations(allocations)
        options = part.options
        part.options = options.copy()
        part.options["placement"] = records.PLACE_COUNT
        log = stop_jobs(part, homeless, now, logging)
        part.options = options
        return log
    return _NO_ROWS


def _forget_forecast(part: Part, plan: SchedulePlan, first: bool) -> None:
    """Lucid looks at the forecast anew; until then it packs if it did, or need not look."""
    names = plan.scheduling.settings.dtype.names if isinstance(plan.scheduling, OwnLoop) else None
    if names and "quiet_jobs" in names:
        never_quiet = float(plan.scheduling.settings["quiet_jobs"][0] < 0)  # type: ignore[union-attr]
        part.cluster["may_pack"] = never_quiet if first else max(float(part.cluster["may_pack"][0]), never_quiet)
        part.cluster["checked_s"] = -np.inf


def _bring_clock_to(part: Part, now: float) -> None:
    """Nothing happens before `now` any more, whatever the new policy looks at; a round may fall on it."""
    before = np.nextafter(now, -np.inf)
    passed = before - part.cluster["now_s"][0]
    if passed > 0:
        part.cluster["idle_gpu_s"] += part.cluster["blocked"] * part.cluster["free_gpus"] * passed
        part.cluster["now_s"] = before


def _next_end(part: Part) -> None:
    present = part.jobs_in_system
    part.cluster["finish_s"] = part.job["finish_s"][present].min(initial=np.inf)


def _logged(options: Records, logging: bool) -> Records:
    copy = options.copy()
    copy["logging"] = logging
    return copy

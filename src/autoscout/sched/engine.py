"""Run a scheduler on a trace and a cluster: admission, scheduling, placement, workload, one virtual cluster at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autoscout.core.errors import ConfigError, Fault
from autoscout.sched.cluster import Cluster
from autoscout.sched.kernel import records
from autoscout.sched.kernel.records import Records, Table, Vector
from autoscout.sched.result import Result
from autoscout.sched.scheduler import Admitting, FixedOrder, OwnLoop, Plan, Ranking, Scheduler, one_record
from autoscout.sched.snapshot import Snapshot
from autoscout.sched.trace import Trace, examples, plural

_RULES = {
    "count": records.PLACE_COUNT,
    "consolidated": records.PLACE_CONSOLIDATED,
    "relaxed": records.PLACE_RELAXED,
    "fewest": records.PLACE_FEWEST,
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another configuration of the same scheduler takes over at a moment of the trace's clock."""

    at_s: float
    scheduler: Scheduler


@dataclass(frozen=True, kw_only=True)
class Run:
    """Circumstances of a simulation.

    Attributes:
        until_s: Stop at this moment of the trace's clock; jobs still there count as unfinished.
        snapshot: Jobs that are already in the system, some of them running.
        changes: Later configurations, in order of time.
        log: Keep every change of GPUs, for timelines and checks.
    """

    until_s: float = np.inf
    snapshot: Snapshot | None = None
    changes: Sequence[Change] = field(default_factory=tuple)
    log: bool = False


def simulate(trace: Trace, cluster: Cluster, scheduler: Scheduler, run: Run | None = None) -> Result:
    """What happens to every job.

    Deterministic: equal arguments give equal results, bit for bit.

    Raises:
        ConfigError: jobs that can never run here (too large, unknown virtual cluster or GPU type), all at once.
    """
    run = run or Run()
    jobs = run.snapshot.joined(trace) if run.snapshot else trace
    admit(jobs, cluster)
    origin = _origin(jobs, run)
    result = Result.empty(jobs, cluster, run.until_s)
    everywhere, enter_s = cluster, jobs.submit_s
    if isinstance(scheduler, Admitting):
        admission = scheduler.admit(jobs, cluster, origin, [(change.at_s, change.scheduler) for change in run.changes])
        result.admitted(admission)
        scheduler, everywhere, enter_s = admission.scheduler, admission.cluster, admission.enter_s
        admit(jobs.take(np.flatnonzero(np.isnan(result.end_s))), everywhere)
    for vc in everywhere.vcs:
        mine = np.isnan(result.end_s)
        if len(cluster.vcs) > 1:
            mine &= jobs.vc.codes == jobs.vc.code(vc)
        index = np.flatnonzero(mine)
        if len(index) == 0:
            continue
        index = index[np.argsort(enter_s[index], kind="stable")]
        part = jobs.take(index)
        nodes = everywhere.part(vc)
        plan = scheduler.plan(part, nodes)
        table = job_table(part, nodes, plan, origin)
        table["submit_s"] = enter_s[index] - origin
        if run.snapshot:
            run.snapshot.enter(table, index)
        log, decisions = _run_part(part, nodes, plan, table, run, origin, result, index)
        _settle(table, run.until_s - origin)
        result.store(index, table, log, decisions, origin, vc)
    return result


def _origin(jobs: Trace, run: Run) -> float:
    if run.snapshot is not None:
        return run.snapshot.at_s
    return float(np.floor(jobs.submit_s[0])) if len(jobs) else 0.0


def _settle(table: Records, until: float) -> None:
    """Bring jobs that still run up to the moment the simulation was stopped."""
    if not np.isfinite(until):
        return
    running = np.flatnonzero(table["status"] == records.RUNNING)
    rate = table["rate"][running]
    ran = np.minimum(until - table["since_s"][running], table["remaining_s"][running] / rate)
    table["executed_s"][running] += ran
    table["remaining_s"][running] -= ran * rate


def admit(trace: Trace, cluster: Cluster) -> None:
    """Refuse jobs that could wait forever.

    Raises:
        ConfigError: one fault per reason, naming jobs.
    """
    faults = []
    several = len(cluster.vcs) > 1
    unknown = set(trace.vc.names) - set(cluster.vcs) if several else set()
    lost = np.isin(trace.vc.codes, [trace.vc.code(name) for name in unknown])
    if lost.any():
        faults.append(
            Fault(
                where=trace.source,
                field="vc",
                value=examples(np.asarray(sorted(unknown), np.str_)),
                rule=f"{plural(int(lost.sum()), 'job')} in virtual clusters without nodes",
                fix="Add these to the node file, filter the jobs, or use one cluster for all (--cluster 70x8)",
            )
        )
    for vc in cluster.vcs:
        part = cluster.part(vc)
        mine = (trace.vc.codes == trace.vc.code(vc)) if several else np.ones(len(trace), bool)
        for kind, name in enumerate(trace.kind.names):
            fitting = [group for group in part.groups if name in ("", group.kind)]
            capacity = sum(group.nodes * group.gpus for group in fitting)
            large = mine & (trace.kind.codes == kind) & (trace.gpus > capacity)
            if large.any():
                faults.append(
                    Fault(
                        where=trace.source,
                        field="gpus",
                        value=f"{trace.gpus[large].max():g} GPUs wanted, {capacity} there"
                        + (f" in {vc}" if vc else "")
                        + (f" of type {name}" if name else ""),
                        rule=f"larger than the cluster: {examples(trace.job_id[large])} ({plural(int(large.sum()), 'job')} in all)",
                        fix="Use a larger cluster or filter these jobs",
                    )
                )
    if faults:
        raise ConfigError(faults)


def job_table(trace: Trace, cluster: Cluster, plan: Plan, origin: float) -> Records:
    """The jobs as records for kernels, every job absent."""
    jobs = len(trace)
    table = np.zeros(jobs, records.JOB)
    table["submit_s"] = trace.submit_s - origin
    table["gpus"] = trace.gpus
    table["work_s"] = table["remaining_s"] = trace.duration_s
    estimate = plan.estimate_s if plan.estimate_s is not None else trace.extra.get("estimate_s", trace.duration_s)
    table["estimate_s"] = estimate
    table["cost_s"] = plan.workload.cost_s(trace.gpus)
    table["skew"] = trace.extra.get("skew", np.ones(jobs))
    kinds = np.asarray([cluster.kinds.index(name) if name and name in cluster.kinds else -1 for name in trace.kind.names], np.float64)
    table["kind"] = kinds[trace.kind.codes]
    table["user"] = trace.user.codes
    table["rank_key"] = plan.key if plan.key is not None else np.arange(jobs)
    table["status"] = records.ABSENT
    table["finish_s"] = np.inf
    table["rate"] = 1.0
    table["start_s"] = table["end_s"] = table["home"] = -1.0
    return table


def loop_options(plan: Plan, run: Run, origin: float) -> Records:
    """The options of the loops, as an array of one record."""
    policy, placement = plan.scheduling, plan.placement
    order: dict[str, float] = {}
    if isinstance(policy, Ranking):
        order = {
            "round_s": policy.round_s,
            "round_offset_s": (policy.round_offset_s - origin) % policy.round_s if policy.round_s > 0 else 0.0,
            "walk": records.WALK_STRICT if policy.strict else records.WALK_SKIP,
            "preemptive": policy.preemptive,
            "every_event": policy.every_event,
            "backfill": policy.backfill,
            "reserve_all": policy.reserve_all,
            "backfill_window_s": policy.backfill_window_s,
            "resolution_s": policy.resolution_s,
        }
    return one_record(
        records.OPTIONS,
        **order,
        placement=_RULES[placement.rule],
        remainder_to_emptiest=placement.remainder_to_emptiest,
        largest_first=placement.largest_first,
        pack_limit=placement.pack_limit,
        slow_two=placement.slow_two,
        slow_more=placement.slow_more,
        tick_s=plan.workload.tick_s,
        checkpoint_s=plan.workload.checkpoint_s,
        until_s=run.until_s - origin,
        logging=run.log,
    )


def _run_part(
    part: Trace, nodes: Cluster, plan: Plan, table: Records, run: Run, origin: float, result: Result, index: NDArray[np.int64]
) -> tuple[Table, int]:
    options = loop_options(plan, run, origin)
    scheduling = plan.scheduling
    if isinstance(scheduling, OwnLoop):
        plans = [plan, *(change.scheduler.plan(part, nodes) for change in run.changes)]
        _check_changes(plans, run)
        settings = np.concatenate([each.scheduling.settings for each in plans if isinstance(each.scheduling, OwnLoop)])
        log, decisions, extra = scheduling.loop(table, nodes.table(), options, origin, settings, _change_at(run, origin))
        result.more(index, extra)
        return log, decisions
    if isinstance(scheduling, FixedOrder) and run.snapshot is None and not run.changes:
        from autoscout.sched.kernel.fixed import run_fixed

        keys = [table["rank_key"], *([scheduling.tie] if scheduling.tie is not None else [])]
        newcomers = scheduling.newcomers_by if scheduling.newcomers_by is not None else table["rank_key"].copy()
        (rows, filled), decisions, idle = run_fixed(table, nodes.table(), np.stack(keys), newcomers, options)
        result.counters["idle_while_waiting_gpu_s"] += idle
        return rows[: filled[0]], decisions
    return _run_ranking(part, nodes, plan, table, run, origin, result)


def _run_ranking(part: Trace, nodes: Cluster, plan: Plan, table: Records, run: Run, origin: float, result: Result) -> tuple[Table, int]:
    from autoscout.sched.kernel.jit import COMPILED
    from autoscout.sched.kernel.ranked import run_ranked

    plans = [_ranked(plan), *(_ranked(change.scheduler.plan(part, nodes)) for change in run.changes)]
    scheduling = plans[0].scheduling
    assert isinstance(scheduling, Ranking)
    _check_changes(plans, run)
    if isinstance(plan.scheduling, FixedOrder) and plan.scheduling.tie is not None:
        table["rank_key"] = _joint_order(table["rank_key"], plan.scheduling.tie)
    params = np.zeros((len(plans), max(len(each.params) for each in plans)))
    for number, each in enumerate(plans):
        params[number, : len(each.params)] = each.params
    options = np.concatenate([loop_options(each, run, origin) for each in plans])
    cluster = np.zeros(1, records.CLUSTER)
    change_at = _change_at(run, origin)
    loop = run_ranked
    if COMPILED and not hasattr(scheduling.rank, "py_func"):  # a policy in plain Python: the loop runs as plain Python too
        loop = run_ranked.py_func  # type: ignore[attr-defined]
    (rows, filled), decisions, idle = loop(
        scheduling.rank, scheduling.wake, table, nodes.table(), cluster, params, change_at, scheduling.memory.copy(), options
    )
    result.counters["idle_while_waiting_gpu_s"] += idle
    return rows[: filled[0]], decisions


def _change_at(run: Run, origin: float) -> Vector:
    """When each configuration takes over; the first is there from the beginning."""
    return np.asarray([-np.inf, *(change.at_s - origin for change in run.changes)])


def _ranked(plan: Plan) -> Plan:
    """The plan for the general loop."""
    from autoscout.sched.kernel.policies import by_fixed_key, never

    if isinstance(plan.scheduling, FixedOrder):
        return replace(plan, scheduling=Ranking(rank=by_fixed_key, wake=never, strict=True))
    return plan


def _check_changes(plans: Sequence[Plan], run: Run) -> None:
    """Another configuration may take over in flight, another policy may not.

    Raises:
        ConfigError: all changes that cannot be made.
    """
    first = plans[0]
    faults = []
    for change, plan in zip(run.changes, plans[1:], strict=True):
        then, now = plan.scheduling, first.scheduling
        rule = ""
        if isinstance(then, OwnLoop) and isinstance(now, OwnLoop):
            if then.fixed != now.fixed:
                rule = "of this scheduler only other settings can change: all but " + ", ".join(map(str, now.fixed))
        elif not (isinstance(then, Ranking) and isinstance(now, Ranking) and then.rank is now.rank):
            rule = "only settings of the same scheduler can change"
        elif (plan.placement.rule == "count") != (first.placement.rule == "count"):
            rule = "nodes cannot start or cease to matter"
        if rule:
            faults.append(
                Fault(where=f"change at {change.at_s:g}", value=type(change.scheduler).__name__, rule=f"{rule} while jobs are running")
            )
    if faults:
        raise ConfigError(faults)


def _joint_order(first: Vector, second: Vector) -> NDArray[np.float64]:
    order = np.lexsort((np.arange(len(first)), second, first))
    place = np.empty(len(first))
    place[order] = np.arange(len(first))
    return place

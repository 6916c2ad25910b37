"""Part: the whole state of one virtual cluster. What its loop works on is what a snapshot keeps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosched.kernel import records
from autosched.kernel.place import allocation_rows, new_allocations, restore
from autosched.kernel.records import Allocations, Index, Records, Table, Vector
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import FixedOrder, OwnLoop, Ranking, SchedulePlan
from autosched.sim.trace import Trace

_RULES = {
    "count": records.PLACE_COUNT,
    "consolidated": records.PLACE_CONSOLIDATED,
    "relaxed": records.PLACE_RELAXED,
    "fewest": records.PLACE_FEWEST,
}


@dataclass(kw_only=True)
class Part:
    """What the loop of a virtual cluster works on, and who is in charge.

    Attributes:
        vc: Its name; of a profiler, empty.
        rows: Of each record of `job`: the number of the job in the trace of the session.
        job, node, cluster, active, recent: See `kernel/records.py`; `cluster` holds one record.
        where: Who holds which GPUs, as `kernel/place.py` has it in rows.
        shares: What is left of every shared GPU.
        memory: Of the policy.
        own: Records that the loop of a scheduler keeps per job; without fields where it keeps none.
        name: Of each node, for loops that lend and borrow.
        origin_s: On the trace's clock, the moment from which all times in here are counted.
        moves: When nodes will come and leave, (moment, change), as far as it is known and has not happened yet.
        policy, params, options: Who decides, and with which settings; another value of any of them is a change of configuration.
    """

    vc: str
    rows: Index
    job: Records
    node: Records
    cluster: Records
    active: Index
    where: Table
    shares: Table
    recent: Vector
    memory: Vector
    own: Records
    name: Index
    origin_s: float = 0.0
    moves: Table = field(default_factory=lambda: np.empty((0, 2)))
    policy: str = ""
    params: Vector = field(default_factory=lambda: np.empty(0))
    options: Records = field(default_factory=lambda: np.zeros(1, records.OPTIONS))
    plan: SchedulePlan | None = None

    @classmethod
    def empty(cls, vc: str, nodes: Records, now: float) -> Part:
        """Nobody is there; a round may fall on the very start."""
        cluster = np.zeros(1, records.CLUSTER)
        cluster["eligible"], cluster["now_s"] = 1.0, now - 1.0
        cluster["capacity"] = cluster["free_gpus"] = nodes["gpus"].sum()
        cluster["slots"] = len(nodes)
        for name in ("finish_s", "woken_s", "least_left_s", "usable_s"):
            cluster[name] = np.inf
        cluster["checked_s"] = cluster["reviewed_s"] = cluster["backfilled_s"] = -np.inf
        return cls(
            vc=vc,
            rows=np.empty(0, np.int64),
            job=np.zeros(0, records.JOB),
            node=nodes,
            cluster=cluster,
            active=np.empty(0, np.int64),
            where=np.empty((0, 4)),
            shares=np.full((len(nodes), int(nodes["gpus"].max())), -1.0),
            recent=np.zeros(records.RECENT),
            memory=np.zeros(1),
            own=np.zeros(0, np.dtype([("none", np.float64)])),
            name=np.arange(len(nodes)),
        )

    def allocations(self) -> Allocations:
        """Allocations as loops want them."""
        allocations = new_allocations(len(self.job), self.node, self.shares)
        restore(allocations, self.where)
        return allocations

    def store_allocations(self, allocations: Allocations) -> None:
        """Take allocations over from a loop."""
        self.where = allocation_rows(self.job, self.active, int(self.cluster["present"][0]), allocations)

    @property
    def jobs_in_system(self) -> Index:
        """Records of the jobs that are running or waiting."""
        return self.active[: int(self.cluster["present"][0])]

    @property
    def decisions(self) -> int:
        """How many were taken since the beginning."""
        return int(self.cluster["decisions"][0])

    def idle_gpu_s(self, at_s: float = np.inf) -> float:
        """GPU-seconds that nobody used while somebody waited, up to a moment of the trace's clock; infinite: up to the last decision."""
        state = self.cluster[0]
        since = at_s - self.origin_s - float(state["now_s"]) if np.isfinite(at_s) and state["blocked"] > 0 else 0.0
        return float(state["idle_gpu_s"]) + float(state["free_gpus"]) * since

    @property
    def unfinished(self) -> bool:
        """Whether anybody is there or to come."""
        return bool(self.cluster["present"][0] > 0 or self.cluster["arrived"][0] < len(self.job))

    def least_end_s(self) -> Vector:
        """Of each record, before which moment of the trace's clock its job certainly does not end: at full speed from now on."""
        job, now, fastest = self.job, float(self.cluster["now_s"][0]), max(1.0, float(self.node["speed"].max()))
        running = job["status"] == records.RUNNING
        remaining_s = job["remaining_s"] - np.where(running, (now - job["since_s"]) * job["rate"], 0.0)
        least = np.where(job["status"] == records.ABSENT, job["submit_s"], now) + np.maximum(0.0, remaining_s) / fastest
        return np.where(job["status"] == records.ENDED, job["end_s"], least) + self.origin_s

    def add(self, rows: Index, table: Records) -> None:
        """More jobs, after all that are there."""
        own = np.zeros(len(table), self.own.dtype)
        self.rows = np.concatenate([self.rows, rows])
        self.job = np.concatenate([self.job, table]) if len(self.job) else table
        self.own = np.concatenate([self.own, own]) if len(self.own) else own
        self.active = np.concatenate([self.active, np.empty(len(rows), np.int64)])

    def only(self, chosen: NDArray[np.bool_]) -> Part:
        """A copy with some of the records; jobs in the system that are not among them are gone."""
        new_number = np.cumsum(chosen) - 1
        inside = self.jobs_in_system[chosen[self.jobs_in_system]]
        active = np.full(int(chosen.sum()), -1, np.int64)
        active[: len(inside)] = new_number[inside]
        where = self.where[chosen[self.where[:, 0].astype(np.int64)]]
        where[:, 0] = new_number[where[:, 0].astype(np.int64)]
        cluster = self.cluster.copy()
        cluster["arrived"] = int(chosen[: int(self.cluster["arrived"][0])].sum())
        cluster["present"] = len(inside)
        own = self.own[chosen]
        if "partner" in (own.dtype.names or ()):
            paired = own["partner"] >= 0
            own["partner"][paired] = new_number[own["partner"][paired].astype(np.int64)]
        return replace(
            self,
            rows=self.rows[chosen],
            job=self.job[chosen],
            node=self.node.copy(),
            cluster=cluster,
            active=active,
            where=where,
            shares=self.shares.copy(),
            recent=self.recent.copy(),
            memory=self.memory.copy(),
            own=own,
            name=self.name.copy(),
            plan=None,
        )

    def resize(self, nodes: int) -> None:
        """Room for nodes that may still come."""
        more = nodes - len(self.node)
        if more > 0:
            self.node = np.concatenate([self.node, np.zeros(more, self.node.dtype)])
            self.shares = np.concatenate([self.shares, np.full((more, self.shares.shape[1]), -1.0)])
            self.name = np.concatenate([self.name, np.arange(len(self.name), nodes)])

    def run(self, until: float, logging: bool, most_decisions: float = 0.0) -> Table:
        """Let everything happen that happens before `until`, or until as many decisions were taken; returns the changes of GPUs."""
        assert self.plan is not None
        options = self.options.copy()
        options["until_s"], options["logging"], options["most_decisions"] = until, logging, most_decisions
        several = len(np.unique(self.node["kind"])) > 1 and bool((self.job["kind"] >= 0).any())
        if several and options["placement"][0] != records.PLACE_COUNT:
            options["kinds"] = self.node["kind"].max() + 1
        scheduling = self.plan.scheduling
        due, later = self.moves[self.moves[:, 0] < until], self.moves[self.moves[:, 0] >= until]
        self.moves = due
        self.resize(int(self.cluster["slots"][0]) + len(due))
        allocations = self.allocations()
        common = (self.job, self.node, self.cluster, self.active, allocations, self.recent)
        if isinstance(scheduling, OwnLoop):
            log = scheduling.loop(self, allocations, options)
        elif isinstance(scheduling, FixedOrder):
            from autosched.kernel.fixed import run_fixed

            keys = [self.job["rank_key"], *([scheduling.tie] if scheduling.tie is not None else [])]
            newcomers = scheduling.newcomers_by if scheduling.newcomers_by is not None else self.job["rank_key"]
            log = run_fixed(*common, np.stack(keys).astype(np.float64), np.array(newcomers, np.float64), options)
        else:
            from autosched.kernel.jit import COMPILED
            from autosched.kernel.ranked import run_ranked

            loop: Any = run_ranked
            if COMPILED and not hasattr(scheduling.rank, "py_func"):  # a policy in plain Python: the loop runs as plain Python too
                loop = loop.py_func
            log = loop(scheduling.rank, scheduling.wake, *common, self.params, self.memory, options)
        self.store_allocations(allocations)
        self.moves = later
        rows, filled = log
        return rows[: filled[0]]


def policy_of(plan: SchedulePlan) -> str:
    """Who decides, in a word that is the same in every process."""
    scheduling = plan.scheduling
    if isinstance(scheduling, Ranking):
        function: Any = scheduling.rank
        function = getattr(function, "py_func", function)
        return f"{function.__module__}.{function.__qualname__}"
    return "fixed order" if isinstance(scheduling, FixedOrder) else scheduling.name


def params_of(plan: SchedulePlan) -> Vector:
    """The settings of a policy or of a loop, as numbers."""
    if isinstance(plan.scheduling, OwnLoop):
        return np.ascontiguousarray(plan.scheduling.settings).view(np.float64).copy()
    return np.ascontiguousarray(plan.params, np.float64)


def options_of(plan: SchedulePlan, origin: float) -> Records:
    """The options of the loops, as an array of one record; when to stop and whether to log is not among them."""
    policy, placement = plan.scheduling, plan.placement
    options = np.zeros(1, records.OPTIONS)
    if isinstance(policy, Ranking):
        options["round_s"] = policy.round_s
        options["round_offset_s"] = (policy.round_offset_s - origin) % policy.round_s if policy.round_s > 0 else 0.0
        options["walk"] = records.WALK_STRICT if policy.strict else records.WALK_SKIP
        options["review_s"] = policy.review_s
        for name, period_s in (("review", policy.review_s), ("backfill", policy.backfill_every_s)):
            options[f"{name}_offset_s"] = (policy.phase_s - origin) % period_s if period_s > 0 else 0.0
        for name in ("preemptive", "every_event", "backfill", "backfill_every_s", "reserve_all", "backfill_window_s", "resolution_s"):
            options[name] = getattr(policy, name)
        options["origin_s"] = origin
    options["placement"] = _RULES[placement.rule]
    for name in ("remainder_to_emptiest", "largest_first", "pack_limit", "slow_two", "slow_more"):
        options[name] = getattr(placement, name)
    options["tick_s"], options["checkpoint_s"] = plan.workload.tick_s, plan.workload.checkpoint_s
    return options


def job_table(trace: Trace, enter_s: Vector, origin: float) -> Records:
    """The jobs as records for loops, every job absent; what a scheduler makes of them is filled in by `describe`."""
    table = np.zeros(len(trace), records.JOB)
    table["submit_s"] = enter_s - origin
    table["gpus"] = trace.gpus
    table["work_s"] = table["remaining_s"] = trace.duration_s
    table["status"] = records.ABSENT
    table["finish_s"] = np.inf
    table["rate"] = 1.0
    table["start_s"] = table["end_s"] = table["listed"] = -1.0
    return table


def describe(table: Records, trace: Trace, cluster: Cluster, plan: SchedulePlan) -> None:
    """Write what a plan says of each job into its record."""
    estimate = plan.estimate_s if plan.estimate_s is not None else trace.extra.get("estimate_s", trace.duration_s)
    table["estimate_s"] = np.where(np.isnan(estimate), np.inf, estimate)
    table["cost_s"] = plan.workload.cost_s(trace.gpus)
    table["skew"] = trace.extra.get("skew", np.ones(len(trace)))
    kinds = np.asarray([cluster.kinds.index(name) if name and name in cluster.kinds else -1 for name in trace.kind.names], np.float64)
    table["kind"] = kinds[trace.kind.codes]
    table["user"] = trace.user.codes
    table["rank_key"] = plan.key if plan.key is not None else np.arange(len(trace))
    table["fewest"] = fewest_nodes(table["gpus"], table["kind"], cluster)


def fewest_nodes(gpus: Vector, kind: Vector, cluster: Cluster) -> Vector:
    """On how many nodes each job fits if all are free, the largest nodes first."""
    shares = np.ones(len(gpus))
    for number in {-1.0, *np.unique(kind).tolist()}:
        groups = [group for group in cluster.groups if number < 0 or cluster.kinds.index(group.kind) == number]
        mine = kind == number
        if groups and mine.any():
            sizes = np.sort(np.repeat([group.gpus for group in groups], [group.nodes for group in groups]))[::-1]
            shares[mine] = np.searchsorted(np.cumsum(sizes), gpus[mine]) + 1
    return shares

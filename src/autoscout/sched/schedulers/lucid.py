"""Lucid: profile new jobs briefly, order by estimated GPU time, pack jobs that hardly disturb each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.sched.cluster import Cluster
from autoscout.sched.forecast import Forecast
from autoscout.sched.interference import BY_UTILISATION, Interference
from autoscout.sched.kernel import records
from autoscout.sched.kernel.records import Records, Table, Vector
from autoscout.sched.scheduler import Admission, OwnLoop, Plan, Scheduler, believed_s, one_record
from autoscout.sched.schedulers._shared.build import build, seconds_knob
from autoscout.sched.trace import Trace
from autoscout.space import Choice, Grid, Space

__all__ = ["Lucid"]


@dataclass(frozen=True, kw_only=True)
class Lucid:
    """Profiles new jobs briefly, orders by estimated GPU time, packs jobs that hardly disturb each other. Never preempts.

    Of the trace it reads `estimate_s`, and for packing `sharing` (0 tiny, 1 medium, 2 jumbo), `memory_mb`, `gpu_util` and the name
    (as model) where there. Without `sharing` every job counts as jumbo, which rules packing out.

    Attributes:
        profiler_nodes: Nodes set aside for profiling; 0: nobody is profiled, and jobs whose profile is unknown are not packed.
        profiler_from: Virtual clusters that give them, one each; empty: the largest one gives all.
        profiler_s: How long a job is profiled at most.
        profiler_gpus_per_node: Jobs asking for more than this times `profiler_nodes` are not profiled.
        elastic_from: A virtual cluster that lends one more node while many jobs wait for profiling; empty: none.
        pack: Sum of sharing scores up to which two jobs share GPUs; -1: never.
        estimate_factor: A job joins another only if its estimate is at most this times the other's.
        memory_limit_mb: GPU memory that a pair must fit into.
        quiet_jobs: Packing pauses while the forecast says at most this many jobs per ten minutes; -1: it never pauses.
        forecast: Expected arrivals; without it packing never pauses.
        interference: Measured speeds of pairs.
    """

    summary: ClassVar[str] = "profiles new jobs, orders by estimated GPU time, packs jobs onto shared GPUs"

    profiler_nodes: int = 2
    profiler_from: tuple[str, ...] = ()
    profiler_s: float = 200.0
    profiler_gpus_per_node: float = 4.0
    elastic_from: str = ""
    pack: int = 2
    estimate_factor: float = 2.0
    memory_limit_mb: float = 24_576.0
    quiet_jobs: float = 2.0
    forecast: Forecast = field(default_factory=Forecast.none, compare=False)
    interference: Interference = field(default_factory=Interference.none, compare=False)
    scaling: tuple[tuple[float, float], ...] = ()  # filled in by `admit`: when the elastic node comes and goes

    def __post_init__(self) -> None:
        rules = [
            ("profiler_nodes", self.profiler_nodes >= 0, "must not be negative"),
            ("profiler_s", self.profiler_s > 0, "must be above zero"),
            ("pack", self.pack in (-1, 0, 1, 2), "must be -1, 0, 1 or 2"),
            ("estimate_factor", self.estimate_factor > 0, "must be above zero"),
        ]
        faults = [Fault(where="lucid", field=name, value=str(getattr(self, name)), rule=rule) for name, ok, rule in rules if not ok]
        if faults:
            raise ConfigError(faults)

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        nodes = sum(group.nodes for group in cluster.groups)
        most = max(1, min(nodes - 1, round(nodes * 0.05)))
        return Space(
            [
                Grid("profiler_nodes", 0, most, default=min(2, most), sparse=True, help="nodes set aside for profiling"),
                seconds_knob("profiler_s", 30, 1_920, 13, 200, "longest profile", "profiler_nodes >= 1"),
                Choice("pack", [-1, 0, 1, 2], default=2, help="sum of sharing scores up to which two jobs share GPUs"),
                Grid("estimate_factor", values=[0.5, 1.0, 2.0, 4.0, 8.0], log=True, default=2.0, when="pack >= 0"),
                Grid("quiet_jobs", values=[-1.0, 0.0, 1.0, 2.0, 5.0, 10.0], default=2.0, when="pack >= 0", help="packing pauses below"),
            ]
        )

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def admit(self, trace: Trace, cluster: Cluster, origin: float, later: Sequence[tuple[float, Scheduler]] = ()) -> Admission:
        """Send all jobs through the profiler."""
        never = np.full(len(trace), np.nan)
        plans = [self, *(scheduler for _, scheduler in later if isinstance(scheduler, Lucid))]
        if len(plans) <= len(later) or any(each.profiler_nodes != self.profiler_nodes for each in plans):
            rule = "only settings of Lucid can change while jobs are running, and not its number of profiler nodes"
            raise ConfigError(
                Fault(where="changes", field="profiler_nodes", rule=rule, fix="Keep profiler_nodes, or start a new simulation")
            )
        if self.profiler_nodes == 0:
            return Admission(enter_s=trace.submit_s, start_s=never, end_s=never, cluster=cluster, scheduler=self)
        from autoscout.sched.kernel.profiler import run_profiler

        left, size = self._without_profiler(cluster)
        table = np.zeros(len(trace), records.JOB)
        table["submit_s"] = trace.submit_s - origin
        table["gpus"] = np.where(trace.submit_s < origin, np.inf, trace.gpus)  # jobs of a snapshot were profiled before
        table["work_s"] = trace.duration_s
        table["kind"] = -1.0
        forecast = self.forecast.after(origin)
        settings = np.concatenate([each.profiler_options(size, origin) for each in plans])
        placing = one_record(records.OPTIONS, placement=records.PLACE_CONSOLIDATED, remainder_to_emptiest=1.0)
        change_at = np.asarray([-np.inf, *(at_s - origin for at_s, _ in later)])
        nodes = Cluster.parse(f"{self.profiler_nodes + 1}x{size}").table()
        nodes["free"][-1] = 0.0  # the one that may be borrowed
        entered, out, allowed, scaling = run_profiler(table, nodes, placing, settings, change_at, forecast.at_s, forecast.gpus)
        profiled = entered >= 0
        done = profiled & (trace.duration_s <= allowed)
        return Admission(
            enter_s=np.where(profiled, out + origin, trace.submit_s),
            start_s=np.where(done, entered + origin, np.nan),
            end_s=np.where(done, out + origin, np.nan),
            cluster=left,
            scheduler=replace(self, scaling=tuple((float(at), float(change)) for at, change in scaling)),
            extra={
                "profiled": profiled.astype(np.float64),
                "finished_in_profiler": done.astype(np.float64),
                "profiler_wait_s": np.where(profiled, entered - table["submit_s"], 0.0),
            },
        )

    def plan(self, trace: Trace, cluster: Cluster) -> Plan:
        estimate = believed_s(trace)
        return Plan(
            scheduling=OwnLoop(
                loop=lambda job, node, options, origin, settings, change_at: self._run(
                    trace, cluster, job, node, options, origin, settings, change_at
                ),
                settings=self.settings(cluster),
                fixed=(f"profiler_nodes={self.profiler_nodes}", type(self).__name__),
            ),
            key=estimate * trace.gpus,
            estimate_s=estimate,
        )

    def _without_profiler(self, cluster: Cluster) -> tuple[Cluster, int]:
        """The cluster less the profiler's nodes, and how many GPUs each of these has."""
        givers = list(self.profiler_from)
        if not givers:
            sizes = {vc: cluster.part(vc).gpus for vc in cluster.vcs}
            givers = [max(sizes, key=lambda vc: sizes[vc])] * self.profiler_nodes
        groups = list(cluster.groups)
        size = 0
        for vc in givers:
            mine = [number for number, group in enumerate(groups) if group.vc == vc]
            if sum(groups[number].nodes for number in mine) < 2 or len(givers) != self.profiler_nodes:
                raise ConfigError(
                    Fault(
                        where="lucid",
                        field="profiler_from",
                        value=", ".join(givers),
                        rule=f"{self.profiler_nodes} nodes must come from virtual clusters that keep at least one",
                        fix="Name one virtual cluster per node, or set fewer profiler nodes",
                    )
                )
            at = max(mine, key=lambda number: groups[number].nodes)
            size = groups[at].gpus
            groups[at : at + 1] = [replace(groups[at], nodes=groups[at].nodes - 1)] if groups[at].nodes > 1 else []
        return Cluster(groups=tuple(groups)), size

    def profiler_options(self, node_gpus: int, origin: float) -> Records:
        """What the profiler reads, as an array of one record; times from `origin`."""
        from autoscout.sched.kernel.profiler import PROFILER

        gpu_limit = self.profiler_nodes * self.profiler_gpus_per_node
        return one_record(
            PROFILER,
            gpu_limit=min(gpu_limit, self.profiler_nodes * node_gpus),
            time_limit_s=self.profiler_s,
            elastic=bool(self.elastic_from),
            grow_at=10.0,
            grow_every_s=10.0,
            shrink_at=5.0,
            shrink_every_s=100.0,
            calm_gpus=gpu_limit * 5.0,
            clock_zero_s=-origin,
        )

    def settings(self, cluster: Cluster) -> Records:
        """What the main loop reads, all of which may change in flight, as an array of one record; times on the trace's clock."""
        from autoscout.sched.kernel.lucid import LUCID

        return one_record(
            LUCID,
            memory_limit_mb=self.memory_limit_mb,
            score_limit=self.pack,
            estimate_factor=self.estimate_factor,
            quiet_jobs=self.quiet_jobs if len(self.forecast.at_s) else -1.0,
            pack_gpus=max(group.gpus for group in cluster.groups),
            restore=1.0,
            check_every_s=100.0,
        )

    def _run(
        self,
        trace: Trace,
        cluster: Cluster,
        job: Records,
        node: Records,
        options: Records,
        origin: float,
        settings: Records,
        change_at: Vector,
    ) -> tuple[Table, int, dict[str, Vector]]:
        from autoscout.sched.kernel.lucid import Pairs, run_lucid

        mine = self.scaling if cluster.vcs == (self.elastic_from,) else ()
        scaling = np.asarray([(at, -change) for at, change in mine], np.float64).reshape(-1, 2)
        nodes = np.concatenate([node, np.zeros(len(scaling), node.dtype)])
        forecast = self.forecast.after(origin)
        profile = self._profiles(trace)
        settings = settings.copy()
        settings["clock_zero_s"] -= origin
        if not len(forecast.at_s):
            settings["quiet_jobs"] = -1.0
        (rows, filled), decisions = run_lucid(
            job,
            profile,
            nodes,
            np.arange(len(nodes)),
            scaling,
            Pairs(self.interference.joining, self.interference.hosting, np.asarray(BY_UTILISATION)),
            forecast.at_s,
            forecast.jobs,
            settings,
            change_at,
            options,
        )
        packed = np.where(profile["packed_at_s"] >= 0, profile["packed_at_s"] + origin, np.nan)
        return rows[: filled[0]], decisions, {"packed_at_s": packed}

    def _profiles(self, trace: Trace) -> Records:
        from autoscout.sched.kernel.lucid import PROFILE

        jobs = len(trace)
        profile = np.zeros(jobs, PROFILE)
        profile["score"] = trace.extra.get("sharing", np.full(jobs, 2.0)) if self.profiler_nodes else 3.0
        profile["memory_mb"] = trace.extra.get("memory_mb", np.zeros(jobs))
        profile["utilisation"] = trace.extra.get("gpu_util", np.full(jobs, 100.0))
        place = {name: number for number, name in enumerate(self.interference.models)}
        profile["model"] = np.asarray([place.get(name, -1) for name in trace.name.names], np.float64)[trace.name.codes]
        profile["partner"] = profile["packed_at_s"] = -1.0
        profile["full_rate"] = 1.0
        return profile

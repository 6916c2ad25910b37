"""Lucid: profile new jobs briefly, order by estimated GPU time, pack jobs that hardly disturb each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from autosched.kernel.records import Allocations, Log, Records
from autosched.schedulers._shared.build import build, seconds_knob
from autosched.sim.cluster import Cluster
from autosched.sim.forecast import Forecast
from autosched.sim.interference import BY_UTILISATION, Interference
from autosched.sim.scheduler import Gate, OwnLoop, SchedulePlan, believed_s, one_record
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Choice, Grid, Space

if TYPE_CHECKING:
    from autosched.sim.part import Part

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

    needs: ClassVar[Mapping[str, str]] = dict.fromkeys(("pack", "estimate_factor", "quiet_jobs"), "sharing")
    """Knob -> column of the trace without which it does nothing: nobody is packed without a sharing score."""
    believing: ClassVar[Mapping[str, bool]] = {}
    """Goes by estimates wherever the trace has them."""
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

    def gate(self, cluster: Cluster, origin: float) -> Gate | None:
        """The profiler: new jobs run there first."""
        if self.profiler_nodes == 0:
            return None
        nodes, size, rest = self._without_profiler(cluster)
        forecast = self.forecast.after(origin)
        settings = self.profiler_options(size, origin)

        def loop(part: Part, allocations: Allocations, options: Records) -> Log:
            from autosched.kernel.profiler import run_profiler

            common = (part.job, part.node, part.cluster, part.active, allocations)
            moves: Log = run_profiler(*common, options, settings, forecast.at_s, forecast.gpus)
            return moves

        return Gate(nodes=nodes, gpus=size, rest=rest, loop=loop, settings=settings, lender=self.elastic_from)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        estimate = believed_s(trace)
        return SchedulePlan(
            scheduling=OwnLoop(
                loop=self._run,
                name=type(self).__name__,
                settings=self.settings(cluster),
                own=self._profiles(trace),
                loop_fields=("partner", "packed_at_s", "alone", "full_rate"),
            ),
            key=estimate * trace.gpus,
            estimate_s=estimate,
        )

    def _without_profiler(self, cluster: Cluster) -> tuple[tuple[tuple[str, int], ...], int, Cluster]:
        """The nodes that the profiler takes, how many GPUs each of them has, and the cluster that is left."""
        givers = list(self.profiler_from)
        if not givers:
            sizes = {vc: cluster.nodes_of(vc).gpus for vc in cluster.vcs}
            givers = [max(sizes, key=lambda vc: sizes[vc])] * self.profiler_nodes
        groups = [(group, group.nodes) for group in cluster.groups]  # each with the nodes that are left of it
        taken = []
        size = 0
        for vc in givers:
            mine = [number for number, (group, count) in enumerate(groups) if group.vc == vc and count > 0]
            if sum(groups[number][1] for number in mine) < 2 or len(givers) != self.profiler_nodes:
                raise ConfigError(
                    Fault(
                        where="lucid",
                        field="profiler_from",
                        value=", ".join(givers),
                        rule=f"{self.profiler_nodes} nodes must come from virtual clusters that keep at least one",
                        fix="Name one virtual cluster per node, or set fewer profiler nodes",
                    )
                )
            at = max(mine, key=lambda number: groups[number][1])
            group, count = groups[at]
            size = group.gpus
            before = sum(other.nodes for other, _ in groups[:at] if other.vc == vc)
            taken.append((vc, before + count - 1))
            groups[at] = (group, count - 1)
        return tuple(taken), size, Cluster(groups=tuple(replace(group, nodes=count) for group, count in groups if count > 0))

    def profiler_options(self, node_gpus: int, origin: float) -> Records:
        """What the profiler reads, as an array of one record; times from `origin`."""
        from autosched.kernel.profiler import PROFILER

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
        """What the main loop reads, as an array of one record; times on the trace's clock."""
        from autosched.kernel.lucid import LUCID

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

    def _run(self, part: Part, allocations: Allocations, options: Records) -> Log:
        from autosched.kernel.lucid import LUCID, Pairs, run_lucid

        origin = part.origin_s
        forecast = self.forecast.after(origin)
        settings = part.params.view(LUCID).copy()
        settings["clock_zero_s"] -= origin
        if not len(forecast.at_s):
            settings["quiet_jobs"] = -1.0
        pairs = Pairs(self.interference.joining, self.interference.hosting, np.asarray(BY_UTILISATION))
        common = (part.job, part.node, part.cluster, part.active, allocations, part.recent)
        log: Log = run_lucid(*common, part.own, part.name, part.moves, pairs, forecast.at_s, forecast.jobs, settings, options)
        return log

    def _profiles(self, trace: Trace) -> Records:
        from autosched.kernel.lucid import PROFILE

        jobs = len(trace)
        profile = np.zeros(jobs, PROFILE)
        profile["score"] = trace.extra.get("sharing", np.full(jobs, 2.0)) if self.profiler_nodes else 3.0
        profile["memory_mb"] = trace.extra.get("memory_mb", np.zeros(jobs))
        profile["utilisation"] = trace.extra.get("gpu_util", np.full(jobs, 100.0))
        number_of = {name: number for number, name in enumerate(self.interference.models)}
        profile["model"] = np.asarray([number_of.get(name, -1) for name in trace.name.names], np.float64)[trace.name.codes]
        profile["partner"] = profile["packed_at_s"] = -1.0
        profile["full_rate"] = 1.0
        return profile

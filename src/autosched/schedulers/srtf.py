"""SRTF: the shortest remaining time first, preemptive, by true or believed durations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from autosched.kernel.records import WALK_SKIP, Allocations, Log, Records
from autosched.schedulers._shared.build import build, placement_knob
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import OwnLoop, Placement, Ranking, SchedulePlan, believed_s
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.space import Flag, Space

if TYPE_CHECKING:
    from autosched.sim.part import Part

__all__ = ["SRTF"]


@dataclass(frozen=True, kw_only=True)
class SRTF:
    """The job with the least work left runs; others make room.

    Attributes:
        oracle: Order by true durations; off: by the trace's `estimate_s` where it has one, in rounds.
        by_gpu_time: Order by remaining time x GPUs instead of remaining time.
        placement: Rule of `Placement`.
        round_s: Seconds between decisions by believed durations: a job that outlives its estimate changes the order at any moment.
    """

    believing: ClassVar[Mapping[str, bool]] = {"oracle": False}
    """Fields under which it goes by estimates."""
    summary: ClassVar[str] = "the shortest remaining time first, preemptive"

    oracle: bool = True
    by_gpu_time: bool = False
    placement: str = "consolidated"
    round_s: float = 60.0

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space([Flag("by_gpu_time", help="order by remaining time x GPUs"), placement_knob()])

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        if not self.oracle:
            return self.by_estimate(trace)
        plan = self.ranked()
        if self.by_gpu_time or self.placement != "consolidated" or {(group.kind, group.speed) for group in cluster.groups} != {("", 1.0)}:
            return plan
        # all run at one speed, so that nobody who runs overtakes another: the loop for that is faster, and decides the same
        nothing = np.dtype([("none", np.float64)])
        loop = OwnLoop(loop=_run, name="shortest first", settings=np.zeros(1, nothing), own=np.zeros(len(trace), nothing))
        return replace(plan, scheduling=loop)

    def ranked(self) -> SchedulePlan:
        """A plan for the general loop."""
        from autosched.kernel.remaining import rank_by_remaining, wake_by_remaining

        return SchedulePlan(
            scheduling=Ranking(rank=rank_by_remaining, wake=wake_by_remaining, preemptive=True),
            placement=Placement(rule=self.placement),
            params=np.asarray([float(self.by_gpu_time)]),
        )

    def by_estimate(self, trace: Trace) -> SchedulePlan:
        """A plan that knows estimates only."""
        from autosched.kernel.remaining import rank_by_believed, wake_by_believed

        return SchedulePlan(
            scheduling=Ranking(rank=rank_by_believed, wake=wake_by_believed, preemptive=True, round_s=self.round_s),
            placement=Placement(rule=self.placement),
            params=np.asarray([float(self.by_gpu_time)]),
            estimate_s=believed_s(trace),
        )


def _run(part: Part, allocations: Allocations, options: Records) -> Log:
    from autosched.kernel.shortest import run_shortest

    options["walk"] = WALK_SKIP
    log: Log = run_shortest(part.job, part.node, part.cluster, part.active, allocations, part.recent, options)
    return log

"""SRTF: the shortest remaining time first, preemptive, with an oracle for durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from autoscout.core.config import Config
from autoscout.sched.cluster import Cluster
from autoscout.sched.scheduler import Placement, Plan, Ranking
from autoscout.sched.schedulers._shared.build import build, placement_knob
from autoscout.sched.trace import Trace
from autoscout.space import Flag, Space

__all__ = ["SRTF"]


@dataclass(frozen=True, kw_only=True)
class SRTF:
    """The job with the least work left runs; others make room.

    Attributes:
        by_gpu_time: Order by remaining time x GPUs instead of remaining time.
        placement: Rule of `Placement`.
    """

    summary: ClassVar[str] = "the shortest remaining time first, preemptive, with an oracle"

    by_gpu_time: bool = False
    placement: str = "consolidated"

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space([Flag("by_gpu_time", help="order by remaining time x GPUs"), placement_knob()])

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> Plan:
        from autoscout.sched.kernel.remaining import rank_by_remaining, wake_by_remaining

        return Plan(
            scheduling=Ranking(rank=rank_by_remaining, wake=wake_by_remaining, preemptive=True),
            placement=Placement(rule=self.placement),
            params=np.asarray([float(self.by_gpu_time)]),
        )

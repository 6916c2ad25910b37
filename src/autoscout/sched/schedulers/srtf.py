"""SRTF: the shortest remaining time first, preemptive, with an oracle for durations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from autoscout.core.config import Config
from autoscout.sched.cluster import Cluster
from autoscout.sched.scheduler import LUCID_COST, TITAN_COST, Placement, Plan, Ranking, Workload
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
        round_s: Seconds between decisions; 0 decides at every event.
        preemption_free: Preemption costs nothing.
        lucid: Behave like Lucid's artifact: one-second ticks, its preemption cost, its ties.
    """

    summary: ClassVar[str] = "the shortest remaining time first, preemptive, with an oracle"

    by_gpu_time: bool = False
    placement: str = "consolidated"
    round_s: float = 0.0
    preemption_free: bool = False
    lucid: bool = False

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space([Flag("by_gpu_time", help="order by remaining time x GPUs"), placement_knob()])

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> Plan:
        from autoscout.sched.kernel.remaining import rank_by_remaining, wake_by_remaining

        cost = ((None, 0.0),) if self.preemption_free else LUCID_COST if self.lucid else TITAN_COST
        return Plan(
            scheduling=Ranking(
                rank=rank_by_remaining, wake=wake_by_remaining, preemptive=True, round_s=1.0 if self.lucid else self.round_s
            ),
            placement=Placement(rule=self.placement, remainder_to_emptiest=self.lucid),
            workload=Workload(preemption_cost_s=cost, tick_s=1.0 if self.lucid else 0.0),
            params=np.asarray([float(self.by_gpu_time), 1.0 if self.lucid else 0.0]),
        )

"""FIFO: first come, first served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from autosched.schedulers._shared.build import build, placement_knob
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import FixedOrder, Placement, Ranking, SchedulePlan
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.space import Flag, Space

__all__ = ["FIFO"]


@dataclass(frozen=True, kw_only=True)
class FIFO:
    """First come, first served.

    Attributes:
        overtake: Whether later jobs may start while an earlier one does not fit (`fjf` of the Tiresias simulator).
        placement: Rule of `Placement`.
    """

    summary: ClassVar[str] = "first come, first served"

    overtake: bool = False
    placement: str = "consolidated"

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space([Flag("overtake", help="later jobs may start while an earlier one does not fit"), placement_knob()])

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        placement = Placement(rule=self.placement)
        if not self.overtake:
            return SchedulePlan(scheduling=FixedOrder(), placement=placement)
        from autosched.kernel.policies import by_fixed_key, never

        return SchedulePlan(scheduling=Ranking(rank=by_fixed_key, wake=never), placement=placement)

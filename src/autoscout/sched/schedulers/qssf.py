"""QSSF: the quasi-shortest service first (Helios), by estimated duration times GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from autoscout.core.config import Config
from autoscout.sched.cluster import Cluster
from autoscout.sched.scheduler import FixedOrder, Placement, Plan, believed_s
from autoscout.sched.schedulers._shared.build import build, placement_knob
from autoscout.sched.trace import Trace
from autoscout.space import Space

__all__ = ["QSSF"]


@dataclass(frozen=True, kw_only=True)
class QSSF:
    """The waiting job with the least estimated GPU time first; nobody is preempted, nobody overtakes.

    Attributes:
        newcomers_by_gpus: Jobs that arrive while nobody waits are tried by size, whatever their estimates (Lucid's artifact).
        placement: Rule of `Placement`.
        remainder_to_emptiest: Put the rest of multi-node jobs where Lucid's artifact does.
    """

    summary: ClassVar[str] = "the least estimated GPU time first, not preemptive"

    newcomers_by_gpus: bool = False
    placement: str = "consolidated"
    remainder_to_emptiest: bool = False

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space([placement_knob()])

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> Plan:
        estimate = believed_s(trace)
        scheduling = FixedOrder(tie=trace.gpus, newcomers_by=trace.gpus if self.newcomers_by_gpus else None)
        placement = Placement(rule=self.placement, remainder_to_emptiest=self.remainder_to_emptiest)
        return Plan(scheduling=scheduling, placement=placement, key=estimate * trace.gpus, estimate_s=estimate)

"""QSSF: the quasi-shortest service first (Helios), by estimated duration times GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from autosched.schedulers._shared.build import build, placement_knob
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import FixedOrder, Placement, SchedulePlan, believed_s
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.space import Space

__all__ = ["QSSF"]


@dataclass(frozen=True, kw_only=True)
class QSSF:
    """The waiting job with the least estimated GPU time first; nobody is preempted, nobody overtakes.

    Attributes:
        placement: Rule of `Placement`.
    """

    believing: ClassVar[Mapping[str, bool]] = {}
    """Goes by estimates wherever the trace has them."""
    summary: ClassVar[str] = "the least estimated GPU time first, not preemptive"

    placement: str = "consolidated"

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space([placement_knob()])

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        estimate = believed_s(trace)
        return SchedulePlan(
            scheduling=FixedOrder(tie=trace.gpus),
            placement=Placement(rule=self.placement),
            key=estimate * trace.gpus,
            estimate_s=estimate,
        )

"""SJF: the shortest job first, by its true or believed duration."""

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

__all__ = ["SJF"]


@dataclass(frozen=True, kw_only=True)
class SJF:
    """The shortest waiting job first; nobody is preempted, nobody overtakes.

    Attributes:
        oracle: Order by true durations; off: by the trace's `estimate_s` where it has one.
        placement: Rule of `Placement`.
    """

    believing: ClassVar[Mapping[str, bool]] = {"oracle": False}
    """Fields under which it goes by estimates."""
    summary: ClassVar[str] = "the shortest job first, not preemptive"

    oracle: bool = True
    placement: str = "consolidated"

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space([placement_knob()])

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        key = trace.duration_s if self.oracle else believed_s(trace)
        return SchedulePlan(scheduling=FixedOrder(), placement=Placement(rule=self.placement), key=key)

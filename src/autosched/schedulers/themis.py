"""Themis: GPUs are leased to the jobs that are treated worst, by finish-time fairness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from autosched.schedulers._shared.build import build, seconds_knob
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import Placement, Ranking, SchedulePlan
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Choice, Grid, Space

__all__ = ["Themis"]


@dataclass(frozen=True, kw_only=True)
class Themis:
    """GPUs are leased; when a lease ends they are offered to the share of jobs that is treated worst.

    Attributes:
        priority: Unit of the lease: `time` (seconds) or `service` (GPU-seconds).
        lease_s: Length of a lease in that unit.
        fairness: The paper's f: the offer goes to the worst treated share 1 - f of the candidates.
        spread_above: A candidate whose rho is above it may be spread over nodes; 0: nobody is spread.
        spread_by_wait: Judge by waiting seconds instead of rho.
        round_s: Seconds between decisions.
    """

    summary: ClassVar[str] = "GPUs are leased to the jobs that are treated worst"

    priority: str = "time"
    lease_s: float = 1_200.0
    fairness: float = 0.8
    spread_above: float = 0.0
    spread_by_wait: bool = False
    round_s: float = 60.0

    def __post_init__(self) -> None:
        rules = [
            ("priority", self.priority in ("time", "service"), "must be time or service"),
            ("lease_s", self.lease_s > 0, "must be above zero"),
            ("fairness", 0 <= self.fairness < 1, "must be at least 0 and below 1"),
            ("spread_above", self.spread_above >= 0, "must not be negative"),
            ("round_s", self.round_s >= 0, "must not be negative"),
        ]
        faults = [Fault(where="themis", field=name, value=str(getattr(self, name)), rule=rule) for name, ok, rule in rules if not ok]
        if faults:
            raise ConfigError(faults)

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        return Space(
            [
                Choice("priority", ["time", "service"], default="time", help="unit of the lease"),
                seconds_knob("lease_s", 60, 14_400, 17, 1_200, "length of a lease"),
                Grid("fairness", 0.0, 0.95, step=0.05, default=0.8, help="the offer goes to the worst treated share 1 - f"),
                Grid("spread_above", values=[0.0, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0], default=0.0, help="rho above which a job may be spread"),
            ]
        )

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        from autosched.kernel.fairness import rank_by_fairness, wake_by_fairness

        spread = self.spread_above > 0
        return SchedulePlan(
            scheduling=Ranking(
                rank=rank_by_fairness,
                wake=wake_by_fairness,
                memory=np.zeros(2),
                preemptive=True,
                round_s=self.round_s,
                every_event=True,
            ),
            placement=Placement(
                rule="relaxed" if spread else "consolidated",
                largest_first=True,
                pack_limit=0.5 if spread else np.inf,
            ),
            params=np.asarray(
                [self.lease_s, float(self.priority == "service"), 1.0 - self.fairness, self.spread_above, float(self.spread_by_wait)]
            ),
        )

"""Slurm-like: multifactor priority with backfill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.sched.cluster import Cluster
from autoscout.sched.scheduler import Placement, Plan, Ranking
from autoscout.sched.schedulers._build import build, placement_knob, seconds_knob
from autoscout.sched.trace import Trace
from autoscout.space import Flag, Grid, Space

__all__ = ["Slurm"]


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Multifactor priority with backfill behind one reservation; nobody is preempted. Names follow slurm.conf.

    Time limits are the trace's `estimate_s` where it has one (as `sacct` gives them), else the true durations.

    Attributes:
        priority_weight_age, priority_weight_fairshare, priority_weight_job_size: Weights of the factors.
        priority_max_age_s: Age at which the age factor is full.
        priority_decay_half_life_s: How fast past usage is forgotten; 0: never.
        priority_favor_small: Small jobs rather than large ones get the size factor.
        bf_max_job_test: Jobs tried behind the first one that does not fit; 0: no backfill.
        bf_interval_s: Seconds between decisions; 0 decides at every event.
        placement: Rule of `Placement`.
    """

    summary: ClassVar[str] = "multifactor priority with backfill, as Slurm does"

    priority_weight_age: int = 1_000
    priority_weight_fairshare: int = 0
    priority_weight_job_size: int = 0
    priority_max_age_s: float = 604_800.0
    priority_decay_half_life_s: float = 604_800.0
    priority_favor_small: bool = False
    bf_max_job_test: int = 500
    bf_interval_s: float = 30.0
    placement: str = "consolidated"

    def __post_init__(self) -> None:
        rules = [
            ("priority_max_age_s", self.priority_max_age_s > 0, "must be above zero"),
            ("priority_decay_half_life_s", self.priority_decay_half_life_s >= 0, "must not be negative"),
            ("bf_max_job_test", self.bf_max_job_test >= 0, "must not be negative"),
            ("bf_interval_s", self.bf_interval_s >= 0, "must not be negative"),
        ]
        faults = [Fault(where="slurm", field=name, value=str(getattr(self, name)), rule=rule) for name, ok, rule in rules if not ok]
        if faults:
            raise ConfigError(faults)

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        weights = [0, 1, 10, 100, 1_000, 10_000, 100_000]
        return Space(
            [
                Grid("priority_weight_age", values=weights, default=1_000),
                Grid("priority_weight_fairshare", values=weights, default=0),
                Grid("priority_weight_job_size", values=weights, default=0),
                Flag("priority_favor_small", when="priority_weight_job_size > 0"),
                seconds_knob("priority_max_age_s", 3_600, 2_419_200, 15, 604_800, "age at which the age factor is full"),
                seconds_knob(
                    "priority_decay_half_life_s", 3_600, 2_419_200, 15, 604_800, "memory of usage", "priority_weight_fairshare > 0"
                ),
                Grid("bf_max_job_test", values=[0, 10, 50, 100, 500, 1_000, 5_000], default=500),
                seconds_knob("bf_interval_s", 5, 600, 8, 30, "between decisions"),
                placement_knob(),
            ]
        )

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> Plan:
        from autoscout.sched.kernel.multifactor import note_users, rank_by_factors

        users = len(trace.user.names)
        memory = np.zeros(2 + 2 * users)
        memory[1] = users
        limits = trace.extra.get("estimate_s", trace.duration_s)
        return Plan(
            scheduling=Ranking(
                rank=rank_by_factors,
                wake=note_users,
                memory=memory,
                strict=True,
                backfill=self.bf_max_job_test,
                round_s=self.bf_interval_s,
                every_event=self.priority_weight_fairshare > 0,
            ),
            placement=Placement(rule=self.placement),
            estimate_s=np.where(np.isfinite(limits), limits, np.inf),
            params=np.asarray(
                [
                    self.priority_weight_age,
                    self.priority_weight_fairshare,
                    self.priority_weight_job_size,
                    self.priority_max_age_s,
                    self.priority_decay_half_life_s,
                    float(self.priority_favor_small),
                ],
                np.float64,
            ),
        )

"""Slurm-like: multifactor priority with backfill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from autosched.kernel.records import Vector
from autosched.schedulers._shared.build import build, placement_knob, seconds_knob
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import Placement, Ranking, SchedulePlan
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Flag, Grid, Space

__all__ = ["Slurm"]


@dataclass(frozen=True, kw_only=True)
class Slurm:
    """Multifactor priority with backfill; nobody is preempted. Names follow slurm.conf.

    Jobs start in order at every event, and behind the first that must wait by backfill. Time limits are the trace's `estimate_s` where it
    has one (as `sacct` gives them), else the true durations. Priorities of the quality of service are its column `qos`, those of
    partitions that share their nodes its column `partition_priority`, both scaled by the highest.

    Attributes:
        priority_weight_age, priority_weight_fairshare, priority_weight_job_size, priority_weight_qos, priority_weight_partition: Weights of
            the factors.
        priority_max_age_s: Age at which the age factor is full.
        priority_decay_half_life_s: How fast past usage is forgotten; 0: never.
        priority_calc_period_s: Seconds after which priorities are calculated anew; 0: at every decision.
        priority_favor_small: Small jobs rather than large ones get the size factor.
        bf_max_job_test: Jobs tried by backfill; 0: none, nobody overtakes.
        bf_conservative: All of them that cannot start get reservations, which nobody behind may delay, as in Slurm; off: only the first
            one does (EASY), which is several times faster to simulate. Reservations are of whole nodes.
        bf_window_s: Reservations begin no further ahead; jobs that would begin later get none.
        bf_resolution_s: Grid of the plan on which reservations are made; coarser is faster and wastes more.
        bf_interval_s: Seconds between two backfills at least; 0: one at every event.
        began_s: On the trace's clock, when slurmctld was started: its periods begin there.
        placement: Rule of `Placement`.
    """

    alone: ClassVar[str] = "goes by the time limits of users, in whose place a choice of policies puts predicted durations"
    """Why it is no policy among others."""
    needs: ClassVar[Mapping[str, str]] = {"priority_weight_qos": "qos", "priority_weight_partition": "partition_priority"}
    summary: ClassVar[str] = "multifactor priority with backfill, as Slurm does"

    priority_weight_age: int = 1_000
    priority_weight_fairshare: int = 0
    priority_weight_job_size: int = 0
    priority_weight_qos: int = 0
    priority_weight_partition: int = 0
    priority_max_age_s: float = 604_800.0
    priority_decay_half_life_s: float = 604_800.0
    priority_calc_period_s: float = 300.0
    priority_favor_small: bool = False
    bf_max_job_test: int = 500
    bf_conservative: bool = False
    bf_window_s: float = 86_400.0
    bf_resolution_s: float = 60.0
    bf_interval_s: float = 30.0
    began_s: float = 0.0
    placement: str = "consolidated"

    def __post_init__(self) -> None:
        rules = [
            ("priority_max_age_s", self.priority_max_age_s > 0, "must be above zero"),
            ("priority_decay_half_life_s", self.priority_decay_half_life_s >= 0, "must not be negative"),
            ("priority_calc_period_s", self.priority_calc_period_s >= 0, "must not be negative"),
            ("bf_max_job_test", self.bf_max_job_test >= 0, "must not be negative"),
            ("bf_window_s", self.bf_window_s >= 0, "must not be negative"),
            ("bf_resolution_s", self.bf_resolution_s > 0, "must be above zero"),
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
                Grid("priority_weight_qos", values=weights, default=0, help="needs a column qos in the trace"),
                Grid("priority_weight_partition", values=weights, default=0, help="needs a column partition_priority in the trace"),
                Flag("priority_favor_small", when="priority_weight_job_size > 0"),
                seconds_knob("priority_max_age_s", 3_600, 2_419_200, 15, 604_800, "age at which the age factor is full"),
                seconds_knob(
                    "priority_decay_half_life_s", 3_600, 2_419_200, 15, 604_800, "memory of usage", "priority_weight_fairshare > 0"
                ),
                Grid("priority_calc_period_s", values=[300.0], default=300.0, unit="s", help="between two calculations of priorities"),
                Grid("bf_max_job_test", values=[0, 10, 50, 100, 500, 1_000, 5_000], default=500),
                Flag("bf_conservative", when="bf_max_job_test > 0", help="reservations for all, not the first alone"),
                seconds_knob("bf_window_s", 3_600, 2_419_200, 12, 86_400, "how far ahead reservations begin", "bf_conservative"),
                seconds_knob("bf_resolution_s", 1, 3_600, 9, 60, "grid of the plan", "bf_conservative"),
                seconds_knob("bf_interval_s", 5, 600, 8, 30, "between backfills"),
                placement_knob(),
            ]
        )

    @classmethod
    def of(cls, config: Config) -> Self:
        return build(cls, config)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        from autosched.kernel.multifactor import FACTOR, PER_USER, RANKED, USED, note_users, rank_by_factors

        memory = np.zeros(USED + PER_USER * len(trace.user.names))
        memory[RANKED], memory[FACTOR::PER_USER] = -np.inf, 1.0
        limits = trace.extra.get("estimate_s", trace.duration_s)
        weighted = (("qos", self.priority_weight_qos), ("partition_priority", self.priority_weight_partition))
        return SchedulePlan(
            scheduling=Ranking(
                rank=rank_by_factors,
                wake=note_users,
                memory=memory,
                strict=True,
                backfill=self.bf_max_job_test,
                reserve_all=self.bf_conservative,
                backfill_window_s=self.bf_window_s,
                resolution_s=self.bf_resolution_s,
                backfill_every_s=self.bf_interval_s,
                review_s=self.priority_calc_period_s,
                phase_s=self.began_s,
                every_event=self.priority_weight_fairshare > 0,
            ),
            placement=Placement(rule=self.placement),
            key=sum((weight * _scaled(trace, column) for column, weight in weighted), np.zeros(len(trace))),
            estimate_s=np.where(np.isfinite(limits), limits, np.inf),
            params=np.asarray(
                [
                    self.priority_weight_age,
                    self.priority_weight_fairshare,
                    self.priority_weight_job_size,
                    self.priority_max_age_s,
                    self.priority_decay_half_life_s,
                    float(self.priority_favor_small),
                    sum(group.nodes for group in cluster.groups),
                    self.priority_weight_qos,
                    self.priority_weight_partition,
                ],
                np.float64,
            ),
        )


def _scaled(trace: Trace, column: str) -> Vector:
    """A column, nothing where there is none, as a share of the highest."""
    values = np.nan_to_num(trace.extra.get(column, np.zeros(len(trace))))
    return values / max(1.0, float(values.max(initial=0.0)))

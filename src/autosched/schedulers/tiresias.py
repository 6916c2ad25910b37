"""Tiresias: jobs sink through priority queues as they use up service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from autosched.kernel.records import RECENT, Vector
from autosched.schedulers._shared.build import build, placement_knob, seconds_knob
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import Placement, Ranking, SchedulePlan
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Choice, Grid, Space

__all__ = ["Tiresias"]

_PRIORITIES = ("time", "service", "gittins")
_MOST_QUEUES = 6
_RATIOS = [1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0]


@dataclass(frozen=True, kw_only=True)
class Tiresias:
    """Jobs sink through priority queues as they use up service; inside a queue by arrival. Preemptive, knows no durations.

    Attributes:
        priority: What counts as used: `time` (seconds run), `service` (seconds x GPUs, 2D-LAS) or `gittins` (service, and inside a
            queue the highest Gittins index over past services first).
        queues: How many queues.
        thresholds: Where one queue ends and the next begins, in seconds or GPU-seconds, rising; one less than queues.
        starve_limit_s: A job that waits this long returns to the first queue; 0: never.
        promote: A job that waits this many times the time it has run returns to the first queue; 0: never (the original rule).
        pack_limit: With relaxed placement: jobs with a sensitivity (`skew`) above it are never spread over more nodes than needed.
        round_s: Seconds between decisions; 0 decides at every event.
        history: GPU-seconds of past jobs for the Gittins index; empty: those of the latest jobs that ended in the run.
        quantum: Service quantum of the Gittins index in the last queue.
    """

    needs: ClassVar[Mapping[str, str]] = {"pack_limit": "skew"}
    """Knob -> column of the trace without which it does nothing."""
    summary: ClassVar[str] = "jobs sink through priority queues as they use up service"

    priority: str = "service"
    queues: int = 2
    thresholds: tuple[float, ...] = (18_000.0,)
    starve_limit_s: float = 0.0
    promote: float = 0.0
    pack_limit: float = np.inf
    placement: str = "consolidated"
    round_s: float = 60.0
    history: tuple[float, ...] = ()
    quantum: float = 3_250.0

    def __post_init__(self) -> None:
        faults = []
        if self.priority not in _PRIORITIES:
            faults.append(Fault(where="tiresias", field="priority", value=self.priority, rule=f"must be one of {', '.join(_PRIORITIES)}"))
        if self.queues < 1 or len(self.thresholds) != self.queues - 1:
            faults.append(
                Fault(
                    where="tiresias",
                    field="thresholds",
                    value=str(self.thresholds),
                    rule=f"{self.queues} queues need {self.queues - 1} thresholds",
                )
            )
        if any(low >= high for low, high in zip((0.0, *self.thresholds), self.thresholds, strict=False)):
            faults.append(Fault(where="tiresias", field="thresholds", value=str(self.thresholds), rule="must rise from above zero"))
        for name in ("starve_limit_s", "promote", "round_s"):
            if getattr(self, name) < 0:
                faults.append(Fault(where="tiresias", field=name, value=str(getattr(self, name)), rule="must not be negative"))
        if faults:
            raise ConfigError(faults)

    @classmethod
    def space(cls, cluster: Cluster) -> Space:
        """Thresholds are a first one and ratios between neighbours, so that every combination rises."""
        thresholds = sorted({float(round(60 * 2 ** (step / 2))) for step in range(33)} | {18_000.0})
        return Space(
            [
                Choice("priority", list(_PRIORITIES), default="service", help="what counts as used"),
                Grid("queues", 1, _MOST_QUEUES, default=2, sparse=True, help="how many priority queues"),
                Grid("threshold", values=thresholds, log=True, default=18_000.0, when="queues >= 2", help="end of the first queue"),
                *(
                    Grid(f"ratio_{number}", values=_RATIOS, log=True, default=4.0, when=f"queues >= {number}", help="to the end before")
                    for number in range(3, _MOST_QUEUES + 1)
                ),
                Choice("starvation", ["off", "limit", "promote"], default="off", help="which rule brings jobs back to the first queue"),
                seconds_knob("starve_limit_s", 600, 604_800, 15, 86_400, "wait until a return", "starvation == 'limit'"),
                Grid(
                    "promote", values=[0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 100.0, 1000.0], log=True, default=8.0, when="starvation == 'promote'"
                ),
                placement_knob(),
                Grid("pack_limit", values=[1.0, 1.5, 2.0, 3.0, 4.0], default=1.0, when="placement == 'relaxed'"),
            ]
        )

    @classmethod
    def of(cls, config: Config) -> Self:
        queues = int(config.get("queues", 2))  # type: ignore[arg-type]
        thresholds = [float(config.get("threshold", 18_000.0))] if queues >= 2 else []  # type: ignore[arg-type]
        for number in range(3, queues + 1):
            thresholds.append(thresholds[-1] * float(config.get(f"ratio_{number}", 4.0)))  # type: ignore[arg-type]
        names = dict.fromkeys(("threshold", "starvation", *(f"ratio_{number}" for number in range(3, _MOST_QUEUES + 1))))
        return build(cls, config, thresholds=tuple(thresholds), **names)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        from autosched.kernel.attained import LEARNT, THRESHOLDS, rank_by_attained, wake_by_attained

        learns = self.priority == "gittins" and not self.history
        return SchedulePlan(
            scheduling=Ranking(
                rank=rank_by_attained,
                wake=wake_by_attained,
                memory=np.zeros(LEARNT + 2 + 2 * RECENT if learns else 1),
                preemptive=True,
                round_s=self.round_s,
            ),
            placement=Placement(rule=self.placement, pack_limit=self.pack_limit),
            params=np.concatenate(
                [
                    [
                        float(self.priority != "time"),
                        float(self.queues),
                        self.starve_limit_s,
                        self.promote,
                        float(self.priority == "gittins"),
                        self.quantum,
                        float(THRESHOLDS + len(self.thresholds)) if self.history else 0.0,
                    ],
                    self.thresholds,
                    self._sample(),
                ]
            ),
        )

    def _sample(self) -> Vector:
        """The services of past jobs as the index wants them: how many, sorted, and their sums from the left."""
        if not self.history:
            return np.empty(0)
        sample = np.sort(np.asarray(self.history, np.float64))
        return np.concatenate([[float(len(sample))], sample, [0.0], np.cumsum(sample)])

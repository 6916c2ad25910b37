"""A case: a cluster, its trace, a scheduler, and the window in which strategies are compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autosched.arrivals.arrivals import DAY_S, WEEK_S
from autosched.sim.cluster import Cluster
from autosched.sim.policies import Policies, scheduler_kind
from autosched.sim.simulation import acting
from autosched.sim.trace import Trace
from autosched.tune.goals import SLACK, Causes, Goal
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Space


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """What strategies are compared on.

    Attributes:
        trace: All jobs, also those before and after the window.
        cluster: Where they run.
        scheduler: Name of the plug-in; several joined by + are a choice that begins with the first.
        from_s, to_s: The window, on the trace's clock.
        warm_s: How long before the window the simulation begins, with the published default.
        goal: `time` (least mean time in the system of all jobs), `fair` (largest share of jobs that are treated alike) or another metric
            of `MEASURES` or of `causes.formulas`; for all but the first that time must be no longer than the default's.
        causes: What the causal model of a mode that has one reasons about.
        limits: What settings must keep, such as `queue_s<=600` or `preemptions<=1.5x` of the default.
        slack: With a choice of policies: times worse that the worst group and the longest wait may get.
    """

    trace: Trace
    cluster: Cluster
    scheduler: str
    from_s: float
    to_s: float
    warm_s: float = WEEK_S
    goal: str = "time"
    causes: Causes = field(default_factory=Causes)
    limits: tuple[str, ...] = ()
    slack: float = SLACK

    def __post_init__(self) -> None:
        faults: list[Fault] = []
        try:
            _ = self.aim
        except ConfigError as error:
            faults += error.faults
        if not self.from_s < self.to_s:
            faults.append(Fault(where="case", field="to_s", value=f"{self.to_s:g}", rule=f"must be after from_s, {self.from_s:g}"))
        elif not len(self.trace.between(self.from_s, self.to_s)):
            faults.append(Fault(where="case", field="from_s", value=f"{self.from_s:g}", rule="no job arrives in the window"))
        if faults:
            raise ConfigError(faults)

    @property
    def kind(self) -> Any:
        """What makes its schedulers."""
        return scheduler_kind(self.scheduler)

    @property
    def space(self) -> Space:
        kind = self.kind
        return acting(kind, kind.space(self.cluster), self.trace)

    @property
    def begin_s(self) -> float:
        """When the simulation begins."""
        return max(float(np.floor(self.trace.submit_s[0])), self.from_s - self.warm_s)

    @property
    def aim(self) -> Goal:
        """The goal, looked up; a choice of policies is guarded."""
        goal = Goal.of(self.goal, self.causes.formulas, self.limits)
        return goal.guarded(self.slack) if isinstance(self.kind, Policies) else goal

    @property
    def metric(self) -> str:
        return self.aim.metric

    def gain(self, before: float, after: float) -> float:
        """How many times better the goal's metric is after a change."""
        return self.aim.gain(before, after)


def last_window(
    trace: Trace,
    cluster: Cluster,
    scheduler: str,
    days: float,
    goal: str = "time",
    causes: Causes | None = None,
    limits: tuple[str, ...] = (),
) -> Case:
    """The last days of a trace, with at least as much before them for tuning.

    Raises:
        ConfigError: the trace is too short.
    """
    first, last = float(np.floor(trace.submit_s[0])), float(np.ceil(trace.submit_s[-1])) + 1.0
    span = (last - first) / DAY_S
    if span < 2 * days:
        rule = f"spans {span:.1f} days; {days:g} to compare on need at least as many before them"
        raise ConfigError(
            Fault(where=trace.source, field="submit_s", rule=rule, fix=f"Use --days {max(0.5, span / 2):.1f} or a longer trace")
        )
    return Case(
        trace=trace,
        cluster=cluster,
        scheduler=scheduler,
        from_s=last - days * DAY_S,
        to_s=last,
        goal=goal,
        causes=causes or Causes(),
        limits=limits,
    )

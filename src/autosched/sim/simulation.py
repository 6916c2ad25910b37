"""A trace, a cluster and a scheduler as a question: how does a configuration do?"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.forecast import DAY_S, Forecast
from autosched.sim.metrics import summary
from autosched.sim.scheduler import Scheduler
from autosched.sim.trace import Trace
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.space import Space

MOST_TIMES, LEAST_DECISIONS = 20.0, 10_000.0
"""A configuration may take as many times the decisions of the default one, and this many in any case."""


def acting(kind: Any, space: Space, trace: Trace) -> Space:
    """A scheduler's knobs, less those that read a column which no job of a trace has: they would cost trials and change nothing."""
    needs = getattr(kind, "needs", {})  # of plug-ins, most of which read nothing special
    return space.rest([knob for knob, column in needs.items() if column not in trace.extra and knob in space.knobs])


def with_forecast(scheduler: Scheduler, trace: Trace, until_s: float = np.inf) -> Scheduler:
    """A scheduler that looks at a forecast, with one from the arrivals before; any other as it is.

    Args:
        scheduler: Any.
        trace: What comes, or has come.
        until_s: How far the forecast reaches; the last arrival and a day when left out.
    """
    given: Any = scheduler
    if not len(trace) or not any(field.name == "forecast" for field in fields(given)):
        return scheduler
    last = min(until_s, float(trace.submit_s[-1]) + DAY_S)
    told: Scheduler = replace(given, forecast=Forecast.of_past(trace.submit_s, trace.gpus, last))
    return told


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """Call it with a configuration to get all metrics. It pickles, so that it may run in another process or on another machine.

    Attributes:
        scheduler: Name of the plug-in.
        scored: Which jobs count; None: all.
    """

    trace: Trace
    cluster: Cluster
    scheduler: str
    run: Run = field(default_factory=Run)
    scored: NDArray[np.bool_] | None = None

    def space(self) -> Space:
        """The knobs of the scheduler on this cluster."""
        space: Space = plugins.get("scheduler", self.scheduler).space(self.cluster)
        return space

    def offered(self) -> Space:
        """Those that act on this trace; others keep their default."""
        return acting(plugins.get("scheduler", self.scheduler), self.space(), self.trace)

    def build(self, config: Config) -> Scheduler:
        """The scheduler with this configuration, and what it expects to come."""
        built: Scheduler = plugins.get("scheduler", self.scheduler).of(config)
        return with_forecast(built, self.trace)

    def bounded(self) -> Simulation:
        """The same, in which no configuration may cost more than `MOST_TIMES` the decisions of the default one: those that never end do."""
        usual = simulate(self.trace, self.cluster, self.build(self.space().default()), self.run).counters["decisions"]
        return replace(self, run=replace(self.run, most_decisions=max(LEAST_DECISIONS, MOST_TIMES * usual)))

    def __call__(self, config: Config) -> dict[str, float]:
        """All metrics of a run with this configuration.

        Raises:
            Infeasible: some jobs never end, so that no mean over them is a figure of the configuration.
            ConfigError: the scheduler refuses the configuration.
        """
        result = simulate(self.trace, self.cluster, self.build(config), self.run)
        if endless := result.endless:
            raise Infeasible(endless)
        return summary(result, self.scored)

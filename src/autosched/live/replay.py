"""A trace replayed in a simulation, as if it were a live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from autosched.events import JobEvent, events_of_trace
from autosched.protocol import LiveError, Plan, Sight
from autosched.sim.cluster import Cluster
from autosched.sim.session import Session
from autosched.source import load_trace, moment
from autoscout.common.fields import Block, read_fields, refuse_if
from autoscout.core import plugins
from autoscout.core.clock import Clock, FastClock, VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Space

__all__ = ["Replay"]


class _Options(Block):
    trace: str
    cluster: str
    scheduler: str = "slurm"
    start: str = ""
    end: str = ""
    speed: float = 0.0


class Replay:
    """A trace in a simulated cluster, at a multiple of its own speed. Everything it shows is simulated.

    Args:
        options: `trace`, `cluster` (such as 100x8), `scheduler` (the plug-in that runs it), `start` and `end` (dates or seconds; jobs
            before the start are the past that is known already), `speed` (seconds of the trace in a second; 0: as fast as it can).

    Raises:
        ConfigError: all faults of the options at once.
    """

    model: ClassVar[str] = "slurm"

    def __init__(self, options: Mapping[str, Any]) -> None:
        read, faults = read_fields(_Options, options, "live")
        if read is not None and read.scheduler not in plugins.available("scheduler"):
            known = ", ".join(plugins.available("scheduler"))
            faults.append(Fault(where="live", field="scheduler", value=read.scheduler, rule=f"must be one of {known}"))
        refuse_if(faults)
        assert read is not None
        trace = load_trace(read.trace)
        self.cluster = Cluster.parse(read.cluster)
        begin_s = moment(read.start, "start", float(np.floor(trace.submit_s[0])))
        end_s = moment(read.end, "end", float(np.inf))
        if not len(trace.between(begin_s, end_s)):
            raise ConfigError(Fault(where="live", field="start", value=read.start, rule="no job arrives in the window"))
        self.model = read.scheduler  # type: ignore[misc]
        self.pinned = Config()
        self._kind = plugins.get("scheduler", read.scheduler)
        self._settings: Config = self.space(self.cluster).default()
        self._past = trace.between(-np.inf, begin_s)
        self.session = Session(trace.between(begin_s, end_s), self.cluster, self._kind.of(self._settings))
        self.end_s = float(self.session.trace.submit_s[-1])
        self.clock: Clock = FastClock(read.speed, begin_s) if read.speed > 0 else VirtualClock(begin_s)
        self._told = False

    def space(self, cluster: Cluster) -> Space:
        found: Space = self._kind.space(cluster)
        return found

    def look(self) -> Sight:
        at_s = max(self.session.at_s, self.clock.now_s())
        self.session.step(at_s)
        events: list[JobEvent] = [] if self._told else list(events_of_trace(self._past))
        self._told = True
        events += self._events()
        snapshot = self.session.snapshot()
        return Sight(at_s=at_s, cluster=self.cluster, snapshot=snapshot, events=events, settings=self._settings)

    def _events(self) -> list[JobEvent]:
        """Everything that is known of the jobs that have arrived; what ended is told once and then forgotten."""
        result = self.session.result()
        arrived = np.flatnonzero(result.trace.submit_s < self.session.at_s)
        found = []
        for event in events_of_trace(result.trace.take(arrived)):
            if event.kind == "submit":
                found.append(event)
        for row in arrived[result.ended[arrived]].tolist():
            told = {"duration_s": float(result.executed_s[row])}
            found.append(JobEvent(job=str(result.trace.job_id[row]), kind="end", at_s=float(result.end_s[row]), attributes=told))
        self.session.forget()
        return found

    def settings(self) -> Config:
        return self._settings

    def plan(self, after: Config) -> Plan:
        changes = {name: (self._settings.get(name), value) for name, value in after.items() if self._settings.get(name) != value}
        diff = "".join(f"-{name}={old}\n+{name}={new}\n" for name, (old, new) in changes.items())
        return Plan(diff=diff, data={"before": self._settings.to_json(), "after": after.to_json()})

    def apply(self, plan: Plan) -> None:
        self._set(Config(plan.data["after"]))

    def restore(self, plan: Plan) -> None:
        self._set(Config(plan.data["before"]))

    def stored(self, plan: Plan) -> str:
        return next((name for name in ("before", "after") if Config(plan.data[name]) == self._settings), "other")

    def _set(self, config: Config) -> None:
        try:
            self.session.reconfigure(self._kind.of(self._active(config)))
        except ConfigError as error:
            raise LiveError(error.faults) from error
        self._settings = config

    def _active(self, config: Config) -> Config:
        space = self.space(self.cluster)
        return Config({name: value for name, value in config.items() if name in space.knobs})

"""A trace replayed in a simulation, as if it were a live cluster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from autosched.events import JobEvent, events_of_trace
from autosched.live_scheduler import ChangePlan, ClusterState, LiveError, LiveScheduler
from autosched.predict.estimates import ASKED_EVERY_S, Believed
from autosched.sim.cluster import Cluster
from autosched.sim.policies import JOIN, Policies, scheduler_kind
from autosched.sim.session import Session
from autosched.sim.simulation import acting
from autosched.sim.trace import Trace
from autosched.source import load_trace, moment
from autoscout.common.fields import Block, Listed, read_fields, refuse_if
from autoscout.core import plugins
from autoscout.core.clock import Clock, FastClock, VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Space

__all__ = ["Replay"]


class _ReplayOptions(Block):
    trace: str
    cluster: str
    scheduler: str = "slurm"
    policies: Listed = Field(default_factory=list)
    start: str = ""
    end: str = ""
    speed: float = 0.0


class Replay(LiveScheduler):
    """A trace in a simulated cluster, at a multiple of its own speed. Everything it shows is simulated.

    Args:
        options: `trace`, `cluster` (such as 100x8), `scheduler` (the plug-in that runs it), `policies`
            (others that may take over), `start` and `end` (dates or seconds; jobs
            before the start are the past that is known already), `speed` (seconds of the trace in a second; 0: as fast as it can).

    Raises:
        ConfigError: all faults of the options at once.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        read, faults = read_fields(_ReplayOptions, options, "live")
        if read is not None and read.scheduler not in plugins.available("scheduler"):
            names = ", ".join(plugins.available("scheduler"))
            faults.append(Fault(where="live", field="scheduler", value=read.scheduler, rule=f"must be one of {names}"))
        refuse_if(faults)
        assert read is not None
        trace = load_trace(read.trace)
        self.cluster = Cluster.parse(read.cluster)
        begin_s = moment(read.start, "start", float(np.floor(trace.submit_s[0])))
        end_s = moment(read.end, "end", float(np.inf))
        if not len(trace.between(begin_s, end_s)):
            raise ConfigError(Fault(where="live", field="start", value=read.start, rule="no job arrives in the window"))
        self.model = JOIN.join(dict.fromkeys([read.scheduler, *read.policies]))
        self._kind = scheduler_kind(self.model) if read.policies else plugins.get("scheduler", read.scheduler)
        self._believed = Believed(trace, begin_s) if isinstance(self._kind, Policies) and self._kind.believes else None
        self._trace = trace = trace if self._believed is None else self._believed.trace
        self._ends = np.where(trace.submit_s < begin_s, trace.submit_s + trace.duration_s, np.inf)
        self._rows = {job: row for row, job in enumerate(trace.job_id.tolist())}
        self._come, self._count = np.searchsorted(trace.submit_s, [begin_s, end_s], side="left").tolist()
        self._settings: Config = self.space(self.cluster).default()
        self._past = trace.between(-np.inf, begin_s)
        self.end_s = float(trace.submit_s[self._count - 1])
        jobs = (
            trace.take(slice(self._come, self._count))
            if self._believed is None
            else self._next(max(begin_s, trace.submit_s[self._come]) + 1.0)
        )
        self.session = Session(jobs, self.cluster, self._kind.of(self._settings))
        self.clock: Clock = FastClock(read.speed, begin_s) if read.speed > 0 else VirtualClock(begin_s)
        self._past_events: list[JobEvent] = list(events_of_trace(self._past))

    @classmethod
    def example(cls, folder: Path) -> dict[str, Any]:  # noqa: ARG003 (a trace is drawn)
        return {"trace": "synthetic:philly:200:2:1", "cluster": "3x8", "scheduler": "tiresias", "start": "2019-12-31"}

    def space(self, cluster: Cluster) -> Space:
        return acting(self._kind, self._kind.space(cluster), self._trace)

    def look(self) -> ClusterState:
        at_s = max(self.session.at_s, self.clock.now_s())
        self._step(at_s)
        events = [*self._past_events, *self._events()]
        self._past_events = []
        snapshot = self.session.snapshot()
        return ClusterState(at_s=at_s, cluster=self.cluster, snapshot=snapshot, events=events, settings=self._settings)

    def _step(self, until_s: float) -> None:
        """Let time pass; where policies go by durations, jobs come with what is believed of them at their arrival."""
        while self._believed is not None and self.session.at_s < until_s:
            later = min(self.session.at_s + ASKED_EVERY_S, until_s)
            self._note_ends()
            self.session.submit(self._next(later))
            self.session.step(later)
        self.session.step(until_s)

    def _next(self, until_s: float) -> Trace:
        """The jobs that come before a moment and have not come yet."""
        assert self._believed is not None
        now_s = self.session.at_s if hasattr(self, "session") else until_s - 1.0
        jobs = self._believed.arrivals(self._ends, now_s, self._come, min(until_s, np.nextafter(self.end_s, np.inf)))
        self._come += len(jobs)
        return jobs

    def _note_ends(self) -> None:
        result = self.session.result()
        for row in np.flatnonzero(result.ended).tolist():
            self._ends[self._rows[str(result.trace.job_id[row])]] = result.end_s[row]

    def _events(self) -> list[JobEvent]:
        """What happened to the jobs that have arrived; jobs that ended are in it once and then forgotten."""
        result = self.session.result()
        arrived = np.flatnonzero(result.trace.submit_s < self.session.at_s)
        events = [event for event in events_of_trace(result.trace.take(arrived)) if event.kind == "submit"]
        for row in arrived[result.ended[arrived]].tolist():
            duration = {"duration_s": float(result.executed_s[row])}
            events.append(JobEvent(job=str(result.trace.job_id[row]), kind="end", at_s=float(result.end_s[row]), attributes=duration))
        self._note_ends()
        self.session.forget()
        return events

    def settings(self) -> Config:
        return self._settings

    def apply(self, plan: ChangePlan) -> None:
        self._set(Config(plan.data["after"]))

    def restore(self, plan: ChangePlan) -> None:
        self._set(Config(plan.data["before"]))

    def _set(self, config: Config) -> None:
        try:
            self.session.reconfigure(self._kind.of(self._active(config)))
        except ConfigError as error:
            raise LiveError(error.faults) from error
        self._settings = config

    def _active(self, config: Config) -> Config:
        """Without what means nothing under the others: a limit of a rule that is off, settings of a policy that is not in charge."""
        return self.space(self.cluster).reaching(config).project(config)

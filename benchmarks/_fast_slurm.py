"""A real Slurm whose day takes minutes, as a controller sees it that believes the days to be days."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autosched.events import JobEvent
from autosched.live.slurm import LiveSlurm
from autosched.live_scheduler import ChangePlan, ClusterState, LiveScheduler
from autosched.sim.cluster import Cluster
from autoscout.core.clock import FastClock
from autoscout.core.config import Config
from autoscout.space import Space


class FastSlurm(LiveScheduler):
    """Slurm with all times multiplied, from a moment on: those of jobs, of settings, and of the controller's clock.

    Args:
        options: Of `LiveSlurm`.
        speed: How many seconds a controller believes to pass in one.
        start_s: The moment at which both clocks show the same.
    """

    model = LiveSlurm.model
    frozen = LiveSlurm.frozen

    def __init__(self, options: dict[str, Any], speed: float, start_s: float) -> None:
        self._live, self._speed, self._start_s = LiveSlurm(options), speed, start_s
        self.clock = FastClock(speed, start_s)
        self.pinned = self._slow(self._live.pinned)

    def at(self, moment_s: float) -> float:
        """A moment on the controller's clock."""
        return self._start_s + (moment_s - self._start_s) * self._speed

    def real(self, moment_s: float) -> float:
        """A moment of the controller's clock on the system's."""
        return self._start_s + (moment_s - self._start_s) / self._speed

    def _slow(self, settings: Config) -> Config:
        return Config({name: self._times(name, value, self._speed) for name, value in settings.items()})

    @staticmethod
    def _times(name: str, value: Any, factor: float) -> Any:
        return value * factor if name.endswith("_s") else value

    def space(self, cluster: Cluster) -> Space:
        return self._live.space(cluster)

    def look(self) -> ClusterState:
        state = self._live.look()
        self.pinned = self._slow(self._live.pinned)
        queue, speed = state.snapshot, self._speed
        jobs = queue.jobs
        extra = {name: values * speed if name == "estimate_s" else values for name, values in jobs.extra.items()}
        jobs = replace(jobs, submit_s=self.at(0.0) + jobs.submit_s * speed, duration_s=jobs.duration_s * speed, extra=extra)
        snapshot = replace(
            queue, at_s=self.at(queue.at_s), jobs=jobs, remaining_s=queue.remaining_s * speed, executed_s=queue.executed_s * speed
        )
        events = [self._event(event) for event in state.events]
        return ClusterState(
            at_s=snapshot.at_s, cluster=state.cluster, snapshot=snapshot, events=events, settings=self._slow(state.settings)
        )

    def _event(self, event: JobEvent) -> JobEvent:
        attributes = {name: self._times(name, value, self._speed) for name, value in event.attributes.items()}
        return replace(event, at_s=self.at(event.at_s), attributes=attributes)

    def settings(self) -> Config:
        return self._slow(self._live.settings())

    def plan(self, after: Config) -> ChangePlan:
        return self._live.plan(self._real(after))

    def undo(self, plan: ChangePlan, before: Config) -> ChangePlan:
        return self._live.undo(plan, self._real(before))

    def _real(self, settings: Config) -> Config:
        return Config({name: self._times(name, value, 1.0 / self._speed) for name, value in settings.items()})

    def apply(self, plan: ChangePlan) -> None:
        self._live.apply(plan)

    def stored(self, plan: ChangePlan) -> str:
        return self._live.stored(plan)

    def restore(self, plan: ChangePlan) -> None:
        self._live.restore(plan)

"""Futures: what a cluster may have to do from a moment on, and what a configuration makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosched.sim.cluster import Cluster
from autosched.sim.policies import scheduler_kind
from autosched.sim.scheduler import Scheduler
from autosched.sim.session import Session
from autosched.sim.simulation import with_forecast
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autosched.tune.formulas import Formula
from autosched.tune.goals import Goal
from autosched.tune.measures import Before, gain, measures
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Limit

Vector = NDArray[np.float64]
SAMPLE = 2_000  # services of past jobs that a scheduler with an index over them is given
PATIENCE = np.asarray([2.0, 4.0, 8.0, 16.0])
"""Times the decisions of the first configuration at which it is looked whether another one can still win; the last: given up."""
UNCHANGED_GAIN = 0.999  # times better: as good as before, but for rounds and ticks
MIN_DECISIONS = 1_000  # decisions that count for the first configuration at least


class Pruned(Exception):  # noqa: N818 - a signal, not an error
    """A configuration was not simulated to the end because it cannot be chosen any more.

    Args:
        least_s: What its mean time in the system is at least.
    """

    def __init__(self, least_s: float) -> None:
        super().__init__(f"stopped on the way: a mean time in the system of at least {least_s:,.0f} s")
        self.least_s = least_s


@dataclass(frozen=True, eq=False, kw_only=True)
class Future:
    """Jobs that are there and jobs to come.

    Attributes:
        at_s: When it begins.
        arrivals: Jobs to come.
        snapshot: Jobs that are there; None: an empty cluster.
        until_s: When it is stopped; infinite: when all is done.
        weights: How many jobs each of the snapshot and then of the arrivals is; None: one.
        words: Where it comes from, for people.
    """

    at_s: float
    arrivals: Trace
    snapshot: Snapshot | None = None
    until_s: float = np.inf
    weights: Vector | None = None
    words: str = ""

    @property
    def jobs(self) -> int:
        return len(self.arrivals) + (0 if self.snapshot is None else len(self.snapshot.jobs))


@dataclass(frozen=True, kw_only=True)
class Builder:
    """From configurations to schedulers that know what past jobs were like, and nothing of those to come."""

    scheduler: str
    services: tuple[float, ...] = ()
    past: Trace | None = field(default=None, compare=False)

    def __call__(self, config: Config) -> Scheduler:
        built: Any = scheduler_kind(self.scheduler).of(config)
        if self.services and any(each.name == "history" for each in fields(built)):
            built = replace(built, history=self.services)
        return built if self.past is None else with_forecast(built, self.past)

    @classmethod
    def of(cls, scheduler: str, services: Vector, seed: int = 0, past: Trace | None = None) -> Builder:
        """With the services (GPU-seconds) of past jobs, a sample where there are many, and the arrivals that a forecast rests on."""
        if len(services) > SAMPLE:
            services = stream(seed, "services").choice(services, SAMPLE, replace=False)
        return cls(scheduler=scheduler, services=tuple(float(value) for value in services), past=past)


@dataclass(eq=False, kw_only=True)
class Question:
    """How does a configuration do on these futures? The same ones for every configuration; metrics are means over them.

    With a `reference`, times are first divided by its own on the same future, so that a busy future does not count for more than a quiet
    one; the means are then given in its seconds again. With a `least_share`, a configuration that is worse than the reference on too many
    futures is not simulated on the rest.

    A configuration under which jobs are stopped and started all the time takes many times the decisions of others. When a run has taken
    twice those of the first configuration, it ends if what has happened so far already costs more than the best one's whole run.
    """

    futures: Sequence[Future]
    cluster: Cluster
    build: Builder
    goal: Goal = field(default_factory=Goal)
    reference: Config | None = None
    least_share: float = 0.0
    formulas: tuple[Formula, ...] = ()
    limits: tuple[Limit, ...] = ()  # what the best one must keep, or it is not the best
    each: dict[Config, list[dict[str, float]]] = field(default_factory=dict)  # metrics future by future, of all that were asked
    _first: list[float] = field(default_factory=list)  # decisions of the first configuration on each future
    _begun: dict[int, Session] = field(default_factory=dict)  # by future: where all configurations set out from
    _runs: list[int] = field(default_factory=lambda: [0])
    stopped: list[float] = field(default_factory=list)  # of configurations that could not win any more: the least they would have cost

    def __call__(self, config: Config, *, whole: bool = False) -> dict[str, float]:
        """Mean metrics.

        Args:
            config: Which configuration.
            whole: Simulate it on all futures, also when it is worse than the reference on many.

        Raises:
            Infeasible: jobs never end.
            Pruned: the configuration cannot be the best any more, or is worse than the reference on too many futures; for a goal other
                than time, it took far too long to say.
            ConfigError: the scheduler refuses the configuration.
        """
        if self.reference is not None:
            self._rows(self.reference)  # before all others
        rows = self._rows(config, whole=whole)
        names = [name for name in rows[0] if all(name in row for row in rows)]
        means = {name: float(np.mean([row[name] for row in rows])) for name in names}
        means["time_s"] = self._mean_s([row["time_s"] for row in rows])
        return means

    def _mean_s(self, times_s: Sequence[float]) -> float:
        """The mean over the futures."""
        if self.reference is None:
            return float(np.mean(times_s))
        base = [max(row["time_s"], 1e-9) for row in self._rows(self.reference)]
        return float(np.mean([time_s / one for time_s, one in zip(times_s, base, strict=True)]) * np.mean(base))

    def room(self, config: Config) -> float:
        """How many times better than `config` other settings can be at most: no job takes less than its work, no share is above 1.

        Raises:
            Infeasible: jobs never end.
        """
        rows = self._rows(config)
        if not self.goal.is_time:
            share = float(np.mean([row[self.goal.metric] for row in rows]))
            if self.goal.formula is not None and self.goal.direction is Direction.MAXIMIZE:
                return np.inf  # nobody knows what there is to gain
            return self.goal.gain(share, 1.0 if self.goal.metric in ("fair_share", "packed_share") else 0.0)
        return self._mean_s([row["time_s"] for row in rows]) / max(self._mean_s([row["work_s"] for row in rows]), 1e-9)

    def _rows(self, config: Config, *, whole: bool = False) -> list[dict[str, float]]:
        if config in self.each:
            return self.each[config]
        rows: list[dict[str, float]] = []
        for number, future in enumerate(self.futures):
            trial = FutureRun(future, self._session(number, self.build(config)))
            self._runs[0] += 1
            if number >= len(self._first):
                trial.run()
                self._first.append(trial.decisions)
            else:
                self._run(trial, [row["time_s"] for row in rows])
            rows.append(trial.metrics(fair=self.goal.is_fair, formulas=self.formulas))
            if not whole:
                self._check(rows)
        self.each[config] = rows
        return rows

    def _check(self, rows: list[dict[str, float]]) -> None:
        """Whether a configuration may still be chosen after its first futures.

        Raises:
            Pruned: it is worse than the reference on too many of them.
        """
        base = self.each.get(self.reference) if self.reference is not None else None
        if base is None:
            return
        goal = self.goal.metric
        worse = sum(self.goal.gain(one[goal], row[goal]) <= UNCHANGED_GAIN for one, row in zip(base, rows, strict=False))
        if worse > (1 - self.least_share) * len(base):
            least_s = self._mean_s([*(row["time_s"] for row in rows), *(one["work_s"] for one in base[len(rows) :])])
            self.stopped.append(least_s)
            raise Pruned(least_s)

    def gains(self, old: Config, new: Config, objective: str) -> Vector:
        """How many times better an objective is with another configuration, future by future."""
        self(old, whole=True), self(new, whole=True)
        rows = zip(self.each[old], self.each[new], strict=True)
        ratio = self.goal.gain if objective == self.goal.metric else partial(gain, objective)
        return np.asarray([ratio(one[objective], other[objective]) for one, other in rows])

    def _session(self, number: int, scheduler: Scheduler) -> Session:
        """The beginning of a future, with another scheduler in charge."""
        future = self.futures[number]
        if future.snapshot is None:
            return Session(future.arrivals, self.cluster, scheduler)
        if number not in self._begun:
            self._begun[number] = Session(future.arrivals, self.cluster, scheduler, snapshot=future.snapshot)
        session = self._begun[number].copy()  # faster than making one from the snapshot every time
        session.reconfigure(scheduler)
        return session

    def _run(self, trial: FutureRun, before_s: list[float]) -> None:
        """Run a configuration over its next future, as long as it can be the best.

        Raises:
            Pruned: it cannot; or it takes far too long to find out.
        """
        losses = [rows for rows in self.each.values() if self._keeps(rows)] if self.goal.is_time else []
        best_s = min((self._mean_s([row["time_s"] for row in rows]) for rows in losses), default=np.inf)
        least_s = 0.0
        ended = next(iter(self.each.values()), [{"work_s": 0.0}] * len(self.futures))  # whose work is everybody's
        rest = [row["work_s"] for row in ended[len(before_s) + 1 :]]
        for allowed in max(MIN_DECISIONS, self._first[len(before_s)]) * PATIENCE:
            if trial.run(float(allowed)):
                return
            least_s = self._mean_s([*before_s, trial.least_s(), *rest])
            if least_s >= best_s:
                break
        self.stopped.append(least_s)
        raise Pruned(least_s)

    def _keeps(self, rows: Sequence[Mapping[str, float]]) -> bool:
        return all(limit.allows(float(np.mean([row[limit.metric] for row in rows]))) for limit in self.limits)

    @property
    def simulations(self) -> int:
        """How many runs that took, those that were stopped on the way included."""
        return self._runs[0]


class FutureRun:
    """A run over a future that can be looked at on the way."""

    def __init__(self, future: Future, session: Session) -> None:
        self._future = future
        self._session = session
        parts = self._session.parts.values()
        self._before = max(part.decisions for part in parts)  # those of a snapshot count on
        self._preemptions = np.zeros(len(session.trace))  # likewise
        for part in parts:
            self._preemptions[part.rows] = part.job["preemptions"]
        self._idle_gpu_s = sum(part.idle_gpu_s(future.at_s) for part in parts)

    def run(self, decisions: float = 0.0) -> bool:
        """Run to the end, or until about as many decisions were taken; whether it came to the end."""
        self._session.step(self._future.until_s, most_decisions=decisions + self._before if decisions else 0.0)
        return not self._session.gave_up

    @property
    def decisions(self) -> float:
        return float(max(part.decisions for part in self._session.parts.values()) - self._before)

    def least_s(self) -> float:
        """What the mean time in the system is at least, whatever happens from here on."""
        trace = self._session.trace
        least = trace.submit_s.copy()  # of jobs in a profiler nothing is known
        for part in self._session.parts.values():
            least[part.rows] = part.least_end_s()
        spent = np.maximum(0.0, least - np.maximum(trace.submit_s, self._future.at_s))
        return float(np.average(spent, weights=self._future.weights))

    def metrics(self, *, fair: bool, formulas: Sequence[Formula] = ()) -> dict[str, float]:
        """Of a run that came to its end.

        Raises:
            Infeasible: jobs never end.
        """
        future, result = self._future, self._session.result()
        if endless := result.endless:
            raise Infeasible(endless)
        before = replace(Before.nothing(result, future.at_s), preemptions=self._preemptions, idle_gpu_s=self._idle_gpu_s)
        start = future.snapshot
        if start is not None and len(start.jobs):
            here = len(start.jobs)
            before.executed_s[:here] = start.executed_s
            remaining = result.trace.duration_s.copy()
            remaining[:here] = start.remaining_s
            before = replace(before, remaining_s=remaining)
        return measures(result, before, future.weights, fair=fair, formulas=formulas)


def outcome(
    future: Future, cluster: Cluster, scheduler: Scheduler, *, fair: bool = False, formulas: Sequence[Formula] = ()
) -> dict[str, float]:
    """The metrics of one run.

    Raises:
        Infeasible: jobs never end.
    """
    trial = FutureRun(future, Session(future.arrivals, cluster, scheduler, snapshot=future.snapshot))
    trial.run()
    return trial.metrics(fair=fair, formulas=formulas)

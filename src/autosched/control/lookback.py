"""What a change really gained: the jobs that came after it, under the settings before it and as it was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autosched.predict.features import Repository
from autosched.predict.predictor import Predictor
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autosched.tune.draws import Observation
from autosched.tune.futures import Builder, Future, outcome
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible

METRIC = "time_s"
MIN_JOBS = 3  # jobs below which a period says nothing


@dataclass(frozen=True, kw_only=True)
class Period:
    """What became of the jobs of a period.

    Attributes:
        jobs: How many were there or came.
        measured_s: Mean time that they really spent in the system, in the period; unfinished ones are charged the work they have left.
        simulated_s: The same in a simulation with each of the settings that were asked about.
    """

    jobs: int
    measured_s: float
    simulated_s: dict[Config, float]

    def gain(self, old: Config, bias: float = 1.0) -> float:
        """How many times better it went than a simulation with the old settings says it would have; `bias` is how many times longer the
        real scheduler takes than its simulation."""
        if self.jobs < MIN_JOBS or self.measured_s <= 0 or old not in self.simulated_s:
            return math.nan
        return self.simulated_s[old] * bias / self.measured_s

    def bias(self, now: Config) -> float:
        """How many times longer the real scheduler took than its simulation with the same settings."""
        if self.jobs < MIN_JOBS or not self.simulated_s.get(now):
            return 1.0
        return self.measured_s / self.simulated_s[now]


def look_back(
    snapshot: Snapshot, until: Observation, cluster: Cluster, build: Builder, predictor: Predictor, configs: list[Config]
) -> Period:
    """Run the jobs between two moments again.

    Args:
        snapshot: The cluster at the first moment.
        until: What is known at the second.
        cluster: The nodes.
        build: Makes schedulers.
        predictor: Of what unfinished jobs have left.
        configs: Settings to simulate.
    """
    from_s, to_s = snapshot.at_s, until.at_s
    history = _believed(until, predictor)
    names = {name: row for row, name in enumerate(history.jobs.job_id.tolist())}
    here = np.asarray([names.get(name, -1) for name in snapshot.jobs.job_id.tolist()], np.int64)
    arrived = (history.jobs.submit_s >= from_s) & (history.jobs.submit_s < to_s)
    rows = np.concatenate([here[here >= 0], np.setdiff1d(np.flatnonzero(arrived), here)]).astype(np.int64)
    rows = rows[np.isfinite(history.end_s[rows]) | np.isin(rows, until.rows)]  # of the others it is not known what became of them
    measured = _measured(history, rows, from_s, to_s, until)
    work = np.where(here >= 0, history.jobs.duration_s[np.maximum(here, 0)], snapshot.jobs.duration_s)
    remaining_s = np.maximum(1.0, work - snapshot.executed_s)
    arrivals = history.jobs.take(np.setdiff1d(np.flatnonzero(arrived), here).astype(np.int64))
    start = snapshot.with_remaining(remaining_s) if len(snapshot.jobs) else None
    future = Future(at_s=from_s, arrivals=arrivals, snapshot=start, until_s=to_s)
    simulated = {}
    for config in configs if future.jobs else ():
        try:
            simulated[config] = outcome(future, cluster, build(config))[METRIC]
        except Infeasible:
            continue
    return Period(jobs=len(rows), measured_s=measured, simulated_s=simulated)


def _believed(observation: Observation, predictor: Predictor) -> Repository:
    """The jobs that have come; those that have not ended with predicted durations."""
    durations = observation.history.jobs.duration_s.copy()
    if len(observation.rows):
        predictor.fit(observation.history, observation.at_s)
        chances = predictor.chances(observation.history, observation.rows, observation.at_s, observation.snapshot.executed_s)
        drawn = predictor.draw_s(chances, observation.snapshot.executed_s, (int(observation.at_s), "look back"))
        durations[observation.rows] = np.maximum(drawn, observation.snapshot.executed_s + 1.0)
    return Repository(replace(observation.history.jobs, duration_s=durations), observation.history.end_s)


def _measured(history: Repository, rows: NDArray[np.int64], from_s: float, to_s: float, until: Observation) -> float:
    """Mean time in the system of these jobs in the period, work that is left charged at full speed."""
    if not len(rows):
        return math.nan
    end = history.end_s[rows]
    begin = np.maximum(history.jobs.submit_s[rows], from_s)
    over = end <= to_s
    executed = dict(zip(until.rows.tolist(), until.snapshot.executed_s.tolist(), strict=True))
    ran = np.asarray([executed.get(row, 0.0) for row in rows.tolist()])
    remaining_s = np.where(over, 0.0, np.maximum(0.0, history.jobs.duration_s[rows] - ran))
    spent = np.where(over, end, to_s) - begin
    return float(np.mean(np.maximum(0.0, spent) + remaining_s))

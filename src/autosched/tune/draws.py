"""Futures drawn at a moment: from a predictor and past arrivals, from the truth, or from the last hour alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autosched.arrivals.arrivals import DAY_S, HOUR_S, WEEK_S, Generator
from autosched.predict.features import Repository
from autosched.predict.predictor import Predictor
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autosched.tune.futures import Future
from autoscout.core.seeds import stream

Vector = NDArray[np.float64]
FASTER_DAY_SPEED = 1.3  # times as fast as yesterday
STRESSED_LOAD = 1.2  # load that a stressed past makes: a little more than there is
MOST_SPEED = 3.0  # beyond it the jobs of a quiet week say little about a busy one


@dataclass(frozen=True, eq=False, kw_only=True)
class Observation:
    """What is known of a cluster at a moment.

    Attributes:
        at_s: The moment.
        history: All jobs that have come, and the ends of those that have ended.
        snapshot: The jobs that have not; how much work they have left is hidden from all but an oracle.
        rows: Their rows in `history`.
        truth: What will come; for an oracle only.
    """

    at_s: float
    history: Repository
    snapshot: Snapshot
    rows: NDArray[np.int64]
    truth: Trace

    @property
    def ended(self) -> Trace:
        """The past jobs whose durations are known."""
        return self.history.jobs.take(np.flatnonzero(self.history.end_s <= self.at_s))


Draw = Callable[[Observation, int], Future]
"""Makes one of several futures; the number says which draw it is."""


@dataclass(frozen=True, kw_only=True)
class PredictedFutures:
    """Remaining times drawn from a predictor, arrivals replayed from the past.

    Attributes:
        predictor: Of remaining times; fitted as it is asked.
        generators: Of arrivals; draw i uses number i, from the beginning again after the last.
        horizon_s: How long jobs keep coming.
        cap_s: How long after the beginning it is stopped.
        chances: By moment: the predictor's answer, which all draws at that moment share.
    """

    predictor: Predictor
    generators: Sequence[Generator] = (Generator(),)
    horizon_s: float = HOUR_S
    cap_s: float = np.inf
    seed: int = 0
    chances: dict[float, Vector] = field(default_factory=dict)

    def __call__(self, observation: Observation, number: int) -> Future:
        start = observation.snapshot
        if observation.at_s not in self.chances:
            self.predictor.fit(observation.history, observation.at_s)
            self.chances[observation.at_s] = self.predictor.chances(
                observation.history, observation.rows, observation.at_s, start.executed_s
            )
        whole = self.predictor.draw_s(self.chances[observation.at_s], start.executed_s, (int(observation.at_s), number))
        remaining = np.maximum(1.0, whole - start.executed_s)
        generator = self.generators[number % len(self.generators)]
        rng = stream(self.seed, "future", int(observation.at_s), number)
        arrivals = generator.future(believed(observation, whole), observation.at_s, self.horizon_s, rng)
        return Future(
            at_s=observation.at_s,
            arrivals=arrivals,
            snapshot=start.with_remaining(remaining) if len(start.jobs) else None,
            until_s=observation.at_s + self.cap_s,
            words=f"{len(start.jobs)} unfinished jobs with drawn remaining times, {arrivals.filters[-1]}",
        )


def believed(observation: Observation, whole_s: Vector) -> Trace:
    """The jobs that have come, those that have not ended with the durations a predictor gives them."""
    durations = observation.history.jobs.duration_s.copy()
    durations[observation.rows] = whole_s
    return replace(observation.history.jobs, duration_s=durations)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What really comes: for oracles."""

    horizon_s: float = HOUR_S
    cap_s: float = np.inf

    def __call__(self, observation: Observation, number: int) -> Future:  # noqa: ARG002 - there is one truth
        arrivals = observation.truth.between(observation.at_s, observation.at_s + self.horizon_s)
        start = observation.snapshot if len(observation.snapshot.jobs) else None
        return Future(
            at_s=observation.at_s, arrivals=arrivals, snapshot=start, until_s=observation.at_s + self.cap_s, words="what really came"
        )


@dataclass(frozen=True, kw_only=True)
class LastHour:
    """The jobs of the last hour on an empty cluster, as SelfTune tunes on the trace it has just collected."""

    horizon_s: float = HOUR_S

    def __call__(self, observation: Observation, number: int) -> Future:  # noqa: ARG002 - there is one past
        begin = observation.at_s - self.horizon_s
        jobs = observation.history.jobs
        durations = np.where(
            observation.history.end_s <= observation.at_s, jobs.duration_s, np.maximum(1.0, observation.at_s - jobs.submit_s)
        )
        arrivals = replace(jobs, duration_s=durations).between(begin, observation.at_s)
        return Future(at_s=begin, arrivals=arrivals, words="the jobs of the last hour on an empty cluster")


def past_days(days: int) -> tuple[Generator, ...]:
    """Replays of single past days: the same day of last week, yesterday, yesterday with jobs coming faster, then the days before it.

    Where nothing queues all settings are alike; the faster day says which would be better if something did.
    """
    calm = [Generator(method="back", back_s=back) for back in (WEEK_S, *(DAY_S * (number + 1) for number in range(days)))]
    return (*calm[:2], Generator(method="back", back_s=DAY_S, speed=FASTER_DAY_SPEED), *calm[2:])[:days]


def stressed(future: Future, capacity: float) -> Future | None:
    """The same future with its jobs coming faster, up to a load of `STRESSED_LOAD`; None where they already make as much."""
    jobs = future.arrivals
    span = float(jobs.submit_s[-1]) - future.at_s if len(jobs) else 0.0
    if span <= 0 or (load := jobs.gpu_seconds / (capacity * span)) >= STRESSED_LOAD:
        return None
    speed = min(MOST_SPEED, STRESSED_LOAD / max(load, 1e-9))
    moved = replace(jobs, submit_s=future.at_s + (jobs.submit_s - future.at_s) / speed)
    return replace(future, arrivals=moved, words=f"{future.words}, {speed:.2f} times as fast")


def reordered(future: Future, by_s: float) -> Future:
    """The same future begun at another of its moments: what came in the first `by_s` seconds comes last."""
    jobs = future.arrivals
    length = float(jobs.submit_s[-1]) - future.at_s if len(jobs) else 0.0
    if length <= 0:
        return future
    submit = future.at_s + (jobs.submit_s - future.at_s - by_s) % length
    order = np.argsort(submit, kind="stable")
    arrivals = replace(jobs.take(order), submit_s=submit[order])
    return replace(future, arrivals=arrivals, words=f"{future.words}, begun {by_s / DAY_S:.1f} days into them")

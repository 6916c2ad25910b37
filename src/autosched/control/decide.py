"""One decision: what is known of the cluster, futures drawn from it, settings tried on them, and how sure the answer is."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from autosched.live_scheduler import ClusterState
from autosched.predict.features import Repository
from autosched.predict.predictor import Predictor
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace, concatenate
from autosched.tune.draws import Observation
from autosched.tune.futures import UNCHANGED_GAIN, Builder, Pruned, Question
from autosched.tune.goals import Causes, Goal
from autosched.tune.loop import Decision, accepted
from autosched.tune.modes import LIVE, Mode
from autosched.tune.proof import COVERAGE, jackknife, mean_interval
from autosched.tune.tuner import HISTORY_S, Situation, Tuner
from autoscout.common.stats import student_quantile
from autoscout.common.text import show_duration
from autoscout.core.clock import cpu_s
from autoscout.core.config import Config, Value
from autoscout.core.errors import Infeasible
from autoscout.space import Space

METRIC = "time_s"
MANY = 1_000  # degrees of freedom of an error that was calibrated on many decisions
MIN_LOG_GAIN = 0.002  # share of the gain that a change must bring, or it is left out
MODEL_ERROR = 0.6
"""Standard deviation of log(real gain / predicted gain), as a share of log(predicted gain), that drawn futures do not show, because they
share one predictor and one model. Calibrated on Philly and checked on Venus by `benchmarks/control_observe.py`."""


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A decision, and how sure it is.

    Attributes:
        decision: As the closed loop makes them.
        low, high: Interval of the predicted gain that is meant to hold nine outcomes in ten.
        gains: Of the best settings found, future by future.
        best: The best settings found, taken or not.
        left_out: Jobs that can never run here, which no future holds.
        question: The futures.
    """

    decision: Decision
    low: float
    high: float
    best: Config
    gains: tuple[float, ...] = ()
    left_out: tuple[str, ...] = field(default=())
    question: Question = field(repr=False, compare=False)

    def is_better_than(self, other: Config) -> bool:
        """Whether the best settings found are better than others on the same futures, by more than these differ."""
        try:
            gains = self.question.gains(other, self.best, self.question.goal.metric)
        except (Infeasible, Pruned):  # the others do not work on these futures, or take far too long
            return True
        return mean_interval(gains.tolist())[0] > 1


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What a change does to the past week with its days in other orders, on which it was not chosen.

    Attributes:
        gains: Order by order; none where there is too little past.
        days: The gain with each of its days left out, in the usual order.
        broken: Limits that the change would break, in words.
        jobs: Known jobs.
        past_s: How far back they reach.
        fault: Why the change could not be tried on them.
    """

    gains: tuple[float, ...]
    jobs: int
    past_s: float
    fault: str = ""
    days: tuple[float, ...] = ()
    broken: str = ""

    @property
    def interval(self) -> tuple[float, float]:
        """Of the mean gain, nine times in ten.

        All orders have the same jobs, so they differ less than weeks do. What the jobs themselves add is how much the gain rests on
        single days (jackknife).
        """
        return mean_interval(self.gains, jackknife(self.days))

    def doubt(self, least_jobs: int, least_past_s: float) -> str:
        """Why nobody can tell whether the change gains, and what would be needed; empty: it does."""
        lacks = []
        if self.jobs < least_jobs:
            lacks.append(f"{self.jobs} jobs are known, {least_jobs} are needed (tuning.least_jobs)")
        if self.past_s < max(least_past_s, HISTORY_S):
            needed = show_duration(max(least_past_s, HISTORY_S))
            lacks.append(f"{show_duration(self.past_s)} of past are known, {needed} are needed (tuning.least_past)")
        if lacks:
            return f"cannot tell whether it gains: {'; '.join(lacks)}. Wait, or import a trace with --import"
        if self.fault or not self.gains:
            return f"cannot tell whether it gains: it could not be tried on the past week: {self.fault or 'no jobs were there'}"
        if self.broken:
            return f"breaks limits on the past week: {self.broken}. Allow more (tuning.slack, tuning.limits), or `propose`"
        low, high = self.interval
        if low > 1:
            return ""
        words = f"on the past week in {len(self.gains)} other orders its mean gain lies between {low:.3f} and {high:.3f}"
        rule = "the lower end must be above 1. `propose` asks for it anyway"
        return f"cannot tell whether it gains: {words} (nine times in ten, simulated); {rule}"


def observation_of(cluster_state: ClusterState, history: Repository) -> tuple[Observation, tuple[str, ...]]:
    """What is known of a cluster, and the names of jobs that can never run on it: these are in no future."""
    cluster, snapshot = cluster_state.cluster, cluster_state.snapshot
    fits = _fits(snapshot.jobs, cluster)
    left_out = tuple(str(name) for name in snapshot.jobs.job_id[~fits])
    snapshot = _only(snapshot, fits)
    names = {name: row for row, name in enumerate(history.jobs.job_id.tolist())}
    missing = np.asarray([name not in names for name in snapshot.jobs.job_id.tolist()], bool)
    jobs, ends = history.jobs, history.end_s
    if missing.any():
        jobs = concatenate(jobs, snapshot.jobs.take(np.flatnonzero(missing)))
        ends = np.concatenate([ends, np.full(int(missing.sum()), np.inf)])
        order = np.argsort(jobs.submit_s, kind="stable")
        jobs, ends = jobs.take(order), ends[order]
    past = np.flatnonzero(_fits(jobs, cluster) & (jobs.submit_s <= cluster_state.at_s))
    jobs, ends = jobs.take(past), ends[past]
    names = {name: row for row, name in enumerate(jobs.job_id.tolist())}
    rows = np.asarray([names[name] for name in snapshot.jobs.job_id.tolist()], np.int64)
    ends = ends.copy()
    ends[rows] = np.inf  # what is in the queue now has not ended, whatever an earlier attempt did
    nothing = jobs.take(np.empty(0, np.int64))
    return Observation(at_s=cluster_state.at_s, history=Repository(jobs, ends), snapshot=snapshot, rows=rows, truth=nothing), left_out


def _fits(jobs: Trace, cluster: Cluster) -> NDArray[np.bool_]:
    """Jobs that a cluster can run at all."""
    single = len(cluster.vcs) == 1
    room = {vc: cluster.nodes_of(vc).gpus for vc in cluster.vcs}
    most = np.asarray([cluster.gpus if single else room.get(vc, 0) for vc in jobs.vc.names] or [0], np.float64)
    kinds = np.asarray([name == "" or name in cluster.kinds for name in jobs.kind.names] or [True], bool)
    fits: NDArray[np.bool_] = (jobs.gpus <= most[jobs.vc.codes]) & kinds[jobs.kind.codes]
    return fits


def _only(snapshot: Snapshot, chosen: NDArray[np.bool_]) -> Snapshot:
    """The snapshot of a cluster that was looked at, with some of its jobs."""
    if chosen.all():
        return snapshot
    rows = np.flatnonzero(chosen)
    new_number = np.full(len(chosen), -1.0)
    new_number[rows] = np.arange(len(rows))
    where = snapshot.where[chosen[snapshot.where[:, 0].astype(np.int64)]] if len(snapshot.where) else snapshot.where
    if len(where):
        where = where.copy()
        where[:, 0] = new_number[where[:, 0].astype(np.int64)]
    return replace(
        snapshot,
        jobs=snapshot.jobs.take(rows),
        remaining_s=snapshot.remaining_s[rows],
        executed_s=snapshot.executed_s[rows],
        running=snapshot.running[rows],
        where=where,
    )


class Adviser:
    """Makes decisions about a cluster by trying settings in a simulation of it, with the parts of the replayed loop.

    Args:
        model: Name of the scheduler that simulates the live one.
        mode: How settings are looked for.
        goal: What is improved.
        causes: What the causal model of a mode that has one reasons about.
        seed: Equal seeds, equal decisions.
    """

    def __init__(self, model: str, mode: Mode = LIVE, goal: Goal | None = None, causes: Causes | None = None, seed: int = 0) -> None:
        self._model, self._seed = model, seed
        self.tuner = Tuner(mode, goal, causes, seed)
        self._has_learned = False

    @property
    def predictor(self) -> Predictor:
        return self.tuner.predictor

    def builder(self, observation: Observation) -> Builder:
        """Schedulers that know what past jobs were like."""
        ended = observation.ended
        return Builder.of(self._model, ended.gpus * ended.duration_s, self._seed, observation.history.jobs)

    def _situation(self, observation: Observation, cluster: Cluster, space: Space) -> Situation:
        build = self.builder(observation)
        return Situation(observation=observation, cluster=cluster, build=build, config=space.default(), space=space)

    def _learn(self, situation: Situation) -> None:
        """The offline phase of the causal model, once there is enough past."""
        self.tuner.begin(situation.space)
        if self.tuner.model is None or self._has_learned:
            return
        with contextlib.suppress(Infeasible):  # of a past on which the settings in force do not work there is nothing to learn
            past = self.tuner.past(situation)
            if past is not None:
                self.tuner.learn(past, situation)
                self._has_learned = True

    def decide(
        self,
        cluster_state: ClusterState,
        history: Repository,
        space: Space,
        *,
        whole: Space | None = None,
        watching: bool = False,
        alarm: str = "",
    ) -> Recommendation:
        """Look for better settings than those in force, which are the defaults of `space`.

        Args:
            cluster_state: The cluster now.
            history: Its past.
            space: What may be chosen now, within the operator's bounds.
            whole: What may ever be chosen, for the causal model; `space` when left out.
            watching: Whether this is a look in between.
            alarm: What it answers.
        """
        began = cpu_s()
        observation, left_out = observation_of(cluster_state, history)
        tuner, now, cluster = self.tuner, space.default(), cluster_state.cluster
        self._learn(self._situation(observation, cluster, whole or space))
        least = tuner.mode.watch_gain if watching else tuner.mode.least_gain
        attempt = tuner.attempt(self._situation(observation, cluster, space), now, least)
        question, best, chosen, predicted = attempt.question, now, now, 1.0
        gains: tuple[float, ...] = (1.0,)
        contributions: dict[str, float] = {}
        is_steady = True
        if attempt.found is not None:
            best = self._simplified(space, question, now, attempt.found.best)
            gains = tuple(question.gains(now, best, tuner.goal.metric).tolist())
            predicted = float(np.exp(np.mean(np.log(gains))))
            is_steady = float(np.mean([gain > UNCHANGED_GAIN for gain in gains])) >= tuner.mode.least_share
            if best != now and predicted >= least and is_steady:
                chosen, contributions = best, tuner.contributions(question, space, now, best)
        low, high = interval(gains)
        decision = Decision(
            at_s=observation.at_s,
            before=now,
            after=chosen,
            predicted=predicted,
            load=float(observation.snapshot.jobs.gpus.sum()) / cluster.gpus,
            waiting=int((~observation.snapshot.running).sum()),
            unfinished=len(observation.rows),
            simulations=question.simulations,
            rejected=attempt.rejected,
            stopped=len(question.stopped),
            cpu_s=cpu_s() - began,
            words=attempt.words,
            contributions=contributions,
            steps=(
                *([f"Alarm: {alarm}"] if alarm else []),
                *attempt.steps,
                accepted(predicted, least, is_proven=is_steady, is_new=best != now),
            ),
        )
        return Recommendation(decision=decision, low=low, high=high, best=best, gains=gains, left_out=left_out, question=question)

    def proof(self, cluster_state: ClusterState, history: Repository, space: Space, new: Config) -> Proof:
        """Try settings on orders of the past week that they were not chosen on.

        Args:
            cluster_state: The cluster now.
            history: Its past.
            space: What may be chosen; its default is in force.
            new: The settings to prove.
        """
        observation, _ = observation_of(cluster_state, history)
        situation = self._situation(observation, cluster_state.cluster, space)
        jobs = observation.history.jobs
        past_s = observation.at_s - float(jobs.submit_s[0]) if len(jobs) else 0.0
        try:
            past = self.tuner.past(situation)
            weeks = self.tuner.orders(past, observation.at_s) if past is not None and past.jobs else []
            question = self.tuner.question(weeks, situation)
            gains = tuple(question.gains(situation.config, new, self.tuner.goal.metric).tolist()) if weeks else ()
            broken = self._broken(question, situation.config, new) if weeks else ""
            rest = self.tuner.question(self.tuner.without_parts(past, observation.at_s), situation) if past is not None and weeks else None
            days = tuple(rest.gains(situation.config, new, self.tuner.goal.metric).tolist()) if rest is not None else ()
        except (Infeasible, Pruned) as error:
            return Proof(gains=(), jobs=len(jobs), past_s=past_s, fault=str(error))
        return Proof(gains=gains, jobs=len(jobs), past_s=past_s, days=days, broken=broken)

    def _broken(self, question: Question, old: Config, new: Config) -> str:
        """The limits that new settings break next to those in force."""
        means = question(new, whole=True)
        limits = self.tuner.goal.limits(question(old, whole=True))
        broken = [limit for limit in limits if not limit.allows(means[limit.metric])]
        return ", ".join(f"{limit.metric} would be {means[limit.metric]:.4g}, at most {limit.value:.4g} is allowed" for limit in broken)

    def _simplified(self, space: Space, question: Question, old: Config, new: Config) -> Config:
        """New settings without the changes that their gain and limits do not need: an operator reads each of them."""
        goal = self.tuner.goal
        limits = goal.limits(question(old, whole=True)) if goal.bounds else ()
        for name in sorted(new):
            around = new.only(space.ancestors(name)).extend({name: old[name]}) if name in old else None
            if around is None or name not in new or old[name] == new[name] or not space.feasible(around):
                continue
            back = space.project(new, around)
            with contextlib.suppress(Infeasible, Pruned):
                gain = float(np.mean(np.log(question.gains(new, back, goal.metric))))
                if gain >= -MIN_LOG_GAIN and all(limit.allows(question(back, whole=True)[limit.metric]) for limit in limits):
                    new = back
        return new

    def what_if(self, cluster_state: ClusterState, history: Repository, space: Space, knob: str) -> list[tuple[Value, float]]:
        """Every value of one knob -> predicted gain over the settings in force, on the current queue; NaN where jobs would not end, or a
        simulation takes far too long. Empty where the knob means nothing with the settings in force."""
        observation, _ = observation_of(cluster_state, history)
        now = space.default()
        situation = self._situation(observation, cluster_state.cluster, space)
        question = self.tuner.question(self.tuner.futures(situation, draws=2), situation, now)
        gains: list[tuple[Value, float]] = []
        for value in space.knobs[knob].values:
            around = now.only(space.ancestors(knob)).extend({knob: value})
            if space.feasible(around):
                gain = math.nan
                with contextlib.suppress(Infeasible, Pruned):
                    gain = float(np.exp(np.mean(np.log(question.gains(now, space.project(now, around), self.tuner.goal.metric)))))
                gains.append((value, gain))
        return gains


def interval(gains: Sequence[float], error: float = MODEL_ERROR) -> tuple[float, float]:
    """Where the real gain should lie, nine times in ten (logarithms, Student's t).

    Args:
        gains: Future by future.
        error: Of the simulation and its predictor, which all futures share, as a share of the gain.
    """
    logs = np.log(np.asarray(gains, np.float64))
    if len(logs) < 2:  # one future says nothing of how futures differ
        reach = student_quantile(0.5 + COVERAGE / 2, MANY) * error * abs(float(logs[0]))
        return float(np.exp(logs[0] - reach)), float(np.exp(logs[0] + reach))
    spread = math.hypot(float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / len(logs)), error * float(np.mean(logs)))
    reach = student_quantile(0.5 + COVERAGE / 2, len(logs) - 1) * spread
    return float(np.exp(np.mean(logs) - reach)), float(np.exp(np.mean(logs) + reach))

"""One decision: what is known of the cluster, futures drawn from it, settings tried on them, and how sure the answer is."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np
from numpy.typing import NDArray

from autosched.arrivals.arrivals import DAY_S, HOUR_S, Generator
from autosched.live_scheduler import ClusterState
from autosched.predict.features import Repository
from autosched.predict.predictor import Predictor
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace, concatenate
from autosched.tune.draws import Observation, PredictedFutures
from autosched.tune.futures import Builder, Future, Pruned, Question
from autosched.tune.loop import Decision
from autosched.tune.search import SearchOptions, search
from autoscout.common.stats import student_quantile
from autoscout.core.clock import cpu_s
from autoscout.core.config import Config, Value
from autoscout.core.errors import Infeasible
from autoscout.core.seeds import number as seed_of
from autoscout.core.task import Objective
from autoscout.space import Space

METRIC = "time_s"
MIN_LOG_GAIN = 0.002  # share of the gain that a change must bring, or it is left out
COVERAGE = 0.9  # share of outcomes that the interval of a predicted gain is meant to hold
MODEL_ERROR = 0.6
"""Standard deviation of log(real gain / predicted gain), as a share of log(predicted gain), that drawn futures do not show, because they
share one predictor and one model. Calibrated on Philly and checked on Venus by `benchmarks/control_observe.py`."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """How the controller searches for settings.

    Attributes:
        draws: Futures that every candidate is tried on.
        horizon_s: How long jobs keep coming in a future.
        back_s: Future i replays the arrivals `back_s[i % len(back_s)]` seconds ago.
        trials: Candidates.
        searcher: Who proposes them.
        least_gain: The threshold: change only when the predicted gain is at least this.
        least_share: And when at least this share of the futures does not get worse.
        seed: Equal seeds, equal decisions.
    """

    draws: int = 6
    horizon_s: float = HOUR_S
    back_s: Sequence[float] = (HOUR_S, DAY_S, 2 * HOUR_S, 7 * DAY_S, 3 * HOUR_S, 2 * DAY_S)
    trials: int = 40
    searcher: str = "hybrid"
    least_gain: float = 1.1
    least_share: float = 0.75
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """A decision, and how sure it is.

    Attributes:
        decision: As the closed loop makes them.
        low, high: Interval of the predicted gain that is meant to hold nine outcomes in ten.
        gains: Of the best settings found, future by future.
        best: The best settings found, taken or not.
        left_out: Jobs that can never run here, which no future holds.
    """

    decision: Decision
    low: float
    high: float
    best: Config
    gains: tuple[float, ...] = ()
    left_out: tuple[str, ...] = field(default=())


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
    """Makes decisions about a cluster by trying settings in a simulation of it.

    Args:
        model: Name of the scheduler that simulates the live one.
        tuning: How settings are looked for.
    """

    def __init__(self, model: str, tuning: Tuning) -> None:
        self._model, self.tuning = model, tuning
        self.predictor = Predictor(seed=tuning.seed)

    def builder(self, observation: Observation) -> Builder:
        """Schedulers that know what past jobs were like."""
        ended = observation.ended
        return Builder.of(self._model, ended.gpus * ended.duration_s, self.tuning.seed)

    def futures(self, observation: Observation, draws: int | None = None) -> list[Future]:
        """Several futures of the cluster, the same for every candidate."""
        tuning = self.tuning
        generators = [Generator(method="back", back_s=back) for back in tuning.back_s]
        draw = PredictedFutures(predictor=self.predictor, generators=generators, horizon_s=tuning.horizon_s, seed=tuning.seed)
        return [draw(observation, number) for number in range(draws or tuning.draws)]

    def decide(self, cluster_state: ClusterState, history: Repository, space: Space) -> Recommendation:
        """Look for better settings than those in force, which are the defaults of `space`.

        Args:
            cluster_state: The cluster now.
            history: Its past.
            space: What may be chosen now, within the operator's bounds.
        """
        began = cpu_s()
        observation, left_out = observation_of(cluster_state, history)
        now = space.default()
        futures = self.futures(observation)
        words = in_one([future.words for future in futures])
        question = Question(futures=futures, cluster=cluster_state.cluster, build=self.builder(observation), reference=now)
        best, chosen, predicted = now, now, 1.0
        gains: tuple[float, ...] = (1.0,)
        contributions: dict[str, float] = {}
        if any(future.jobs for future in futures) and len(space.knobs):
            options = SearchOptions(
                searcher=self.tuning.searcher,
                trials=self.tuning.trials,
                reject=0.0,
                scope=False,
                seed=seed_of(self.tuning.seed, "decision", int(observation.at_s)) % 2**31,
            )
            try:
                answer = search(space, question, Objective(metric=METRIC), now, options)
            except Infeasible as error:
                words = f"{words}; not compared: {error}"
            else:
                best = simplified(space, question, now, answer.best)
                gains = tuple(question.gains(now, best, METRIC).tolist())
                predicted = float(np.exp(np.mean(np.log(gains))))
                if best != now and self._is_accepted(predicted, gains):
                    chosen, contributions = best, _contributions(space, question, now, best)
        low, high = interval(gains)
        decision = Decision(
            at_s=observation.at_s,
            before=now,
            after=chosen,
            predicted=predicted,
            load=float(observation.snapshot.jobs.gpus.sum()) / cluster_state.cluster.gpus,
            waiting=int((~observation.snapshot.running).sum()),
            unfinished=len(observation.rows),
            simulations=question.simulations,
            rejected=0,
            cpu_s=cpu_s() - began,
            words=words,
            contributions=contributions,
        )
        return Recommendation(decision=decision, low=low, high=high, best=best, gains=gains, left_out=left_out)

    def _is_accepted(self, predicted: float, gains: Sequence[float]) -> bool:
        share = float(np.mean([gain > 0.999 for gain in gains]))
        return predicted >= self.tuning.least_gain and share >= self.tuning.least_share

    def what_if(
        self, cluster_state: ClusterState, history: Repository, space: Space, knob: str, most_cpu_s: float = 1.0
    ) -> list[tuple[Value, float]]:
        """Value -> predicted gain over the settings in force, of one knob on the current queue.

        Neighbours of the value in force come first, so what is left out when the time is up are those furthest away.
        """
        began = cpu_s()
        observation, _ = observation_of(cluster_state, history)
        now = space.default()
        question = Question(
            futures=self.futures(observation, draws=2), cluster=cluster_state.cluster, build=self.builder(observation), reference=now
        )
        values = space.knobs[knob].values
        here = space.knobs[knob].position(now[knob]) if knob in now else 0
        gains: dict[int, float] = {}
        for index in sorted(range(len(values)), key=lambda index: abs(index - (here or 0))):
            if gains and cpu_s() - began > most_cpu_s:
                break
            around = now.only(space.ancestors(knob)).extend({knob: values[index]})
            if space.feasible(around):
                with contextlib.suppress(Infeasible, Pruned):
                    gains[index] = float(np.exp(np.mean(np.log(question.gains(now, space.project(now, around), METRIC)))))
        return [(values[index], gains[index]) for index in sorted(gains)]


def in_one(words: Sequence[str]) -> str:
    """What several futures are, with what they have in common said once."""
    texts = [text.split(" ") for text in dict.fromkeys(words)]
    if len(texts) < 2:
        return "".join(words[:1])
    head = _alike(texts)
    tail = _alike([text[head:][::-1] for text in texts])
    ways = [" ".join(text[head : len(text) - tail]) for text in texts]
    return " ".join([*texts[0][:head], (", " if tail else "; ").join(ways), *texts[0][len(texts[0]) - tail :]])


def _alike(texts: Sequence[Sequence[str]]) -> int:
    """How many words texts have in common from their beginning on."""
    return sum(1 for _ in takewhile(lambda words: len(set(words)) == 1, zip(*texts, strict=False)))


def simplified(space: Space, question: Question, old: Config, new: Config) -> Config:
    """New settings without the changes that their gain does not need: an operator reads each of them."""
    for name in sorted(new):
        around = new.only(space.ancestors(name)).extend({name: old[name]}) if name in old else None
        if around is None or name not in new or old[name] == new[name] or not space.feasible(around):
            continue
        back = space.project(new, around)
        with contextlib.suppress(Infeasible, Pruned):
            if float(np.mean(np.log(question.gains(new, back, METRIC)))) >= -MIN_LOG_GAIN:
                new = back
    return new


def _contributions(space: Space, question: Question, old: Config, new: Config) -> dict[str, float]:
    """How many times worse the new settings would be with each change taken back."""
    contributions = {}
    for name in new:
        around = new.only(space.ancestors(name)).extend({name: old.get(name)})
        if name not in old or old[name] == new[name] or not space.feasible(around):
            continue
        with contextlib.suppress(Infeasible, Pruned):
            contributions[name] = float(np.exp(np.mean(np.log(question.gains(space.project(new, around), new, METRIC)))))
    return contributions


def interval(gains: Sequence[float], error: float = MODEL_ERROR) -> tuple[float, float]:
    """Where the real gain should lie, nine times in ten (logarithms, Student's t).

    Args:
        gains: Future by future.
        error: Of the simulation and its predictor, which all futures share, as a share of the gain.
    """
    logs = np.log(np.asarray(gains, np.float64))
    if len(logs) < 2:
        return float(np.exp(logs[0])), float(np.exp(logs[0]))
    spread = math.hypot(float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / len(logs)), error * float(np.mean(logs)))
    reach = student_quantile(0.5 + COVERAGE / 2, len(logs) - 1) * spread
    return float(np.exp(np.mean(logs) - reach)), float(np.exp(np.mean(logs) + reach))

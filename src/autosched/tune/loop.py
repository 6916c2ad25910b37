"""The closed loop: a cluster runs through a trace while a strategy looks at it now and then and changes settings."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autosched.arrivals.arrivals import HOUR_S, WEEK_S
from autosched.predict.estimates import ASKED_EVERY_S, Believed
from autosched.predict.features import Repository
from autosched.sim.policies import Policies, policies_of
from autosched.sim.result import Result
from autosched.sim.session import Session
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autosched.tune.case import Case
from autosched.tune.causal.model import CausalModel
from autosched.tune.draws import Observation, Truth, stressed
from autosched.tune.futures import Builder, Future, Pruned, Question, outcome
from autosched.tune.measures import Before, measures
from autosched.tune.modes import OURS, Mode
from autosched.tune.proof import COVERAGE, jackknife
from autosched.tune.regimes import alarms
from autosched.tune.search import Found, search
from autosched.tune.tuner import Situation, Tuner
from autoscout.common.stats import student_quantile
from autoscout.core.config import Config, Value
from autoscout.core.errors import Infeasible

Vector = NDArray[np.float64]
EQUAL_SHARE = 0.99  # settings that are this good next to the best count as equally good on the past week: half of what is noise there


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One look at the cluster, and what came of it.

    Attributes:
        at_s: When.
        before, after: Settings in force before and after; equal when nothing was changed.
        predicted: How many times better the new settings (or, when nothing changed, the best found) were predicted to be.
        realised: How many times better they were on the jobs that then came, until the next decision; NaN while it is not known, or when
            nothing changed.
        contributions: Knob that changed -> how many times worse the new settings would be with it as before, on the same futures.
        load: GPUs wanted by all jobs in the system over those there are.
        waiting: Jobs without GPUs.
        unfinished: Jobs in the system.
        simulations, rejected, stopped: Runs that the search took, configurations that were not simulated, and those that were not
            simulated to the end.
        cpu_s: Process seconds that the decision took.
        words: What the futures were.
        steps: What each part of the loop did, for people.
    """

    at_s: float
    before: Config
    after: Config
    predicted: float
    load: float
    waiting: int
    unfinished: int
    simulations: int
    rejected: int
    cpu_s: float
    words: str
    contributions: dict[str, float] = field(default_factory=dict)
    steps: tuple[str, ...] = ()
    stopped: int = 0
    realised: float = float("nan")

    @property
    def changed(self) -> bool:
        return self.before != self.after

    def changes(self) -> dict[str, tuple[Value, Value]]:
        """Knob -> value before and after, for those that differ."""
        names = [*self.after, *(name for name in self.before if name not in self.after)]
        return {name: (self.before.get(name), self.after.get(name)) for name in names if self.before.get(name) != self.after.get(name)}


@dataclass(frozen=True, eq=False, kw_only=True)
class ModeRun:
    """What became of a case under a mode.

    Attributes:
        metrics: Of the whole window.
        start: The settings at its beginning.
        decisions: In order.
        result: What happened to every job.
        start_cpu_s: Process seconds of the first tuning.
        model: The causal model, where the mode has one.
    """

    mode: str
    metrics: dict[str, float]
    start: Config
    decisions: tuple[Decision, ...]
    result: Result
    start_cpu_s: float
    model: CausalModel | None = None

    @property
    def changes(self) -> int:
        return sum(decision.changed for decision in self.decisions)

    @property
    def cpu_s(self) -> float:
        return self.start_cpu_s + sum(decision.cpu_s for decision in self.decisions)


class Shared:
    """What several modes of a case begin with, worked out once, with the process seconds it took: each mode is charged them."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Any, float]] = {}

    def once(self, key: Hashable, make: Callable[[], Any]) -> tuple[Any, float]:
        """The value of a key, and the seconds of this process that an earlier caller spent on it."""
        if key in self._known:
            return self._known[key]
        began = time.process_time()
        value = make()
        self._known[key] = value, time.process_time() - began
        return value, 0.0


class Loop:
    """Runs a case under a mode.

    Args:
        case: The cluster and its trace.
        mode: How decisions are made.
        name: Of the mode, for the report.
        seed: Equal seeds, equal runs.
        shared: Of loops over the same case; None: nothing is shared.
    """

    def __init__(self, case: Case, mode: Mode, name: str = "", seed: int = 0, shared: Shared | None = None) -> None:
        self._case, self._mode, self._name, self._seed = case, mode, name, seed
        self._shared = shared or Shared()
        self._saved_s = 0.0  # process seconds of what another loop had worked out
        self._space = case.space
        self._default = self._space.default()
        self._tuner = Tuner(mode, case.aim, case.causes, seed)
        self._tuner.begin(self._space)
        kind = case.kind
        self._believed = Believed(case.trace, case.begin_s, seed) if isinstance(kind, Policies) and kind.believes else None
        self._trace = trace = case.trace if self._believed is None else self._believed.trace
        self._first, self._last = np.searchsorted(trace.submit_s, [case.begin_s, case.to_s], side="left").tolist()
        self._ends = trace.submit_s + trace.duration_s
        self._ends[self._first :] = np.inf
        self._rows = {job: row for row, job in enumerate(trace.job_id.tolist())}
        self._session: Session = self._begin()

    def _begin(self) -> Session:
        case = self._case
        jobs = self._trace.take(slice(self._first, self._last))
        if self._believed is not None:  # jobs come as they are estimated; the clock begins with the first
            ahead_s = max(case.begin_s + ASKED_EVERY_S, float(jobs.submit_s[0]) + 1.0)
            jobs = self._believed.arrivals(self._ends, case.begin_s, self._first, ahead_s)
        return Session(jobs, case.cluster, self._builder(case.begin_s)(self._default))

    def _builder(self, at_s: float) -> Builder:
        """Schedulers learn from the jobs that have ended."""
        trace = self._trace
        recent = (self._ends <= at_s) & (trace.submit_s >= at_s - 4 * WEEK_S)
        return Builder.of(self._case.scheduler, trace.gpus[recent] * trace.duration_s[recent], self._seed, trace.between(-np.inf, at_s))

    def _situation(self, observation: Observation, config: Config | None = None) -> Situation:
        """The cluster now, with these settings in force; the published default when none are named."""
        return Situation(
            observation=observation,
            cluster=self._case.cluster,
            build=self._builder(observation.at_s),
            config=config or self._default,
            space=self._space,
        )

    def run(self) -> ModeRun:
        """Through the whole window."""
        case, mode, session = self._case, self._mode, self._session
        self._step(case.from_s)
        observation = self._view()
        before = _before(session.result(), case.from_s)
        began = time.process_time()
        start = self._default
        with contextlib.suppress(Infeasible):  # the default itself does not work on the past: there is nothing to compare with
            start = self._start(observation)
        start_cpu_s = time.process_time() - began + self._saved_s
        if start != self._default:
            session.reconfigure(self._builder(case.from_s)(start))
        config = start
        decisions: list[Decision] = []
        for at_s, watching, alarm in self._moments():
            self._step(at_s)
            observation = self._view()
            decisions = self._realised(decisions, observation)
            if mode.gives_up and _has_stopped_gaining(decisions, at_s):
                continue
            decision = self._decide(observation, config, watching, alarm)
            decisions.append(decision)
            if decision.changed:
                config = decision.after
                session.reconfigure(self._builder(at_s)(config))
                self._marks.append((at_s, observation.snapshot))
        self._step(case.to_s)
        result = session.result()
        return ModeRun(
            mode=self._name,
            metrics=measures(result, before.with_later(result), fair=True, formulas=case.causes.formulas),
            start=start,
            decisions=tuple(self._realised(decisions, self._view())),
            result=result,
            start_cpu_s=start_cpu_s + (0.0 if self._believed is None else self._believed.cpu_s),
            model=self._tuner.model,
        )

    def _moments(self) -> list[tuple[float, bool, str]]:
        """When decisions are made, whether each is one in between, and which alarm it answers; each alarm rests on what came before it."""
        case, mode = self._case, self._mode
        self._marks: list[tuple[float, Snapshot]] = []
        if not np.isfinite(mode.every_s):
            return []
        step = mode.watch_s or mode.every_s
        first = 0 if mode.start == "default" else 1
        count = int(np.ceil((case.to_s - case.from_s) / step - 1e-9))
        per = max(1, round(mode.every_s / step))
        planned = [(case.from_s + number * step, number % per != 0, "") for number in range(first * per, count)]
        changes = alarms(self._trace, case.cluster.gpus, case.from_s, case.to_s) if mode.alerts else []
        return sorted([*planned, *((alarm.at_s, True, alarm.words) for alarm in changes)])

    def _step(self, until_s: float) -> None:
        """Let time pass; where schedulers go by durations, jobs come with what is believed of them."""
        session, believed = self._session, self._believed
        while believed is not None and session.at_s < until_s:
            at_s = session.at_s
            later = min(at_s + ASKED_EVERY_S, until_s)
            self._note_ends(session.result())
            session.submit(believed.arrivals(self._ends, at_s, self._first + len(session.trace), later))
            session.step(later)
        session.step(until_s)

    def _note_ends(self, result: Result) -> None:
        self._ends[self._first : self._first + len(result.trace)] = np.where(result.ended, result.end_s, np.inf)

    def _view(self) -> Observation:
        """What is known now."""
        session, trace = self._session, self._trace
        at_s, result, ends = session.at_s, session.result(), self._ends
        self._note_ends(result)
        here = int(np.searchsorted(trace.submit_s, at_s, side="left"))
        snapshot = session.snapshot()
        rows = np.asarray([self._rows[job] for job in snapshot.jobs.job_id.tolist()], np.int64)
        return Observation(
            at_s=at_s,
            history=Repository(trace.take(slice(here)), ends[:here].copy()),
            snapshot=snapshot,
            rows=rows,
            truth=self._truth(at_s),
        )

    def _truth(self, at_s: float) -> Trace:
        """What really comes; of durations an oracle's schedulers believe what can be known now."""
        knows = self._mode.start == "window" or self._mode.futures == "truth"
        return self._believed.guessed(self._ends, at_s) if self._believed is not None and knows else self._trace

    # ------------------------------------------------------------------------------------------------------------------- the start

    def _start(self, observation: Observation) -> Config:
        mode, case = self._mode, self._case
        if mode.start == "window":
            true = Truth(horizon_s=case.to_s - case.from_s, cap_s=case.to_s - case.from_s)(observation, 0)
            return self._tuned_once([true], observation)[1].best
        if mode.start == "default" and not mode.causal:
            return self._default
        past, fitted = self._once("past", lambda: (self._past(observation), self._tuner.predictor))
        self._tuner.predictor = copy.copy(fitted)  # which is fitted again on the way
        if past is None:
            return self._default
        self._tuner.learn(past, self._situation(observation))
        if mode.start == "default":
            return self._default
        calm, config = self._once(("history", mode.start_trials), lambda: self._tuned_once([past], observation))
        busier = stressed(past, case.cluster.gpus) if mode.start == "stressed" else None
        best = config.best if busier is None else self._steady(calm, config, busier, observation)
        return best if not mode.checked or self._is_proven(self._default, best, past, observation, mode.least_gain) else self._default

    def _once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        value, seconds = self._shared.once((key, self._mode.predictor, self._seed), make)
        self._saved_s += seconds
        return value

    def _past(self, observation: Observation) -> Future | None:
        return self._tuner.past(self._situation(observation))

    def _tuned_once(self, futures: Sequence[Future], observation: Observation) -> tuple[Question, Found]:
        mode = self._mode
        options = replace(mode.search, searcher=OURS, trials=mode.start_trials, reject=0.0, scope=False, seed=self._seed)
        question = self._question(futures, observation, self._default)
        return question, search(self._space, question, self._objective(question), self._default, options, first=policies_of(self._space))

    def _steady(self, calm: Question, tuned: Found, busier: Future, observation: Observation) -> Config:
        """Of the settings that are as good as the tuned ones on the past week, those that are best on a busier one.

        Where hardly anything queued in that week all settings are alike on it, also those that fail as soon as something does.
        """
        case, needed = self._case, self._objective(calm)

        def is_as_good(metrics: Mapping[str, float]) -> bool:
            fits = all(limit.allows(metrics[limit.metric]) for limit in needed.limits)
            return fits and case.gain(tuned.metrics[case.metric], metrics[case.metric]) >= EQUAL_SHARE

        busy = self._question([busier], observation, self._default)

        def ask(config: Config) -> Mapping[str, float]:
            try:
                past = calm(config)
            except Pruned as error:
                raise Infeasible(str(error)) from error
            if not is_as_good(past):
                raise Infeasible("worse than the tuned settings on the past week")
            return busy(config)

        options = replace(self._mode.search, searcher=OURS, reject=0.0, scope=False, seed=self._seed)
        others = [config for config, metrics in tuned.runs if config != tuned.best and is_as_good(metrics)]
        nearest = sorted(others, key=lambda config: -case.gain(tuned.metrics[case.metric], calm(config)[case.metric]))
        for index, start in enumerate(first := [tuned.best, *nearest[: options.trials // 2]]):
            with contextlib.suppress(Infeasible, Pruned):  # which the tuned settings themselves may be when more jobs come
                ask(start)
                return search(self._space, ask, self._objective(busy), start, options, first=first[index + 1 :]).best
        return tuned.best

    def _is_proven(
        self, old: Config, new: Config, past: Future | None, observation: Observation, least: float, *, is_change: bool = False
    ) -> bool:
        """Whether new settings are at least `least` times as good as old ones on weeks that they were not chosen on.

        Of many settings the best on some futures is flattered by them: where a scheduler never preempts, one long job that starts at the
        wrong moment decides more than most knobs. So the mean gain less its standard error counts. Of a later change (`is_change`), whose
        gain is small, the lower end of the interval counts; the orders have the same jobs, so to what they differ by comes how much the
        gain rests on single days. Jobs must not take longer than under the published default where that is a condition, by more than such
        an error; guards must be kept on the mean of these weeks.
        """
        if new == old or past is None:
            return True
        weeks = self._tuner.orders(past, observation.at_s)
        weeks += [busier for week in weeks if (busier := stressed(week, self._case.cluster.gpus)) is not None]
        question, metric = self._question(weeks, observation, self._default), self._case.metric
        try:
            gain, error = _mean(question.gains(old, new, metric))
            if is_change:
                rest = self._question(self._tuner.without_parts(past, observation.at_s), observation, self._default)
                shared = jackknife(rest.gains(old, new, metric).tolist())
                error = math.hypot(error, shared) * student_quantile(0.5 + COVERAGE / 2, len(weeks) - 1)
            time, time_error = _mean(question.gains(self._default, new, "time_s"))
            default, means = question(self._default, whole=True), question(new, whole=True)
        except (Infeasible, Pruned):
            return False
        keeps = all(limit.allows(means[limit.metric]) for limit in self._case.aim.limits(default))
        return keeps and gain - error >= math.log(least) and (self._case.aim.is_time or time + time_error >= 0)

    # ---------------------------------------------------------------------------------------------------------------- one decision

    def _question(self, futures: Sequence[Future], observation: Observation, reference: Config | None = None) -> Question:
        return self._tuner.question(futures, self._situation(observation), reference)

    def _objective(self, question: Question) -> Any:
        return self._tuner.objective(question, self._default)

    def _decide(self, observation: Observation, config: Config, watching: bool, alarm: str = "") -> Decision:
        case, mode = self._case, self._mode
        began = time.process_time()
        least = mode.watch_gain if watching else mode.least_gain
        attempt = self._tuner.attempt(self._situation(observation, config), self._default, least)
        chosen, contributions, best = config, {}, attempt.found.best if attempt.found else config
        is_proven = not mode.checked or best == config
        if best != config and attempt.predicted >= least:
            is_proven = is_proven or self._is_proven(config, best, self._past(observation), observation, 1.0, is_change=True)
            if is_proven:
                chosen, contributions = best, self._tuner.contributions(attempt.question, self._space, config, best)
        demand = float(observation.snapshot.jobs.gpus.sum())
        return Decision(
            at_s=observation.at_s,
            before=config,
            after=chosen,
            predicted=attempt.predicted,
            load=demand / case.cluster.gpus,
            waiting=int((~observation.snapshot.running).sum()),
            unfinished=len(observation.rows),
            simulations=attempt.question.simulations,
            rejected=attempt.rejected,
            stopped=len(attempt.question.stopped),
            cpu_s=time.process_time() - began,
            words=attempt.words,
            contributions=contributions,
            steps=(
                *([f"Alarm: {alarm}"] if alarm else []),
                *attempt.steps,
                accepted(attempt.predicted, least, is_proven=is_proven, is_new=best != config),
            ),
        )

    # ------------------------------------------------------------------------------------------------------------------ looking back

    def _realised(self, decisions: list[Decision], observation: Observation) -> list[Decision]:
        """Fill in what the last change gained on the jobs that came since, compared with the settings before it.

        Looks in between may have come after it that changed nothing.
        """
        number = next((index for index in reversed(range(len(decisions))) if decisions[index].changed), None)
        if number is None or not np.isnan(decisions[number].realised):
            return decisions
        last, (at_s, snapshot) = decisions[number], self._marks[-1]
        if observation.at_s - at_s < HOUR_S / 2:
            return decisions
        arrivals = self._trace.between(at_s, observation.at_s)
        future = Future(at_s=at_s, arrivals=arrivals, snapshot=snapshot if len(snapshot.jobs) else None, until_s=observation.at_s)
        build, metric = self._builder(at_s), self._case.metric
        fair = self._case.aim.is_fair
        formulas, cluster = self._case.causes.formulas, self._case.cluster
        rows = [outcome(future, cluster, build(config), fair=fair, formulas=formulas)[metric] for config in (last.before, last.after)]
        return [*decisions[:number], replace(last, realised=self._case.gain(rows[0], rows[1])), *decisions[number + 1 :]]


def accepted(predicted: float, least: float, *, is_proven: bool, is_new: bool) -> str:
    """Whether new settings were taken, and by which rule."""
    if not is_new:
        return "Answer: the settings in force are the best that was found"
    if predicted < least:
        return f"Answer: not taken, {predicted:.3f} times better is below {least:.3f}"
    return f"Answer: taken, {predicted:.3f} times better" if is_proven else "Answer: not taken, not proven on other weeks"


def _mean(gains: Vector) -> tuple[float, float]:
    """The mean of the logarithms, and its standard error."""
    logs = np.log(gains)
    return float(logs.mean()), float(logs.std(ddof=1) / math.sqrt(len(logs)))


def _before(result: Result, at_s: float) -> Before:
    ended = result.ended
    return Before(
        at_s=at_s,
        executed_s=result.executed_s.copy(),
        remaining_s=np.where(ended, 0.0, result.remaining_s),
        preemptions=result.preemptions.astype(np.float64),
        idle_gpu_s=result.counters.get("idle_while_waiting_gpu_s", 0.0),
    )


def _has_stopped_gaining(decisions: Sequence[Decision], at_s: float) -> bool:
    """Whether the changes of the last week, three at least, did not gain."""
    recent: Vector = np.asarray([each.realised for each in decisions if each.changed and each.at_s >= at_s - WEEK_S])
    finite = recent[np.isfinite(recent)]
    return len(finite) >= 3 and float(np.prod(finite)) <= 1.0

"""One decision of AutoSched's loop, the same for a replayed cluster and a live one: futures, aggregation, search, causal model."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autosched.arrivals.arrivals import DAY_S, WEEK_S
from autosched.predict.predictor import Predictor
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.policies import policies_of
from autosched.sim.snapshot import Snapshot
from autosched.tune.aggregate import Aggregator
from autosched.tune.causal.model import CausalModel
from autosched.tune.draws import Draw, LastHour, Observation, PredictedFutures, Truth, believed, past_days, reordered
from autosched.tune.futures import Builder, Future, Pruned, Question
from autosched.tune.goals import Causes, Goal
from autosched.tune.modes import Mode
from autosched.tune.search import Found, search
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.core.seeds import number as seed_of
from autoscout.core.task import Objective
from autoscout.space import Space

HISTORY_S = 2 * DAY_S  # of past trace below which nothing is tuned on it
MIN_POSSIBLE_GAIN = 1.001  # nothing is looked for where no settings can gain as much: the rounds of a scheduler alone make that difference
ORDERS = 7  # of the days of the past week, all but the first of which new settings are proven on
LEARNING_TRIALS = 60  # random settings of the causal model's offline phase


@dataclass(frozen=True, eq=False, kw_only=True)
class Situation:
    """A cluster at a moment, as a decision sees it.

    Attributes:
        observation: What is known.
        cluster: Its nodes.
        build: Schedulers that know what past jobs were like.
        config: The settings in force.
        space: What may be chosen.
    """

    observation: Observation
    cluster: Cluster
    build: Builder
    config: Config
    space: Space


@dataclass(frozen=True, eq=False, kw_only=True)
class Attempt:
    """What a search for better settings came to.

    Attributes:
        question: The futures, and what each configuration made of them.
        found: The best settings; None where nothing was compared.
        predicted: How many times better they are predicted to be.
        words: What the futures were.
        steps: What each part of the loop did, for people.
    """

    question: Question
    found: Found | None
    predicted: float
    words: str
    steps: tuple[str, ...]

    @property
    def rejected(self) -> int:
        return 0 if self.found is None else self.found.rejected


class Tuner:
    """Draws futures and looks for settings on them, as a mode says.

    Args:
        mode: How.
        goal: What is improved.
        causes: What the causal model reasons about.
        seed: Equal seeds, equal answers.
        predictor: Of remaining times; a fresh one when left out.
    """

    def __init__(
        self, mode: Mode, goal: Goal | None = None, causes: Causes | None = None, seed: int = 0, predictor: Predictor | None = None
    ) -> None:
        self.mode, self.goal, self.causes = mode, goal or Goal(), causes or Causes()
        self.predictor = predictor or Predictor(mode.predictor, seed)
        self.model: CausalModel | None = None
        self._seed = seed

    def begin(self, space: Space) -> None:
        """Make the causal model, where the mode has one; once, with everything that may ever be chosen.

        Raises:
            ConfigError: an operator names edges that begin nowhere.
        """
        if self.mode.causal and self.model is None:
            self.causes.check(space.knobs)
            self.model = CausalModel(space, self.causes.metrics, self.goal.metric, self._seed, self.causes)

    def past(self, situation: Situation) -> Future | None:
        """The last week again, from the state that the cluster was in before it; None where there is too little past."""
        observation = situation.observation
        self.predictor.fit(observation.history, observation.at_s)
        chances = self.predictor.chances(observation.history, observation.rows, observation.at_s, observation.snapshot.executed_s)
        trace = believed(observation, self.predictor.draw_s(chances, observation.snapshot.executed_s, (int(observation.at_s), "past")))
        if not len(trace) or observation.at_s - trace.submit_s[0] < HISTORY_S:
            return None
        length = min(WEEK_S, (observation.at_s - float(trace.submit_s[0])) * 2 / 3)
        begin = observation.at_s - length
        scheduler = situation.build(situation.config)
        earlier = simulate(trace.between(begin - WEEK_S, begin), situation.cluster, scheduler, Run(until_s=begin))
        words = f"the jobs of the last {length / DAY_S:.1f} days again"
        return Future(at_s=begin, arrivals=trace.between(begin, observation.at_s), snapshot=Snapshot.of(earlier), words=words)

    @staticmethod
    def orders(past: Future, at_s: float) -> list[Future]:
        """The past week with its days in other orders, on which no settings were chosen."""
        length = at_s - past.at_s
        return [reordered(past, length * part / ORDERS) for part in range(1, ORDERS)]

    @staticmethod
    def without_parts(past: Future, at_s: float) -> list[Future]:
        """The past week with each of its days left out, and what came later coming that much earlier; a shorter past in as many parts."""
        jobs, length = past.arrivals, (at_s - past.at_s) / ORDERS
        weeks = []
        for number in range(ORDERS):
            begin, end = past.at_s + number * length, past.at_s + (number + 1) * length
            rest = jobs.take(np.flatnonzero((jobs.submit_s < begin) | (jobs.submit_s >= end)))
            moved = replace(rest, submit_s=np.where(rest.submit_s >= end, rest.submit_s - length, rest.submit_s))
            weeks.append(replace(past, arrivals=moved, words=f"{past.words}, without part {number + 1} of {ORDERS}"))
        return weeks

    def learn(self, past: Future, situation: Situation) -> None:
        """The offline phase of the causal model: random settings on a day of the past."""
        if self.model is None:
            return
        at_s = situation.observation.at_s
        day = replace(past, at_s=at_s - DAY_S, arrivals=past.arrivals.between(at_s - DAY_S, at_s), snapshot=None)
        question = self.question([day], situation)
        options = replace(self.mode.search, searcher="random", trials=LEARNING_TRIALS, reject=0.0, scope=False, seed=self._seed)
        answer = search(situation.space, question, self.objective(question, situation.config), situation.config, options)
        self.model.add(answer.runs, answer.start)
        self.model.learn()

    def question(
        self, futures: Sequence[Future], situation: Situation, reference: Config | None = None, least_share: float = 0.0
    ) -> Question:
        """How configurations do on these futures."""
        return Question(
            futures=list(futures),
            cluster=situation.cluster,
            build=situation.build,
            goal=self.goal,
            reference=reference,
            least_share=least_share,
            formulas=self.causes.formulas,
        )

    def objective(self, question: Question, default: Config) -> Objective:
        """What is better; for goals other than time, as long as jobs take no longer than with `default`, and within the limits."""
        objective = self.goal.objective(question(default, whole=True) if self.goal.needs_default else {})
        question.limits = objective.limits
        return objective

    def draw(self, seed: int) -> Draw:
        """Makes futures at a moment."""
        mode = self.mode
        if mode.futures == "truth":
            return Truth(horizon_s=mode.horizon_s, cap_s=mode.cap_s)
        if mode.futures == "last-hour":
            return LastHour()
        generators = past_days(mode.draws) if mode.futures == "days" else mode.generators
        return PredictedFutures(predictor=self.predictor, generators=generators, horizon_s=mode.horizon_s, cap_s=mode.cap_s, seed=seed)

    def futures(self, situation: Situation, draws: int = 0) -> list[Future]:
        """Several futures, the same for every candidate; similar jobs merged where the mode says so.

        Args:
            situation: The cluster now.
            draws: How many; as many as the mode says when left out.
        """
        draw = self.draw(self._seed)
        futures = [draw(situation.observation, number) for number in range(draws or self.mode.draws)]
        if not self.mode.aggregate:
            return futures
        merge = Aggregator(node_gpus=max(group.gpus for group in situation.cluster.groups))
        return [merge(future) for future in futures]

    def attempt(self, situation: Situation, default: Config, least: float) -> Attempt:
        """Look for better settings than those in force.

        Args:
            situation: The cluster now.
            default: Settings whose times bound those of goals other than time.
            least: Times better that a change must be; where nothing can gain as much, nothing is looked for.
        """
        mode, config = self.mode, situation.config
        futures = self.futures(situation)
        words = in_one([future.words for future in futures])
        reference = config if len(futures) > 1 else None
        question = self.question(futures, situation, reference, mode.least_share)
        best, predicted = None, 1.0
        if all(future.jobs for future in futures) and situation.space.knobs:
            number = seed_of(self._seed, "decision", int(situation.observation.at_s)) % 2**31
            options = replace(mode.search, seed=number)
            try:
                if question.room(config) >= max(least, MIN_POSSIBLE_GAIN):
                    objective, first = self.objective(question, default), policies_of(situation.space)
                    best = search(situation.space, question, objective, config, options, self.model, first)
                else:
                    words = f"{words}; not compared: next to the jobs' own work there is nothing to gain"
            except Infeasible as error:  # the settings in force do not work on the future that was drawn: nothing to compare with
                words = f"{words}; not compared: {error}"
        if best is not None:
            predicted = self.goal.gain(best.start[self.goal.metric], best.metrics[self.goal.metric])
        steps = self._steps(situation, futures, question, best)
        return Attempt(question=question, found=best, predicted=predicted, words=words, steps=steps)

    def contributions(self, question: Question, space: Space, old: Config, new: Config) -> dict[str, float]:
        """How many times worse the new settings would be with each change taken back."""
        contributions = {}
        for name in new:
            if old.get(name) == new[name] or name not in old:
                continue
            around = new.only(space.ancestors(name)).extend({name: old[name]})
            if not space.feasible(around):
                continue
            back, metric = space.project(new, around), self.goal.metric
            with contextlib.suppress(Infeasible, Pruned):
                contributions[name] = self.goal.gain(question(back, whole=True)[metric], question(new, whole=True)[metric])
        return contributions

    def _steps(self, situation: Situation, futures: Sequence[Future], question: Question, found: Found | None) -> tuple[str, ...]:
        """What each part of the loop did."""
        mode, here = self.mode, len(situation.observation.rows)
        jobs = sum(future.jobs for future in futures)
        drawn = f"Generator: {in_one([future.words for future in futures]) or 'no future'}"
        steps = [f"{drawn}; {len(futures)} future{'s' * (len(futures) != 1)} of {mode.horizon_s / 3600:g} h"]
        if mode.futures in ("days", "predicted"):
            steps.append(f"Predictor: {self.predictor.name}, of {here} unfinished jobs, fitted on {self.predictor.count} that had ended")
        if mode.aggregate:
            whole = sum(float(future.weights.sum()) if future.weights is not None else future.jobs for future in futures)
            steps.append(f"Aggregator: {whole:.0f} jobs became {jobs}")
        if self.model is not None:
            recent = self.model.errors[-5:]
            error = f"; its last predictions were {float(np.mean(recent)):.1%} off" if recent else ""
            steps.append(f"Causal model: {self.model.graph.method}{error}")
        if found is not None:
            rejected = f", {found.rejected} rejected by their prediction" if self.model is not None else ""
            frozen = f"; not moved for a while: {', '.join(found.frozen)}" if found.frozen else ""
            tried = f"{len(found.runs)} configurations in {question.simulations} simulations"
            steps.append(f"Search: {mode.search.searcher} tried {tried}{rejected}, {len(question.stopped)} stopped early{frozen}")
            steps += [f"Cause: {line}" for line in self._reasons(situation.config, found.best)]
        return tuple(steps)

    def _reasons(self, old: Config, new: Config) -> list[str]:
        """What the causal model says a change acts on."""
        if self.model is None or not self.model.is_ready:
            return []
        graph = self.model.graph
        changed = [name for name in graph.knobs if name in new and old.get(name) != new[name]]
        acts = {name: [metric for metric in graph.metrics if (name, metric) in graph.edges] for name in changed}
        return [f"{name} acts on {', '.join(metrics) or 'nothing that shows'}" for name, metrics in acts.items()]


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
    count = 0
    for words in zip(*texts, strict=False):
        if len(set(words)) > 1:
            break
        count += 1
    return count


__all__ = ["HISTORY_S", "MIN_POSSIBLE_GAIN", "ORDERS", "Attempt", "Situation", "Tuner", "in_one"]

"""Searcher `hybrid`: a model of all trials proposes what is worth most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import zip_longest
from typing import ClassVar

import numpy as np

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher, Simulator
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import EXPENSIVE_S, Proposal, Trial
from autoscout.learning.answers import Answer, AnswerSet
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.front import FrontSurrogate, leaders
from autoscout.search.hybrid.model_choice import ChosenSurrogate
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.prior import Prior
from autoscout.search.hybrid.surrogate import Memory, Surrogate
from autoscout.search.hybrid.warm import Belief
from autoscout.space import Space
from autoscout.space.encode import Encoder, Floats, Rows

_NOTHING = Config()


class HybridSearcher(Searcher):
    """Expected improvement times chance of success, over candidates that a surrogate of all told trials predicts.

    A step: fit the surrogate, then take the candidate that is worth most; the first few are starting points. Given a simulator of the
    task, the surrogate starts from what that predicts and learns where it is wrong, next to a plain one that takes over if all is wrong.
    With several goals there is a surrogate for each, and improvement is what a candidate is expected to add to the front.
    """

    learns_from_past: ClassVar[bool] = True
    takes_predictions: ClassVar[bool] = True
    takes_several_goals: ClassVar[bool] = True

    def __init__(
        self, space: Space, task: Task, seed: int = 0, options: HybridOptions | None = None, simulator: Simulator | None = None
    ) -> None:
        self._space = space
        self._seed = seed
        self._options = options or HybridOptions()
        self._encoder = Encoder(space)
        self._trials = AnswerSet(space, task.objective)
        self._belief = Belief(space, self._encoder, self._options.past)
        self._several = task.objective.several
        tasks = [replace(task, objective=task.objective.only(goal)) for goal in task.objective.goals]
        priors = [Prior(self._encoder, simulator, task) if simulator else None for task in tasks]
        # With several goals a simulator need not know all of them.
        self._priors = [prior if prior and (not self._several or prior.can_answer()) else None for prior in priors]
        self._pools: dict[Config, Candidates] = {}
        self._memory: Memory = {}

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        if given not in self._pools:
            # A simulator predicts every candidate, which takes it seconds; its favourites and their neighbours join them.
            draws = tuning.MAX_LISTED // 4 if self._priors[0] is None else tuning.RANDOM_CANDIDATES
            self._pools[given] = Candidates(self._space, self._encoder, self._seed, given, draws)
        waiting = [proposal.config for proposal in pending]
        proposals: list[Proposal] = []
        while len(proposals) < n and (proposal := self._propose(given, waiting)):
            proposals.append(proposal)
            waiting.append(proposal.config)
        return proposals

    def _propose(self, given: Config, waiting: Sequence[Config]) -> Proposal | None:
        everything, pool = self._trials.answers(), self._pools[given]
        taken = {*self._trials.configs, *waiting}
        step = len(everything) + len(waiting)
        config, proposer = self._start(pool, taken, step) if step < self._options.start else None, "start"
        if config is None:
            config, proposer = self._most_promising(bounded(everything), pool, taken, waiting), "acquisition"
        if config is None:
            return None
        return Proposal(config=config, origin=Origin(by="hybrid", notes={"round": step, "proposer": proposer}))

    def _start(self, pool: Candidates, taken: set[Config], step: int) -> Config | None:
        """The default; then what was best on similar tasks; then what is far from all tried. A simulator knows better where to begin.

        Where the default works and trials are expensive, few of its knobs are changed: engines have good defaults, and far from them most
        settings only cost.
        """
        informed = self._priors[0] is not None
        wishes = [self._space.project(wish, pool.given) for wish in (self._space.default(), *(() if informed else self._belief.best))]
        for config in wishes:
            if config not in taken and pool.holds(config):
                return config
        if informed:
            return None
        configs, rows = pool.weigh(taken, (), step)
        default = next((answer for answer in self._trials.answers() if answer.config == wishes[0]), None)
        if default is not None and not default.failed and default.cost_s >= EXPENSIVE_S:
            changed = pool.around(wishes[0])[0]
            one = changed[int(stream(self._seed, "hybrid", "start", step).integers(len(changed)))] if changed else wishes[0]
            near = [config for config in pool.around(one)[0] if config not in taken]
            configs, rows = (near, self._encoder.rows(near)) if near else (configs, rows)
        points = self._encoder.rows([*(answer.config for answer in self._trials.answers()), *(taken - self._trials.configs)]).plain
        apart = ((rows.plain[:, None, :] - points[None, :, :]) ** 2).sum(2).min(1, initial=np.inf)
        return configs[int(np.argmax(apart))] if configs else None

    def _most_promising(self, answers: Sequence[Answer], pool: Candidates, taken: set[Config], waiting: Sequence[Config]) -> Config | None:
        """The candidate that is worth most; None where there is none, or none is expected to gain `stop_gain`."""
        worked = (answer for answer in answers if not answer.failed)
        best = leaders(answers) if self._several else sorted(worked, key=lambda answer: _rank(answer, 0))
        good = [answer.config for answer in best[: tuning.BEST_CONFIGS]]
        configs, rows = pool.weigh(taken, good, self._trials.count + len(waiting))
        for prior in self._priors:
            if prior is not None and not pool.whole:
                configs, rows = prior.widen(configs, rows, taken, pool)
        if not configs:
            return None
        model = self._model(answers, waiting)
        if not len(model.targets) and self._priors[0] is None:
            # Where failures end is a guess as long as nothing worked, so not always the likeliest.
            chance = model.chance(rows)
            rng = stream(self._seed, "hybrid", "failures", len(taken))
            return configs[int(rng.choice(len(configs), p=chance / chance.sum()))]
        if len(model.targets) > 1 and not waiting and float(model.worth(rows).max()) * model.unit < self._options.stop_gain:
            return None

        def worth(rows: Rows) -> Floats:
            values = model.worth(rows)
            return np.where(model.chance(rows) < tuning.MIN_SUCCESS_CHANCE, 1e-120 * values, values) if self._options.cautious else values

        return pool.best(configs, rows, taken, worth)

    def _model(self, answers: Sequence[Answer], waiting: Sequence[Config]) -> Surrogate:
        """Past studies say something of the first goal, a simulator of each that it knows."""
        models = [
            ChosenSurrogate(prior, self._encoder, self._memory) if prior else Surrogate(self._encoder, self._memory, belief)
            for prior, belief in zip_longest(self._priors, [self._belief])
        ]
        model = FrontSurrogate(models, self._encoder, self._memory) if self._several else models[0]
        model.fit(answers, waiting)
        return model


def bounded(answers: Sequence[Answer]) -> Sequence[Answer]:
    """At most `tuning.MAX_ANSWERS` answers, oldest first, as the set of all answers alone decides.

    Two fifths are the best, by each goal in turn: they say where the optimum is. A fifth are the newest: what the search is at. The others
    are those with the smallest keys: keys are hashes, so this is a random sample, and it stays nearly the same from step to step, so that
    fitted hyperparameters can be used again.

    Args:
        answers: All there are, oldest first.
    """
    most = tuning.MAX_ANSWERS
    if len(answers) <= most:
        return answers
    rows = range(len(answers))
    chosen = {*rows[-most // 5 :]}
    worked = [row for row in rows if not answers[row].failed]
    goals = max((len(answers[row].losses) for row in worked), default=1)
    for goal in range(goals):
        chosen.update(nsmallest(2 * most // 5 // goals, worked, key=lambda row: _rank(answers[row], goal)))
    rest = (row for row in rows if row not in chosen)
    chosen.update(nsmallest(most - len(chosen), rest, key=lambda row: answers[row].key))
    return [answers[row] for row in sorted(chosen)]


def _rank(answer: Answer, goal: int) -> tuple[bool, float, str]:
    """Measured before simulated, then by the loss."""
    loss = answer.losses[goal] if goal < len(answer.losses) else answer.loss
    return not answer.measured, loss, answer.key

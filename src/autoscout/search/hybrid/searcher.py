"""Searcher `hybrid`: a model of all trials proposes what is worth most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from heapq import nsmallest
from typing import ClassVar

from autoscout.core.config import Config
from autoscout.core.protocols import Searcher, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import Answer, AnswerSet
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.front import FrontSurrogate
from autoscout.search.hybrid.model_choice import ChosenSurrogate
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.prior import Prior
from autoscout.search.hybrid.start import starting_point
from autoscout.search.hybrid.state import SearchState
from autoscout.search.hybrid.surrogate import Memory, Surrogate
from autoscout.search.hybrid.warm import Belief
from autoscout.space import Space
from autoscout.space.encode import Encoder

_NOTHING = Config()


class HybridSearcher(Searcher):
    """Expected improvement times chance of success, over candidates that a surrogate of all told trials predicts.

    A step: fit the surrogate, then take the candidate that is worth most; the first few are starting points. Given a simulator of the
    task, the surrogate starts from what that predicts and learns where it is wrong, next to a plain one that takes over if it is wrong
    throughout.

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
        self._priors = [self._prior_of(simulator, replace(task, objective=task.objective.only(goal))) for goal in task.objective.goals]
        self._pools: dict[Config, Candidates] = {}
        self._memory: Memory = {}
        self._bounded: tuple[Sequence[Answer], Sequence[Answer]] | None = None  # the last answers, and which of them are learnt from
        self._fitted: tuple[object, tuple[Config, ...], Surrogate] | None = None  # the last fit, for asks that change nothing

    def _prior_of(self, simulator: Simulator | None, task: Task) -> Prior | None:
        """A simulator's predictions of one goal; with several, None where it has none for that one."""
        if simulator is None:
            return None
        prior = Prior(self._encoder, simulator, task)
        return prior if not self._several or prior.can_answer() else None

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
        while len(proposals) < n:
            proposal = self._propose(given, waiting)
            if proposal is None:
                break
            proposals.append(proposal)
            waiting.append(proposal.config)
        return proposals

    def _propose(self, given: Config, waiting: Sequence[Config]) -> Proposal | None:
        state = self._state(given, waiting)
        first = starting_point(state)
        if first is not None:
            return state.proposal(first, "start")
        if not state.candidates[0] or state.expects_nothing():
            return None
        return state.proposal(state.most_promising(), "acquisition")

    def _state(self, given: Config, waiting: Sequence[Config]) -> SearchState:
        everything = self._trials.answers()
        answers = self._learned(everything)
        return SearchState(
            encoder=self._encoder,
            options=self._options,
            seed=self._seed,
            given=given,
            pool=self._pools[given],
            answers=answers,
            count=len(everything),
            waiting=waiting,
            taken={*self._trials.configs, *waiting},
            trials=self._trials.count,
            remembered=self._belief.best if self._priors[0] is None else (),
            priors=self._priors,
            fit=lambda: self._model(answers, waiting),
        )

    def _learned(self, everything: Sequence[Answer]) -> Sequence[Answer]:
        """What the steps learn from; the same object until something new is told."""
        if self._bounded is None or self._bounded[0] is not everything:
            self._bounded = (everything, bounded(everything))
        return self._bounded[1]

    def _model(self, answers: Sequence[Answer], waiting: Sequence[Config]) -> Surrogate:
        last = self._fitted
        if last is not None and last[0] is answers and last[1] == tuple(waiting):
            return last[2]
        models = [self._of_goal(goal) for goal in range(len(self._priors))]
        model = FrontSurrogate(models, self._encoder, self._seed, self._options, self._memory) if self._several else models[0]
        model.fit(answers, waiting)
        self._fitted = (answers, tuple(waiting), model)
        return model

    def _of_goal(self, goal: int) -> Surrogate:
        """A model of one goal: what past studies say of the first, and a simulator of each."""
        prior = self._priors[goal]
        if prior is not None:
            return ChosenSurrogate(prior, self._encoder, self._seed, self._options, self._memory)
        belief = self._belief if goal == 0 else Belief(self._space, self._encoder, ())
        return Surrogate(self._encoder, self._seed, self._options, belief, self._memory)


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

"""Searcher `hybrid`: a model of all trials proposes, and is not followed where it is known to be wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from autoscout.core.config import Config
from autoscout.core.protocols import Searcher, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import Answer, AnswerSet
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.failures import weighed
from autoscout.search.hybrid.front import FrontSurrogate, leaders
from autoscout.search.hybrid.learned import bounded
from autoscout.search.hybrid.model_choice import ChosenSurrogate
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.prior import Prior
from autoscout.search.hybrid.proposers import PROPOSERS, start
from autoscout.search.hybrid.state import SearchState
from autoscout.search.hybrid.surrogate import Memory, Surrogate
from autoscout.search.hybrid.warm import Belief
from autoscout.space import Space
from autoscout.space.encode import Encoder

_NOTHING = Config()


class HybridSearcher(Searcher):
    """Expected improvement times chance of success, over candidates that a surrogate of all told trials predicts.

    A step: fit the surrogate; let the proposers try in turn, the first that has something proposes it: a starting point; where the search
    has stalled, a structure that was seldom tried; where the model expects nothing more, an unknown neighbour of a good configuration;
    else the candidate that is worth most. Given a simulator of the task, the surrogate starts from what that predicts and learns where it
    is wrong, next to a plain one that takes over if it is wrong throughout.

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
            self._pools[given] = Candidates(self._space, self._encoder, self._seed, given)
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
        first = start.propose(state)
        if first is not None or not state.weighed[0] or is_finished(state):
            return first
        return next((proposal for propose in PROPOSERS if (proposal := propose(state)) is not None), None)

    def _state(self, given: Config, waiting: Sequence[Config]) -> SearchState:
        everything = self._trials.answers()
        answers = self._learned(everything)
        return SearchState(
            space=self._space,
            encoder=self._encoder,
            options=self._options,
            seed=self._seed,
            given=given,
            pool=self._pools[given],
            answers=answers,
            count=len(everything),
            failure_count=sum(answer.failed for answer in everything),
            waiting=waiting,
            taken={*self._trials.configs, *waiting},
            trials=self._trials.count,
            remembered=self._belief.best if self._priors[0] is None else (),
            prior=self._priors[0],
            fit=lambda: self._model(answers, waiting),
            front=leaders(answers) if self._several else None,
            other_priors=self._priors[1:],
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


def is_finished(state: SearchState) -> bool:
    """Whether no candidate is expected to gain `stop_gain`, or all that is left is likely to fail and expected to gain next to nothing."""
    model, options = state.model, state.options
    if len(model.targets) < 2 or state.waiting:
        return False
    if state.gain < options.stop_gain:
        return True
    if not options.stop_failing or state.step < 3 * tuning.EARLY_TRIALS or state.gain >= tuning.MIN_GAIN or not state.risk.spent:
        return False
    if (state.chance >= tuning.MIN_SUCCESS_CHANCE).any():
        return False
    rest = state.pool.rows.take(state.pool.free(state.taken))
    if (model.chance(rest) >= tuning.MIN_SUCCESS_CHANCE).any():
        return False
    doubts = ((weighed(other, *other.predict(rest), other.chance(rest)) * other.unit).max(initial=0.0) for other in model.others)
    return all(gain < tuning.MIN_GAIN for gain in doubts)

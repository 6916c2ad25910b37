"""What the adapters to Optuna's samplers share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.seeds import number
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import AnswerSet, finite_losses
from autoscout.space import Space
from autoscout_lab.search._shared.adapter import TRIES, at, propose


class OptunaAdapter:
    """An Optuna study that follows the told trials.

    Ordered knobs are integer ranges over their positions, others categories. Optuna defines by run, so conditions hold exactly: an
    inactive knob is not suggested. It does not know constraints; what it suggests is moved to the nearest valid configuration, and it is
    told what was measured.

    Args:
        name: Of the searcher, for origins.
        sampler: Makes a sampler from a seed.
        tries: How often it may repeat itself for one proposal.
    """

    def __init__(self, name: str, space: Space, task: Task, seed: int, sampler: Callable[[int], Any], tries: int = TRIES) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna = optuna
        self._name = name
        self._space = space
        self._seed = seed
        self._sampler = sampler
        self._tries = tries
        self._trials = AnswerSet(space, task.objective)
        self._study: Any = None
        self._goals = len(task.objective.goals)
        self._inside: list[tuple[Config, tuple[float, ...]]] = []
        self._distributions = {
            knob: optuna.distributions.IntDistribution(0, len(declared.values) - 1)
            if declared.ordered and len(declared.values) > 1
            else optuna.distributions.CategoricalDistribution(tuple(range(len(declared.values))))
            for knob, declared in space.knobs.items()
        }

    def tell(self, trials: Sequence[Trial]) -> None:
        """Remember them; Optuna hears of them at the next ask."""
        self._trials.add(trials)

    def ask(self, n: int, given: Config, pending: Sequence[Proposal]) -> list[Proposal]:
        """Proposals of a sampler that is seeded by what was told, and told nothing else."""
        if n < 1:
            return []
        self._follow()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # experimental features are named in our own documentation
            waiting = [self._running(proposal.config) for proposal in pending if not self._space.check(proposal.config)]
            proposals = propose(
                self._name,
                n,
                self._space,
                self._seed,
                self._trials,
                given,
                pending,
                lambda *key: self._suggestion(given, *key),
                self._tries,
            )
            for trial in waiting:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # forgotten: `pending` is an argument
        return proposals

    def _follow(self) -> None:
        """Bring the study up to what was told; from the start when the past looks different now."""
        answers = self._trials.answers()
        columns = [finite_losses(answers, goal) for goal in range(self._goals)]
        history = [(answer.config, losses) for answer, losses in zip(answers, zip(*columns, strict=True), strict=True)]
        if self._study is None or history[: len(self._inside)] != self._inside:
            self._study = self._optuna.create_study(directions=["minimize"] * self._goals)
            self._inside = []
        for config, losses in history[len(self._inside) :]:
            params = self._params(config)
            distributions = {name: self._distributions[name] for name in params}
            self._study.add_trial(self._optuna.trial.create_trial(params=params, distributions=distributions, values=losses))
        self._inside = history

    def _params(self, config: Config) -> dict[str, int]:
        return {name: self._space.knobs[name].position(value) or 0 for name, value in config.items()}

    def _suggested(self, trial: Any, name: str) -> int:
        shape = self._distributions[name]
        if isinstance(shape, self._optuna.distributions.IntDistribution):
            return int(trial.suggest_int(name, shape.low, shape.high))
        return int(trial.suggest_categorical(name, shape.choices))

    def _running(self, config: Config) -> Any:
        params = self._params(config)
        self._study.enqueue_trial(params)
        trial = self._study.ask()
        for name in params:
            self._suggested(trial, name)
        return trial

    def _suggestion(self, given: Config, index: int, attempt: int) -> Mapping[str, Value]:
        self._study.sampler = self._sampler(number(self._seed, self._name, self._trials.count, index, attempt) % 2**32)
        trial = self._study.ask()
        partial = given
        for name, knob in self._space.knobs.items():
            choices = self._space.choices(name, partial)
            if name in partial or not choices:
                continue
            value = at(knob, self._suggested(trial, name))
            partial = partial.extend({name: knob.nearest(value, choices)})
        self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # what comes back is told as a trial of its own
        return partial

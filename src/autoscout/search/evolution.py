"""Searcher `evolution`: regularised evolution (Real et al., 2019). The oldest is removed, not the worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import Answer, AnswerSet
from autoscout.space import Space
from autoscout.space.neighbours import fresh, mutate

_NOTHING = Config()
_TRIES = 30  # mutations that give known configurations before a random one is taken


@dataclass(frozen=True, kw_only=True)
class EvolutionOptions:
    """How `evolution` makes new configurations.

    Attributes:
        population: Number of youngest configurations that may become parents; as many are drawn at random first.
        sample: Number drawn at random from these; the best of them becomes the parent.
        second: Chance that a child is changed in a second knob too.
    """

    population: int = 20
    sample: int = 6
    second: float = 0.2

    def __post_init__(self) -> None:
        rules = {
            "population": (self.population >= 2, "must be at least 2"),
            "sample": (1 <= self.sample <= self.population, "must lie between 1 and the population"),
            "second": (0 <= self.second <= 1, "is a chance between 0 and 1"),
        }
        require("evolution", self, rules)


class EvolutionSearcher(Searcher):
    """A population of the youngest; the best of a random few has a child that differs in one knob or two."""

    def __init__(self, space: Space, task: Task, seed: int = 0, options: EvolutionOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or EvolutionOptions()
        self._trials = AnswerSet(space, task.objective)

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        taken = self._trials.taken(pending)
        answers = self._trials.answers()
        proposals: list[Proposal] = []
        for place in range(len(pending), len(pending) + n):
            rng = stream(self._seed, "evolution", self._trials.count, place)
            config, parent = self._next(rng, answers, len(answers) + place, given, taken)
            if config is None:
                break
            taken.add(config)
            notes = {"round": self._trials.count, "place": place, "parent": parent}
            proposals.append(Proposal(config=config, origin=Origin(by="evolution", notes=notes)))
        return proposals

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _next(
        self, rng: np.random.Generator, answers: list[Answer], place: int, given: Config, taken: set[Config]
    ) -> tuple[Config | None, str]:
        if place == 0:
            default = self._space.project(self._space.default(), given)
            if default not in taken:
                return default, "default"
        if place >= self._options.population and answers:
            young = answers[-self._options.population :]
            for _ in range(_TRIES):
                chosen = rng.choice(len(young), size=min(self._options.sample, len(young)), replace=False)
                parent = min((young[int(index)] for index in chosen), key=lambda answer: (answer.loss, answer.age))
                child = self._child(rng, parent.config, given)
                if child is not None and child not in taken:
                    return child, parent.config.key
        return fresh(self._space, rng, given, taken), ""

    def _child(self, rng: np.random.Generator, parent: Config, given: Config) -> Config | None:
        child = mutate(self._space, parent, rng, given)
        if child is not None and rng.random() < self._options.second:
            child = mutate(self._space, child, rng, given)
        return child if child is not None and child.extends(given) else None


__all__ = ["EvolutionSearcher"]

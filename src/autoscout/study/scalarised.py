"""A searcher that knows one goal, for a task with several: the goals are weighed anew for every proposal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from autoscout.common.front import chebyshev
from autoscout.core.config import Config
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial

METRIC = "weighed_goals"
"""What the searcher is told instead of the goals: lower is better."""


class ScalarisedSearcher(Searcher):
    """Asks a fresh searcher of one goal for each proposal, after telling it every trial by one weighing of the goals.

    The weights are drawn from (seed, trials told, position among what is under way), so that told trials alone decide what is asked next.

    Args:
        make: Builds the searcher for a task of one goal.
        task: With several goals.
        seed: Of the study.
    """

    def __init__(self, make: Callable[[Task], Searcher], task: Task, seed: int) -> None:
        self._make = make
        self._task = task
        self._one = replace(task, objective=Objective(metric=METRIC))
        self._seed = seed
        self._trials: list[Trial] = []
        make(self._one)  # refuses what it cannot do at once

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials += trials

    def ask(self, n: int, given: Config = Config(), pending: Sequence[Proposal] = ()) -> list[Proposal]:
        batch: list[Proposal] = []
        for position in range(len(pending), len(pending) + n):
            searcher = self._make(self._one)
            searcher.tell(self._scored(position))
            proposals = searcher.ask(1, given, [*pending, *batch])
            if not proposals:
                break
            batch += proposals
        return batch

    def _scored(self, position: int) -> list[Trial]:
        objective = self._task.objective
        count = sum(trial.measurement.status is not Status.ABORTED for trial in self._trials)
        weights = stream(self._seed, "weighed goals", count, position).dirichlet(np.ones(len(objective.goals)))
        losses = np.array([objective.losses(trial.measurement) for trial in self._trials]).reshape(-1, len(objective.goals))
        scores = np.full(len(self._trials), np.inf)
        for fidelity in Fidelity:  # answers of different fidelity have ranges of their own
            rows = [row for row, trial in enumerate(self._trials) if trial.measurement.fidelity is fidelity]
            if rows:
                scores[rows] = 1.0 + chebyshev(losses[rows], weights)  # above zero, so that ratios make sense
        return [_with(trial, float(loss)) for trial, loss in zip(self._trials, scores, strict=True)]


def _with(trial: Trial, loss: float) -> Trial:
    """A trial with one metric; without any where it failed or broke a limit."""
    answer: Measurement = trial.measurement
    return replace(trial, measurement=replace(answer, metrics={METRIC: loss} if np.isfinite(loss) else {}, samples={}))


__all__ = ["METRIC", "ScalarisedSearcher"]

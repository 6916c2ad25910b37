"""Notes with every measurement what a simulator had predicted, so that the two can be compared while a study runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autoscout.core.protocols import Evaluator, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Proposal, Trial

PREDICTED = "predicted"
"""Condition of a measurement: what the simulator said of its objective before."""


class PredictingEvaluator(Evaluator):
    """Asks another evaluator, and adds the simulator's prediction to the conditions of what comes back.

    Args:
        inner: Who answers.
        simulator: Who predicts; it is not told the answers.
        task: What is tuned.
    """

    def __init__(self, inner: Evaluator, simulator: Simulator, task: Task) -> None:
        self._inner = inner
        self._simulator = simulator
        self._task = task

    @property
    def slots(self) -> int:
        return self._inner.slots

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        predicted = self._simulator.predict([proposal.config for proposal in proposals], self._task).value.tolist()
        answers = self._inner.evaluate(proposals)
        return [
            replace(answer, conditions={**answer.conditions, PREDICTED: value}) if math.isfinite(value) else answer
            for answer, value in zip(answers, predicted, strict=True)
        ]

    def recheck(self) -> list[Proposal]:
        return self._inner.recheck()

    def learn(self, trials: Sequence[Trial]) -> None:
        self._inner.learn(trials)

    def cancel(self) -> None:
        self._inner.cancel()


__all__ = ["PREDICTED", "PredictingEvaluator"]

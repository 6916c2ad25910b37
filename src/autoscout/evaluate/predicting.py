"""Notes with every measurement what a simulator had predicted, so that the two can be compared while a study runs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

from autoscout.core.origin import By
from autoscout.core.protocols import Evaluator, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Proposal, Trial
from autoscout.evaluate.profile import profile_of

PREDICTED = "predicted"
"""Condition of a measurement: what the simulator said of its objective before."""


class PredictingEvaluator(Evaluator):
    """Asks another evaluator, and adds the simulator's prediction to the conditions of what comes back.

    Args:
        inner: Who answers.
        make: Builds who predicts, given the trials that were measured before the search for it to learn from; it is told no others.
        task: What is tuned.
    """

    def __init__(self, inner: Evaluator, make: Callable[[Sequence[Trial]], Simulator], task: Task) -> None:
        self._inner = inner
        self._make = make
        self._task = task
        self._profile: list[Trial] = []
        self._simulator: Simulator | None = None
        self._lock = threading.Lock()

    @property
    def slots(self) -> int:
        return self._inner.slots

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        predicted = self._predict(proposals)
        answers = self._inner.evaluate(proposals)
        self._note([Trial(proposal=one, measurement=answer) for one, answer in zip(proposals, answers, strict=True)])
        return [
            replace(answer, conditions={**answer.conditions, PREDICTED: value}) if math.isfinite(value) else answer
            for answer, value in zip(answers, predicted, strict=True)
        ]

    def _predict(self, proposals: Sequence[Proposal]) -> list[float]:
        """NaN for what nobody knows anything of, as in the profiling phase itself."""
        if all(proposal.origin.by == By.PROFILING for proposal in proposals):
            return [math.nan] * len(proposals)
        with self._lock:
            self._simulator = self._simulator or self._make(profile_of(self._profile))
            answer = self._simulator.predict([proposal.config for proposal in proposals], self._task)
        return [value if certainty > 0 else math.nan for value, certainty in zip(answer.value.tolist(), answer.known.tolist(), strict=True)]

    def recheck(self) -> list[Proposal]:
        return self._inner.recheck()

    def learn(self, trials: Sequence[Trial]) -> None:
        self._inner.learn(trials)
        self._note(trials)

    def _note(self, trials: Sequence[Trial]) -> None:
        """Remember trials of the profiling phase."""
        if profile := profile_of(trials):
            with self._lock:
                self._profile += profile
                self._simulator = None

    def cancel(self) -> None:
        self._inner.cancel()


__all__ = ["PREDICTED", "PredictingEvaluator"]

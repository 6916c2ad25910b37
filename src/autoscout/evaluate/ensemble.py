"""Simulators as an evaluator: their joint predictions as answers."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.protocols import Evaluator, Prediction, Simulator
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.learning.ensemble import WEIGHTS, Ensemble


@dataclass(frozen=True, kw_only=True)
class EnsembleOptions:
    """How simulators are joined.

    Attributes:
        weights: `rank` weighs by Kendall's tau on held-out measured trials and by how close each simulator's own data is to the
            question; `r2` is the paper's Eq. 2, the R² on held-out trials; `equal` is the plain mean.
        feasible: Chance of running below which a configuration is answered as out of memory.
        cost_s: What one answer is booked at.
    """

    weights: str = "rank"
    feasible: float = 0.5
    cost_s: float = 0.0

    def __post_init__(self) -> None:
        checks = {
            "weights": (self.weights in WEIGHTS, f"must be one of: {', '.join(WEIGHTS)}"),
            "feasible": (0 <= self.feasible <= 1, "is a chance between 0 and 1"),
            "cost_s": (self.cost_s >= 0, "must not be negative"),
        }
        require("ensemble", self, checks)


class EnsembleEvaluator(Evaluator):
    """Answers proposals with the weighted predictions of several simulators; every answer is marked simulated.

    Args:
        simulators: At least one; those that know nothing yet weigh nothing. An ensemble keeps its own way of weighing.
        task: What is predicted; the metrics of its limits are predicted as well.
        options: Weights and thresholds.
        trials: Measured trials to learn from at once, and again with all later ones.
    """

    def __init__(
        self,
        simulators: Ensemble | Sequence[Simulator],
        task: Task,
        options: EnsembleOptions | None = None,
        trials: Sequence[Trial] = (),
    ) -> None:
        self._options = options or EnsembleOptions()
        if not isinstance(simulators, Ensemble):
            simulators = Ensemble({str(place): member for place, member in enumerate(simulators)}, self._options.weights)
        self._ensemble = simulators
        self._task = task
        self._lock = threading.Lock()
        self._past = tuple(trials)
        if trials:
            self.learn(())

    @property
    def slots(self) -> int:
        return 1

    @property
    def weights(self) -> tuple[float, ...]:
        """The simulators' shares of the answer, before nearness; they sum to 1."""
        return self._ensemble.weights

    def cancel(self) -> None:
        """Answers take no time: nothing to stop."""

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        if not proposals:
            return []
        configs = [proposal.config for proposal in proposals]
        main = self.predict(configs)
        metric = self._task.objective.metric
        others = {limit.metric for limit in self._task.objective.limits} - {metric}
        others_said = {name: self.predict(configs, name) for name in sorted(others)}
        return [self._measurement(row, main, others_said) for row in range(len(configs))]

    def predict(self, configs: Sequence[Config], metric: str = "") -> Prediction:
        """The joint prediction of one metric, the task's own when none is named."""
        task = self._task if metric in ("", self._task.objective.metric) else _asking(self._task, metric)
        with self._lock:
            return self._ensemble.predict(configs, task)

    @property
    def learns(self) -> bool:
        return True

    def learn(self, trials: Sequence[Trial]) -> None:
        """Fit every simulator to the measured trials and those it began with, and weigh it by trials that it was not fitted to."""
        real = [trial for trial in (*self._past, *trials) if trial.measurement.fidelity is Fidelity.MEASURED]
        if real:
            with self._lock:
                self._ensemble.fit(real, self._task)

    def _measurement(self, row: int, main: Prediction, others_said: dict[str, Prediction]) -> Measurement:
        details = {"known": float(main.known[row]), "spread": float(main.spread[row]), "feasible": float(main.feasible[row])}
        conditions = {name: value for name, value in details.items() if np.isfinite(value)}
        metrics = {self._task.objective.metric: main.value, **{name: answer.value for name, answer in others_said.items()}}
        values = {name: float(value[row]) for name, value in metrics.items() if np.isfinite(value[row])}
        shared = Measurement(status=Status.OK, fidelity=Fidelity.SIMULATED, cost_s=self._options.cost_s, conditions=conditions)
        if main.feasible[row] < self._options.feasible:
            reason = f"simulated: {main.feasible[row]:.0%} chance to fit into memory"
            unlikely = {**conditions, **({"value": float(main.value[row])} if np.isfinite(main.value[row]) else {})}
            return replace(shared, status=Status.OOM_START, reason=reason, conditions=unlikely)
        if self._task.objective.metric not in values:
            return replace(shared, status=Status.WRONG_OUTPUT, reason="simulated: no finite answer")
        return replace(shared, metrics=values)


def _asking(task: Task, metric: str) -> Task:
    return replace(task, objective=Objective(metric=metric, direction=task.objective.direction))


__all__ = ["EnsembleEvaluator"]

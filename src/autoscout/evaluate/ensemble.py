"""Several simulators as one evaluator: weighted by R² as in the paper's Eq. 2, or by how well they rank."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscout.common.stats import folds, kendall
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault, require
from autoscout.core.protocols import Evaluator, Prediction, Simulator
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial

Vector = NDArray[np.float64]
WEIGHTS = ("rank", "r2", "equal")


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
        simulators: At least one; those that know nothing yet weigh nothing.
        task: What is predicted; the metrics of its limits are predicted as well.
        options: Weights and thresholds.
        trials: Measured trials to learn from at once.
    """

    def __init__(
        self, simulators: Sequence[Simulator], task: Task, options: EnsembleOptions | None = None, trials: Sequence[Trial] = ()
    ) -> None:
        self._simulators = tuple(simulators)
        self._options = options or EnsembleOptions()
        if not self._simulators:
            raise ConfigError(Fault(where="ensemble", field="simulators", value="0", rule="at least one is needed"))
        self._task = task
        self._lock = threading.Lock()
        self._weights = np.ones(len(self._simulators))
        if trials:
            self.learn(trials)

    @property
    def slots(self) -> int:
        return 1

    @property
    def weights(self) -> tuple[float, ...]:
        """The simulators' shares of the answer, before nearness; they sum to 1."""
        return tuple(float(share) for share in self._weights / self._weights.sum())

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
            answers = [simulator.predict(configs, task) for simulator in self._simulators]
            weights = self._weights[:, None] * np.ones((1, len(configs)))
        nearness = np.stack([answer.known for answer in answers])
        if self._options.weights == "rank":
            weights = weights * np.maximum(nearness, 1e-6)
        shares = weights / np.maximum(weights.sum(axis=0), 1e-300)
        values = np.stack([answer.value for answer in answers])
        return Prediction(
            value=_mean(values, shares, logarithmic=self._options.weights == "rank"),
            spread=_spread(values, np.stack([answer.spread for answer in answers]), shares),
            feasible=(shares * np.stack([answer.feasible for answer in answers])).sum(axis=0),
            known=(shares * nearness).sum(axis=0),
        )

    @property
    def learns(self) -> bool:
        return True

    def learn(self, trials: Sequence[Trial]) -> None:
        """Fit every simulator to the measured trials and weigh it by trials that it was not fitted to."""
        real = [trial for trial in trials if trial.measurement.fidelity is Fidelity.MEASURED]
        if not real:
            return
        with self._lock:
            if self._options.weights != "equal":
                self._weights = self._weigh(real)
            for simulator in self._simulators:
                simulator.fit(real, self._task)

    def _weigh(self, trials: Sequence[Trial]) -> Vector:
        metric = self._task.objective.metric
        good = [trial for trial in trials if trial.ok and metric in trial.measurement.metrics]
        if len(good) < 3 or len(self._simulators) == 1:
            return np.ones(len(self._simulators))
        truth = np.array([trial.measurement.metrics[metric] for trial in good])
        held = np.full((len(self._simulators), len(good)), np.nan)
        nearness = np.zeros_like(held)
        for mask in folds(list(range(len(good))), min(4, len(good))):
            training = [trial for trial, out in zip(good, mask, strict=True) if not out]
            asked = [trial.config for trial, out in zip(good, mask, strict=True) if out]
            for row, simulator in enumerate(self._simulators):
                simulator.fit(training, self._task)
                answer = simulator.predict(asked, self._task)
                held[row, mask], nearness[row, mask] = answer.value, answer.known
        score = _rank_score if self._options.weights == "rank" else _determination
        scores = np.array([max(0.0, score(row, truth)) for row in held])
        scores = np.where((nearness > 0).any(axis=1), scores, 0.0)
        return scores if scores.sum() > 0 else np.ones(len(self._simulators))

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


def _mean(values: Vector, shares: Vector, *, logarithmic: bool) -> Vector:
    """Eq. 2 is the arithmetic mean; ranks are kept better by the geometric one, where all answers are positive."""
    if logarithmic and bool((values > 0).all()):
        return np.asarray(np.exp((shares * np.log(values)).sum(axis=0)))
    return np.asarray((shares * values).sum(axis=0))


def _spread(values: Vector, spreads: Vector, shares: Vector) -> Vector:
    """Mean spread, widened where the simulators disagree."""
    middle = (shares * values).sum(axis=0)
    apart = np.sqrt((shares * (values / np.where(middle == 0, 1.0, middle) - 1.0) ** 2).sum(axis=0))
    return np.asarray((shares * spreads).sum(axis=0) + apart)


def _determination(predicted: Vector, truth: Vector) -> float:
    """R²; at most 1, negative for worse than the mean."""
    around = ((truth - truth.mean()) ** 2).sum()
    return float(1.0 - ((truth - predicted) ** 2).sum() / around) if around > 0 else 0.0


def _rank_score(predicted: Vector, truth: Vector) -> float:
    return kendall(predicted, truth)


__all__ = ["EnsembleEvaluator"]

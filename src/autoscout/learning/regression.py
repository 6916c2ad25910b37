"""What the three regressions share: fit on measured trials, answer with spread and nearness."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.common.stats import folds
from autoscout.core.config import Config
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Trial
from autoscout.learning.columns import Columns, Matrix, Nearness, measured

Vector = NDArray[np.float64]
Learner = Callable[[Matrix, Vector], Callable[[Matrix], Vector]]
"""Takes inputs and targets, gives a function that predicts."""


class FittedRegression(Simulator):
    """A learner on the columns of configs. Before the first fit it answers with zero knowledge."""

    def __init__(self, learner: Learner, knobs: Sequence[str] | None, *, log_inputs: bool, log_target: bool, onehot: bool) -> None:
        self._learner, self._knobs = learner, knobs
        self._log_inputs, self._log_target, self._onehot = log_inputs, log_target, onehot
        self._columns = Columns(columns=())
        self._model: Callable[[Matrix], Vector] | None = None
        self._nearness = Nearness(np.zeros((0, 0)))
        self._spread = 1.0
        self._default = 1.0
        self._failed = 0.0
        self._metric = ""

    @property
    def knobs(self) -> frozenset[str]:
        """What it was told to read, else what the last fit read."""
        return frozenset(self._knobs or ()) or self._columns.knobs

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        """Learn from scratch; fewer than two good trials leave it unfitted."""
        self._metric = task.objective.metric
        configs, values = measured(trials, task)
        counted = [trial for trial in trials if trial.ok or trial.measurement.status.failed]
        self._failed = sum(not trial.ok for trial in counted) / max(1, len(counted))
        if self._log_target:
            configs = [config for config, value in zip(configs, values, strict=True) if value > 0]
            values = values[values > 0]
        if len(values) < 2:
            self._model = None
            self._default = float(values[0]) if len(values) else 1.0
            return
        self._columns = Columns.learn(configs, self._knobs, log=self._log_inputs, onehot=self._onehot)
        inputs = self._columns.matrix(configs)
        targets = np.log(values) if self._log_target else values
        self._model = self._learner(inputs, targets)
        self._nearness = Nearness(inputs)
        self._default = float(values.mean())
        self._spread = self._cross_validate(inputs, targets, values)

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        """Values, with the spread seen in cross-validation and doubled far away from the data; nothing for other metrics."""
        count = len(configs)
        if self._model is None or task.objective.metric != self._metric:
            nothing = np.zeros(count)
            return Prediction(value=np.full(count, self._default), spread=nothing + 1.0, feasible=nothing + 1.0, known=nothing)
        inputs = self._columns.matrix(configs)
        value = self._value(self._model(inputs))
        nearness = self._nearness.of(inputs)
        feasible = np.full(count, 1.0 - self._failed)
        return Prediction(value=value, spread=self._spread * (2.0 - nearness), feasible=feasible, known=nearness)

    def _value(self, raw: Vector) -> Vector:
        return np.asarray(np.exp(np.clip(raw, -60.0, 60.0)) if self._log_target else raw, dtype=np.float64)

    def _cross_validate(self, inputs: Matrix, targets: Vector, values: Vector) -> float:
        if len(values) < 4:
            return 0.5
        errors = np.zeros(len(values))
        for mask in folds(list(range(len(values))), 4):
            guess = self._value(self._learner(inputs[~mask], targets[~mask])(inputs[mask]))
            errors[mask] = guess / values[mask] - 1.0
        return float(np.clip(np.sqrt(np.mean(errors**2)), 0.01, 3.0))


def least_squares(inputs: Matrix, targets: Vector) -> Callable[[Matrix], Vector]:
    """Ordinary least squares with an intercept; the shortest solution where the data leaves a choice."""
    design = np.column_stack([np.ones(len(inputs)), inputs])
    weights, *_ = np.linalg.lstsq(design, targets, rcond=None)
    return Weighted(weights=np.asarray(weights[1:], dtype=np.float64), offset=float(weights[0]), centre=np.zeros(inputs.shape[1]))


@dataclass(frozen=True, kw_only=True)
class Weighted:
    """A weighted sum of centred inputs; an object and not a closure, so that a fitted simulator pickles."""

    weights: Vector
    offset: float
    centre: Vector

    def __call__(self, asked: Matrix) -> Vector:
        return np.asarray((asked - self.centre) @ self.weights + self.offset, dtype=np.float64)


__all__ = ["FittedRegression", "Weighted", "least_squares"]

"""Several simulators as one: weighted by R² as in the paper's Eq. 2, or by how well they rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscout.common.stats import folds, kendall
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.protocols import Prediction, Simulator
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Trial

Vector = NDArray[np.float64]
WEIGHTS = ("rank", "r2", "equal")
LEAST = 3
"""Trials that a weight needs: with fewer there is nothing to hold out."""


@dataclass(frozen=True, kw_only=True)
class SimulatorStanding:
    """How a simulator did on trials that it was not fitted to; None where there were too few.

    Attributes:
        name: Of the simulator.
        weight: Its share of the answer, before nearness; the shares sum to 1.
        error: Mean absolute percentage error.
        r2: Coefficient of determination.
        rank: Kendall's tau.
    """

    name: str
    weight: float
    error: float | None = None
    r2: float | None = None
    rank: float | None = None


class Ensemble(Simulator):
    """The weighted answer of several simulators; each learns from the same trials, and is weighed by trials that it was not fitted to.

    Args:
        simulators: At least one, by name; one that knows nothing of a configuration has no say in it, unless none knows anything.
        weights: `rank` weighs by Kendall's tau and by how close each simulator's own data is to the question; `r2` is the paper's Eq. 2;
            `equal` is the plain mean.
    """

    def __init__(self, simulators: Mapping[str, Simulator], weights: str = "r2") -> None:
        if not simulators:
            raise ConfigError(Fault(where="ensemble", field="simulators", value="0", rule="at least one is needed"))
        self._names, self._simulators = tuple(simulators), tuple(simulators.values())
        self._by = weights
        self._weights = np.ones(len(self._simulators))
        self._standings = tuple(SimulatorStanding(name=name, weight=1.0 / len(self._names)) for name in self._names)

    @property
    def knobs(self) -> frozenset[str]:
        return frozenset().union(*(simulator.knobs for simulator in self._simulators))

    @property
    def weights(self) -> tuple[float, ...]:
        """The simulators' shares of the answer, before nearness; they sum to 1."""
        return tuple(float(share) for share in self._weights / self._weights.sum())

    @property
    def standings(self) -> tuple[SimulatorStanding, ...]:
        """Weight and errors of each simulator."""
        return tuple(replace(one, weight=weight) for one, weight in zip(self._standings, self.weights, strict=True))

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        if len(self._simulators) == 1:
            return self._simulators[0].predict(configs, task)
        answers = [simulator.predict(configs, task) for simulator in self._simulators]
        values, nearness = np.stack([answer.value for answer in answers]), np.stack([answer.known for answer in answers])
        has_say = (nearness > 0) & np.isfinite(values)
        weights = self._weights[:, None] * np.where(has_say.any(axis=0), has_say, np.isfinite(values))
        if self._by == "rank":
            weights = weights * np.maximum(nearness, 1e-6)
        shares = weights / np.maximum(weights.sum(axis=0), 1e-300)
        value = _mean(values, shares, logarithmic=self._by == "rank")
        return Prediction(
            value=np.where(shares.sum(axis=0) > 0, value, np.nan),
            spread=_spread(values, np.stack([answer.spread for answer in answers]), shares),
            feasible=(shares * np.stack([answer.feasible for answer in answers])).sum(axis=0),
            known=(shares * nearness).sum(axis=0),
        )

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        """Weigh every simulator by trials that it was not fitted to, then fit it to all of them."""
        real = [trial for trial in trials if trial.measurement.fidelity is Fidelity.MEASURED]
        self._weigh(real, task)
        for simulator in self._simulators:
            simulator.fit(real, task)

    def breakdown(self, config: Config, task: Task) -> Mapping[str, float]:
        return next((parts for simulator in self._simulators if (parts := simulator.breakdown(config, task))), {})

    def metrics(self, config: Config, task: Task) -> Mapping[str, float]:
        return next((metrics for simulator in self._simulators if (metrics := simulator.metrics(config, task))), {})

    def _weigh(self, trials: Sequence[Trial], task: Task) -> None:
        metric, count = task.objective.metric, len(self._simulators)
        good = [trial for trial in trials if trial.ok and metric in trial.measurement.metrics]
        self._weights = np.ones(count)
        if len(good) < LEAST or count == 1:
            self._standings = tuple(SimulatorStanding(name=name, weight=1.0 / count) for name in self._names)
            return
        truth = np.array([trial.measurement.metrics[metric] for trial in good])
        held, nearness = np.full((count, len(good)), np.nan), np.zeros((count, len(good)))
        for mask in folds(list(range(len(good))), min(4, len(good))):
            training = [trial for trial, out in zip(good, mask, strict=True) if not out]
            asked = [trial.config for trial, out in zip(good, mask, strict=True) if out]
            for row, simulator in enumerate(self._simulators):
                simulator.fit(training, task)
                answer = simulator.predict(asked, task)
                held[row, mask], nearness[row, mask] = answer.value, answer.known
        self._standings = tuple(_standing(name, row, truth) for name, row in zip(self._names, held, strict=True))
        if self._by == "equal":
            return
        scores = np.array([max(0.0, (one.rank if self._by == "rank" else one.r2) or 0.0) for one in self._standings])
        scores = np.where((nearness > 0).any(axis=1), scores, 0.0)
        self._weights = scores if scores.sum() > 0 else np.ones(count)


def _standing(name: str, predicted: Vector, truth: Vector) -> SimulatorStanding:
    usable = np.isfinite(predicted) & (truth != 0)
    if usable.sum() < LEAST:
        return SimulatorStanding(name=name, weight=0.0)
    predicted, truth = predicted[usable], truth[usable]
    error = float(np.abs(predicted / truth - 1.0).mean())
    return SimulatorStanding(name=name, weight=0.0, error=error, r2=_determination(predicted, truth), rank=kendall(predicted, truth))


def _mean(values: Vector, shares: Vector, *, logarithmic: bool) -> Vector:
    """Eq. 2 is the arithmetic mean; ranks are kept better by the geometric one, where all answers are positive."""
    asked = np.where(shares > 0, values, 1.0)  # without a share a value counts for nothing, also where there is none
    if logarithmic and bool((asked > 0).all()):
        return np.asarray(np.exp((shares * np.log(asked)).sum(axis=0)))
    return np.asarray((shares * asked).sum(axis=0))


def _spread(values: Vector, spreads: Vector, shares: Vector) -> Vector:
    """Mean spread, widened where the simulators disagree."""
    asked = np.where(shares > 0, values, 0.0)
    middle = (shares * asked).sum(axis=0)
    apart = np.sqrt((shares * (asked / np.where(middle == 0, 1.0, middle) - 1.0) ** 2).sum(axis=0))
    return np.asarray((shares * np.where(shares > 0, spreads, 0.0)).sum(axis=0) + apart)


def _determination(predicted: Vector, truth: Vector) -> float:
    """R²; at most 1, negative for worse than the mean."""
    around = ((truth - truth.mean()) ** 2).sum()
    return float(1.0 - ((truth - predicted) ** 2).sum() / around) if around > 0 else 0.0


__all__ = ["LEAST", "WEIGHTS", "Ensemble", "SimulatorStanding"]

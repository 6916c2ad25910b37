"""Layered regressions along the causal graph: what a configuration would do, without running it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.tune.causal.graph import Graph, full_graph, learn_graph, told
from autosched.tune.goals import Causes
from autoscout.core.config import Config, Value
from autoscout.space import Knob, Space

Vector = NDArray[np.float64]

WINDOW = 400  # runs that are remembered; older ones are of another workload
RIDGE = 1e-2  # penalty of the regressions, on columns of unit scale
POINTS = 9  # values of a knob that a what-if sweep looks at


@dataclass(frozen=True)
class _Regression:
    """Ridge regression on 1, x, x^2 and products of pairs."""

    mean: Vector
    scale: Vector
    weights: Vector
    low: float
    high: float

    @classmethod
    def fit(cls, inputs: Vector, target: Vector) -> _Regression:
        rows = _expanded(inputs)
        mean, scale = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
        scaled = np.concatenate([np.ones((len(rows), 1)), (rows - mean) / scale], axis=1)
        penalty = RIDGE * len(rows) * np.eye(scaled.shape[1])
        penalty[0, 0] = 0.0
        weights = np.linalg.solve(scaled.T @ scaled + penalty, scaled.T @ target)
        margin = 0.5 * float(np.ptp(target)) + 1e-9
        return cls(mean, scale, weights, float(target.min()) - margin, float(target.max()) + margin)

    def predict(self, inputs: Vector) -> Vector:
        scaled = (_expanded(inputs) - self.mean) / self.scale
        # a polynomial far from its data says anything
        predictions: Vector = np.clip(self.weights[0] + scaled @ self.weights[1:], self.low, self.high)
        return predictions


def _expanded(inputs: Vector) -> Vector:
    size = inputs.shape[1]
    pairs = [inputs[:, [one]] * inputs[:, one:] for one in range(size)]
    return np.concatenate([inputs, *pairs], axis=1) if size else np.zeros((len(inputs), 0))


class KnobRanks:
    """Configurations as rows of numbers: the rank of every knob's value on 0..1, that of the default where a configuration lacks the knob.

    Attributes:
        names: The knobs with more than one value.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        self.names = tuple(name for name, knob in space.knobs.items() if len(knob.values) > 1)
        self._rows: dict[Config, list[float]] = {}
        self._categories = {name: not space.knobs[name].ordered and len(space.knobs[name].values) > 2 for name in self.names}

    def ranks(self, configs: Sequence[Config]) -> Vector:
        """One row per configuration, one column per knob."""
        return np.asarray([self._row(config) for config in configs]).reshape(-1, len(self.names))

    def _row(self, config: Config) -> list[float]:
        if config not in self._rows:
            knobs = [self.space.knobs[name] for name in self.names]
            positions = [_position(knob, config.get(knob.name, knob.default)) for knob in knobs]
            self._rows[config] = [position / (len(knob.values) - 1) for knob, position in zip(knobs, positions, strict=True)]
        return self._rows[config]

    def columns(self, ranks: Vector, knobs: Sequence[int]) -> Vector:
        """The columns of some knobs that regressions read: a rank each, a column per value for categories."""
        parts = [np.zeros((len(ranks), 0))]
        for column in knobs:
            name = self.names[column]
            if self._categories[name]:
                size = len(self.space.knobs[name].values)
                parts.append((np.round(ranks[:, [column]] * (size - 1)) == np.arange(1, size)).astype(np.float64))
            else:
                parts.append(ranks[:, [column]])
        return np.concatenate(parts, axis=1)


def _position(knob: Knob, value: Value) -> float:
    """Of a value among those of a knob; where a live scheduler has another one in force, of the nearest."""
    position = knob.position(value)
    if position is None and knob.ordered and isinstance(value, (int, float)):
        return float(np.abs(np.asarray([float(other or 0) for other in knob.values]) - value).argmin())
    return float(position or 0)


class CausalModel:
    """Predicts metrics and objective of configurations, relative to a reference of the same workload.

    Every batch of runs shares a workload, and says which of its runs is the reference. What is learned is the logarithm of each metric over
    the reference's, so that a busy hour and a quiet one can be learned from together.

    Args:
        space: Of the configurations.
        metrics: The intermediate ones; those that a run does not have count as zero.
        objective: The metric that is to be improved.
        seed: Of the resamples of the graph.
        causes: Edges that an operator knows.
    """

    def __init__(self, space: Space, metrics: Sequence[str], objective: str, seed: int = 0, causes: Causes | None = None) -> None:
        self.objective = objective
        self.metrics = tuple(name for name in metrics if name != objective)
        self._causes = causes or Causes(metrics=self.metrics)
        self._seed = seed
        self._knobs = KnobRanks(space)
        self._ranks = np.zeros((0, len(self._knobs.names)))
        self._values = np.zeros((0, len(self.metrics) + 1))
        self._fits: dict[str, _Regression] = {}
        self._reads: list[tuple[str, list[int], list[int]]] = []  # metrics in order, with the knobs and the metrics that act on each
        self._near: dict[tuple[Config, str], list[tuple[Value, Config]]] = {}  # by configuration and knob: its what-if configurations
        self.errors: list[float] = []  # relative error of predictions that were checked by a run, in order
        whole = full_graph(self._knobs.names, self.metrics, objective, "all edges: nothing is known yet")
        self.graph = told(whole, self._causes.edges, self._causes.no_edges)

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def is_ready(self) -> bool:
        return bool(self._fits)

    def add(self, runs: Sequence[tuple[Config, Mapping[str, float]]], reference: Mapping[str, float]) -> None:
        """Learn from runs of one workload, one of which `reference` is."""
        if not runs:
            return
        values = np.asarray([[_log(metrics.get(name, 0.0)) for name in (*self.metrics, self.objective)] for _, metrics in runs])
        base = np.asarray([_log(reference.get(name, 0.0)) for name in (*self.metrics, self.objective)])
        self._ranks = np.concatenate([self._ranks, self._knobs.ranks([config for config, _ in runs])])[-WINDOW:]
        self._values = np.concatenate([self._values, values - base])[-WINDOW:]

    def learn(self, resamples: int = 20) -> Graph:
        """Work the graph out from all runs that are remembered, and fit."""
        sure, ruled_out = self._causes.edges, self._causes.no_edges
        data = self._ranks, self._values[:, :-1]
        self.graph = learn_graph(self._knobs.names, self.metrics, self.objective, *data, self._seed, resamples, sure, ruled_out)
        self.fit()
        return self.graph

    def fit(self) -> None:
        """Fit the regressions along the graph."""
        if len(self._ranks) < 8:
            return
        self._reads = [(name, *self._parents(name)) for name in self.graph.order()]
        self._fits = {}
        for name, knobs, others in self._reads:
            inputs = self._inputs(knobs, others, self._ranks, self._values)
            self._fits[name] = _Regression.fit(inputs, self._values[:, self.metrics.index(name)])
        self._fits[self.objective] = _Regression.fit(self._values[:, :-1], self._values[:, -1])

    def _parents(self, name: str) -> tuple[list[int], list[int]]:
        parents = self.graph.parents(name)
        knobs = [self._knobs.names.index(parent) for parent in parents if parent in self._knobs.names]
        return knobs, [self.metrics.index(parent) for parent in parents if parent in self.metrics]

    def _inputs(self, knobs: Sequence[int], others: Sequence[int], ranks: Vector, values: Vector) -> Vector:
        return np.concatenate([self._knobs.columns(ranks, knobs), values[:, others]], axis=1)

    def predict(self, configs: Sequence[Config], reference: Mapping[str, float]) -> list[dict[str, float]]:
        """Metrics and objective of configurations under the workload of `reference`: the settings are fixed, the rest follows."""
        ranks = self._knobs.ranks(configs)
        values = np.zeros((len(configs), len(self.metrics)))
        for name, knobs, others in self._reads:
            values[:, self.metrics.index(name)] = self._fits[name].predict(self._inputs(knobs, others, ranks, values))
        whole = np.concatenate([values, self._fits[self.objective].predict(values)[:, None]], axis=1)
        base = np.asarray([_log(reference.get(name, 0.0)) for name in (*self.metrics, self.objective)])
        answers = np.exp(whole + base) - _TINY
        return [dict(zip((*self.metrics, self.objective), map(float, row), strict=True)) for row in answers]

    def check(self, predicted: float, measured: float) -> None:
        """Note how far a prediction was off."""
        self.errors.append(abs(predicted - measured) / max(abs(measured), 1e-12))

    def what_if(self, config: Config, knobs: Iterable[str], reference: Mapping[str, float]) -> dict[str, list[tuple[Value, float]]]:
        """The objective over values of each of some knobs, the others as in `config`."""
        near = {knob: self._swept(config, knob) for knob in knobs}
        predictions = iter(self.predict([other for each in near.values() for _, other in each], reference))
        return {knob: [(value, next(predictions)[self.objective]) for value, _ in each] for knob, each in near.items()}

    def _swept(self, config: Config, knob: str) -> list[tuple[Value, Config]]:
        """Values of a knob, each with the valid configuration that has it and is nearest to `config`."""
        if (config, knob) not in self._near:
            space = self._knobs.space
            values = space.knobs[knob].values
            indices = sorted({round(index) for index in np.linspace(0, len(values) - 1, min(POINTS, len(values)))})
            around = config.only(space.ancestors(knob))
            candidates = [(values[index], around.extend({knob: values[index]})) for index in indices]
            self._near[config, knob] = [(value, space.project(config, each)) for value, each in candidates if space.feasible(each)]
        return self._near[config, knob]


_TINY = 1e-3  # added before logarithms, so that nothing is infinitely better than zero


def _log(value: float) -> float:
    return float(np.log(max(value, 0.0) + _TINY))

"""Configs as a matrix of numbers, learned from the configs that were measured.

Not `common.forest.Encoder`: a regression extrapolates, so it needs values (or logarithms) and one column per word, where a tree needs
ranks and codes; and its trials may come from several spaces, so that `space.encode` does not apply either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config, Value
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Trial

Matrix = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One knob: a number as it is (or its logarithm), or the place of a word among those seen."""

    knob: str
    words: tuple[str, ...] = ()
    log: bool = False

    def read(self, values: Sequence[Value]) -> NDArray[np.float64]:
        """The column; a knob that is absent counts as 0, a word never seen as one past the last."""
        if self.words:
            places = {word: float(place) for place, word in enumerate(self.words)}
            return np.array([places.get(str(value), float(len(self.words))) for value in values])
        numbers = np.array([float(value) if isinstance(value, (bool, int, float)) else 0.0 for value in values])
        return np.sign(numbers) * np.log2(1.0 + np.abs(numbers)) if self.log else numbers


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The knobs that vary or are named, each as one column (one per word for `onehot`)."""

    columns: tuple[Column, ...]
    onehot: bool = False

    @classmethod
    def learn(cls, configs: Sequence[Config], knobs: Sequence[str] | None = None, *, log: bool = False, onehot: bool = False) -> Columns:
        """Which columns the configs have; `knobs` restricts them and fixes their order."""
        names = sorted(set().union(*configs)) if knobs is None else [name for name in knobs if any(name in config for config in configs)]
        columns = []
        for name in names:
            words = sorted({str(config[name]) for config in configs if isinstance(config.get(name), str)})
            columns.append(Column(knob=name, words=tuple(words), log=log))
        return cls(columns=tuple(columns), onehot=onehot)

    @property
    def knobs(self) -> frozenset[str]:
        return frozenset(column.knob for column in self.columns)

    def matrix(self, configs: Sequence[Config]) -> Matrix:
        """One row per config."""
        rows = [config.to_json() for config in configs]
        parts: list[NDArray[np.float64]] = []
        for column in self.columns:
            values = column.read([row.get(column.knob) for row in rows])
            if self.onehot and column.words:
                parts.extend((values == place).astype(float) for place in range(1, len(column.words)))
            else:
                parts.append(values)
        return np.stack(parts, axis=1) if parts else np.zeros((len(rows), 0))


class Nearness:
    """How close configs lie to those that were measured: 1 on them, falling with the share of knobs that differ."""

    def __init__(self, inputs: Matrix) -> None:
        self._inputs = inputs
        self._range = np.maximum(inputs.max(axis=0) - inputs.min(axis=0), 1e-9) if len(inputs) else np.ones(inputs.shape[1])

    def of(self, inputs: Matrix) -> NDArray[np.float64]:
        """1 for a measured config; steps outside the measured range cost most."""
        if not len(self._inputs) or not self._inputs.shape[1]:
            return np.zeros(len(inputs))
        nearest = np.full(len(inputs), np.inf)
        for row in self._inputs[-512:]:
            away = np.abs(inputs - row) / self._range
            nearest = np.minimum(nearest, np.sqrt((away**2).mean(axis=1)))
        low, high = self._inputs.min(axis=0), self._inputs.max(axis=0)
        outside = (np.maximum(0.0, np.maximum(low - inputs, inputs - high)) / self._range).sum(axis=1)
        return np.asarray(np.exp(-1.5 * nearest - 2.0 * outside), dtype=np.float64)


def measured(trials: Sequence[Trial], task: Task) -> tuple[list[Config], NDArray[np.float64]]:
    """Configs and metric values of the trials that really ran well."""
    rows = [
        (trial.config, trial.measurement.metrics[task.objective.metric])
        for trial in trials
        if trial.ok and trial.measurement.fidelity is Fidelity.MEASURED and task.objective.metric in trial.measurement.metrics
    ]
    return [config for config, _ in rows], np.array([value for _, value in rows], dtype=np.float64)


__all__ = ["Column", "Columns", "Nearness", "measured"]

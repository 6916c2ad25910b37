"""Configurations as rows of numbers for the causal model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.space import Space

Vector = NDArray[np.float64]


class Places:
    """The place of every knob's value on 0..1, by rank; a knob that a configuration does not have is where its default is.

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
            found = []
            for name in self.names:
                knob = self.space.knobs[name]
                position = knob.position(config.get(name, knob.default))
                found.append((position or 0) / (len(knob.values) - 1))
            self._rows[config] = found
        return self._rows[config]

    def columns(self, ranks: Vector, knobs: Sequence[int]) -> Vector:
        """What regressions read of some knobs: a rank each, a column per value for categories."""
        parts = [np.zeros((len(ranks), 0))]
        for column in knobs:
            name = self.names[column]
            if self._categories[name]:
                size = len(self.space.knobs[name].values)
                parts.append((np.round(ranks[:, [column]] * (size - 1)) == np.arange(1, size)).astype(np.float64))
            else:
                parts.append(ranks[:, [column]])
        return np.concatenate(parts, axis=1)

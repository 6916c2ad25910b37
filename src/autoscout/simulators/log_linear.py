"""Regression of the logarithm of the metric on logarithms of knobs: products of powers instead of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from autoscout.core.errors import require
from autoscout.learning.columns import Matrix
from autoscout.learning.regression import FittedRegression, Vector, Weighted


@dataclass(frozen=True, kw_only=True)
class LogLinearOptions:
    """Settings of the log-linear regression.

    Attributes:
        knobs: Which knobs to read; empty reads all that the trials have.
        ridge: Pull of the weights to zero, which keeps few trials from deciding many knobs.
    """

    knobs: tuple[str, ...] = ()
    ridge: float = 0.3

    def __post_init__(self) -> None:
        require("log-linear", self, {"ridge": (self.ridge >= 0, "must not be negative")})


class LogLinearRegression(FittedRegression):
    """Ridge regression in logarithms; words become one column each."""

    def __init__(self, options: LogLinearOptions | None = None) -> None:
        self.options = options or LogLinearOptions()
        super().__init__(self._learn, self.options.knobs or None, log_inputs=True, log_target=True, onehot=True)

    def _learn(self, inputs: Matrix, targets: Vector) -> Callable[[Matrix], Vector]:
        centre, middle = inputs.mean(axis=0), targets.mean()
        shifted = inputs - centre
        normal = shifted.T @ shifted + self.options.ridge * np.eye(inputs.shape[1])
        weights = np.linalg.solve(normal, shifted.T @ (targets - middle)) if inputs.shape[1] else np.zeros(0)
        return Weighted(weights=weights, offset=float(middle), centre=centre)


__all__ = ["LogLinearRegression"]

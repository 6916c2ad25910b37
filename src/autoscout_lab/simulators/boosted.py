"""Gradient-boosted trees on the knobs: the most accurate inside its data, useless outside it (which `known` says)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autoscout.core.errors import require
from autoscout.learning.columns import Matrix
from autoscout.learning.regression import FittedRegression, Vector
from autoscout_lab.boosting import BoostedTrees, TreeOptions


@dataclass(frozen=True, kw_only=True)
class BoostedOptions:
    """Settings of the boosted trees.

    Attributes:
        knobs: Which knobs to read; empty reads all that the trials have.
        rounds: Number of trees.
        depth: Questions per tree.
        rate: Share of each tree's answer that is used.
    """

    knobs: tuple[str, ...] = ()
    rounds: int = 80
    depth: int = 3
    rate: float = 0.15

    def __post_init__(self) -> None:
        checks = {
            "rounds": (self.rounds >= 1, "must be at least 1"),
            "depth": (1 <= self.depth <= 8, "must lie in 1..8"),
            "rate": (0 < self.rate <= 1, "must lie in 0..1"),
        }
        require("boosted", self, checks)


class BoostedRegression(FittedRegression):
    """Boosted trees on the logarithm of the metric."""

    def __init__(self, options: BoostedOptions | None = None) -> None:
        self.options = options or BoostedOptions()
        super().__init__(self._learn, self.options.knobs or None, log_inputs=True, log_target=True, onehot=False)

    def _learn(self, inputs: Matrix, targets: Vector) -> Callable[[Matrix], Vector]:
        options = TreeOptions(rounds=self.options.rounds, depth=self.options.depth, rate=self.options.rate, min_leaf=2)
        return BoostedTrees(options).fit(inputs, targets).predict


__all__ = ["BoostedRegression"]

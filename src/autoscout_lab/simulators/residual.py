"""A learned correction on top of another simulator, switched off away from the trials that taught it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.protocols import Prediction, Simulator, SpaceLike
from autoscout.core.task import Task
from autoscout.core.trial import Trial
from autoscout.learning.columns import Columns, Nearness, measured
from autoscout_lab.boosting import BoostedTrees, TreeOptions


@dataclass(frozen=True, kw_only=True)
class ResidualOptions:
    """Settings of the correction.

    Attributes:
        base: Name of the simulator that is corrected.
        least: Fewer good trials than this leave the base alone.
        reach: Nearness (`known`) below which the correction is off; it fades in linearly above.
    """

    base: str = "training"
    least: int = 12
    reach: float = 0.4

    def __post_init__(self) -> None:
        checks = {
            "base": (self.base != "residual", "must be another simulator"),
            "least": (self.least >= 4, "must be at least 4"),
            "reach": (0 <= self.reach < 1, "must lie in 0..1"),
        }
        require("residual", self, checks)


class ResidualModel(Simulator):
    """Boosted trees on the log error of a base simulator."""

    def __init__(self, options: ResidualOptions | None = None, base: Simulator | None = None) -> None:
        self.options = options or ResidualOptions()
        self._base: Simulator = base or plugins.get("simulator", self.options.base)()
        self._trees: BoostedTrees | None = None
        self._columns = Columns(columns=())
        self._nearness = Nearness(np.zeros((0, 0)))

    @classmethod
    def example(cls) -> tuple[SpaceLike, Task]:
        """That of the simulator which it corrects unless told otherwise."""
        pair: tuple[SpaceLike, Task] = plugins.get("simulator", ResidualOptions().base).example()
        return pair

    @property
    def knobs(self) -> frozenset[str]:
        return self._base.knobs | self._columns.knobs

    def predict(self, configs: Sequence[Config], task: Task) -> Prediction:
        plain = self._base.predict(configs, task)
        if self._trees is None or not configs:
            return plain
        inputs = self._columns.matrix(configs)
        near = self._nearness.of(inputs)
        gate = np.clip((near - self.options.reach) / (1.0 - self.options.reach), 0.0, 1.0)
        value = plain.value * np.exp(gate * self._trees.predict(inputs))
        spread = plain.spread * (1.0 - 0.5 * gate)
        return Prediction(value=value, spread=spread, feasible=plain.feasible, known=np.maximum(plain.known, near))

    def fit(self, trials: Sequence[Trial], task: Task) -> None:
        self._base.fit(trials, task)
        self._trees = None
        configs, values = measured(trials, task)
        good = [(config, value) for config, value in zip(configs, values, strict=True) if value > 0]
        if len(good) < self.options.least:
            return
        configs, values = [config for config, _ in good], np.array([value for _, value in good])
        errors = np.log(values / self._base.predict(configs, task).value)
        self._columns = Columns.learn(configs, log=True)
        inputs = self._columns.matrix(configs)
        # shallow and slow for few trials: a correction that learns the noise is worse than none
        options = TreeOptions(rounds=40 if len(good) < 60 else 150, depth=2 if len(good) < 60 else 4, min_leaf=3, ridge=2.0)
        self._trees = BoostedTrees(options).fit(inputs, errors)
        self._nearness = Nearness(inputs)


__all__ = ["ResidualModel"]

"""Table: configurations that were measured once, all of them, so that a search can be replayed without the system."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Measurement, Status
from autoscout.space import Space

METRIC = "value"
"""The column of a table's measurements, and their metric where the task names none."""


class Table:
    """Measured rows over a space.

    Args:
        name: For people and files.
        space: The knobs and their conditions. The table's own space is this one, listed: the rows are all that a search may propose.
        configs: One valid configuration per row, none twice.
        values: The metric of each row; NaN where it failed.
        task: What was measured; its objective says which way is better.
        statuses: How the rows fared that failed; `crashed` where it is not known.
        unit: Of the values.
        family: Tables of one family are alike.
    """

    def __init__(
        self,
        name: str,
        space: Space,
        configs: Sequence[Config],
        values: NDArray[np.float64],
        task: Task,
        statuses: Sequence[Status] | None = None,
        unit: str = "",
        family: str = "",
    ) -> None:
        self.name = name
        self.configs = tuple(configs)
        self.values = values
        self.task = task
        self.unit = unit
        self.family = family
        worked = np.isfinite(values)
        sign = 1.0 if task.objective.direction is Direction.MINIMIZE else -1.0
        self.losses: NDArray[np.float64] = np.where(worked, sign * values, np.inf)
        self.statuses = tuple(
            Status.OK if good else (Status.CRASHED if statuses is None or not statuses[row].failed else statuses[row])
            for row, good in enumerate(worked)
        )
        self._rows = {config: row for row, config in enumerate(self.configs)}
        if len(self._rows) != len(self.configs):
            double = next(config for row, config in enumerate(self.configs) if self._rows[config] != row)
            raise ConfigError(Fault(where=name, value=str(double), rule="a configuration may be a row once only"))
        if not worked.any():
            raise ConfigError(Fault(where=name, rule="a table needs at least one row that worked"))
        self.space = space.among(self.configs)

    def __len__(self) -> int:
        return len(self.configs)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, {len(self)} rows, {self.failures} failed)"

    @property
    def failures(self) -> int:
        """How many rows failed."""
        return int(np.isinf(self.losses).sum())

    @property
    def optimum(self) -> float:
        """The lowest loss."""
        return float(self.losses.min())

    @property
    def middle(self) -> float:
        """The median loss of the rows that worked."""
        return float(np.median(self.losses[np.isfinite(self.losses)]))

    def regret(self, loss: float) -> float:
        """0 at the optimum, 1 at the median working row and for everything worse."""
        span = self.middle - self.optimum
        if loss <= self.optimum:
            return 0.0
        return 1.0 if span <= 0 else min(1.0, (loss - self.optimum) / span)

    def row(self, config: Config) -> int | None:
        """Which row a configuration is; None when it is none."""
        return self._rows.get(config)

    def measurement(self, row: int) -> Measurement:
        """What was measured there."""
        status = self.statuses[row]
        if status is not Status.OK:
            return Measurement(status=status, cost_s=1.0, reason="recorded as a failure")
        return Measurement(status=status, metrics={self.task.objective.metric: float(self.values[row])}, cost_s=1.0)


def task_of(name: str, direction: Direction, workload: dict[str, object] | None = None) -> Task:
    """The task of a table that brings none of its own; the fact `metric` names what was measured, so that simulators know it."""
    metric = str((workload or {}).get("metric") or METRIC)
    return Task(system="table", objective=Objective(metric=metric, direction=direction), workload={"table": name, **(workload or {})})

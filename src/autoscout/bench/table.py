"""Table: configurations that were measured once, all of them, so that a search can be replayed without the system."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.trial import Measurement, Status
from autoscout.space import Space

METRIC = "value"
"""The metric of a table's measurements."""


class Table:
    """Measured rows over a space.

    Args:
        name: For people and files.
        space: The knobs; what it allows beyond the rows goes to the nearest row. Of a complete table it should allow nothing beyond.
        configs: One valid configuration per row, none twice.
        values: The metric of each row; NaN where it failed.
        task: What was measured; its objective says which way is better.
        statuses: How the rows fared that failed; `crashed` where it is not known.
        unit: Of the values.
        complete: Whether every valid configuration of the system is a row.
        ordinal: Knobs whose values stand in a meaningful order; the ordered ones of the space when left out.
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
        complete: bool = False,
        ordinal: frozenset[str] | None = None,
        family: str = "",
    ) -> None:
        self.name = name
        self.space = space
        self.configs = tuple(configs)
        self.values = values
        self.task = task
        self.unit = unit
        self.complete = complete
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
        named = frozenset(knob for knob in space.knobs if space.knobs[knob].ordered) if ordinal is None else ordinal
        self._ordinal = [knob in named for knob in space.knobs]

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
        """Where exactly this configuration stands."""
        return self._rows.get(config)

    def measurement(self, row: int) -> Measurement:
        """What was measured there."""
        status = self.statuses[row]
        if status is not Status.OK:
            return Measurement(status=status, cost_s=1.0, reason="recorded as a failure")
        return Measurement(status=status, metrics={METRIC: float(self.values[row])}, cost_s=1.0)

    def nearest(self, config: Config, rng: np.random.Generator, free: NDArray[np.bool_] | None = None) -> int:
        """The row closest to a configuration: ordinals by rank, categories 0 or 1, ties at random.

        Ranks run from 0 to 1, so that the ends of an ordered knob are as far apart as two categories; a knob that is active in
        one of the two only counts 1.

        Args:
            config: Anything the space allows.
            rng: For ties.
            free: Look among these rows only.
        """
        if free is None and (exact := self.row(config)) is not None:
            return exact
        distances = np.zeros(len(self))
        for column, (name, knob) in enumerate(self.space.knobs.items()):
            codes = self._codes[:, column]
            wanted = knob.position(config[name]) if name in config else -1
            code = -1 if wanted is None else wanted
            if code >= 0 and self._ordinal[column]:
                steps = np.abs(codes - code) / max(1, len(knob.values) - 1)
                distances += np.where(codes < 0, 1.0, steps)
            else:
                distances += codes != code
        if free is not None:
            distances[~free] = np.inf
        closest = np.flatnonzero(distances <= distances.min() + 1e-9)
        return int(closest[0] if len(closest) == 1 else rng.choice(closest))

    @cached_property
    def _codes(self) -> NDArray[np.int32]:
        """Position of every value in its knob; -1 where the knob is inactive."""
        found = np.full((len(self), len(self.space.knobs)), -1, dtype=np.int32)
        for column, (name, knob) in enumerate(self.space.knobs.items()):
            for row, config in enumerate(self.configs):
                if name in config:
                    found[row, column] = -1 if (position := knob.position(config[name])) is None else position
        return found


def task_of(name: str, direction: Direction, workload: dict[str, object] | None = None) -> Task:
    """The task that a table without one of its own stands for."""
    return Task(system="table", objective=Objective(metric=METRIC, direction=direction), workload={"table": name, **(workload or {})})

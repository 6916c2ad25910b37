"""What a simulator predicted, compared with what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscout.common.stats import kendall
from autoscout.learning.ensemble import SimulatorStanding


@dataclass(frozen=True, kw_only=True)
class PredictedTrial:
    """One measured configuration and its prediction."""

    trial: int
    name: str
    predicted: float
    measured: float | None  # None when it failed
    status: str = "ok"

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0 if self.measured else None


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Predictions of a study, in the order of measuring.

    Attributes:
        pictures: SVG of where the predicted time goes.
        members: Weight and errors of each, where several simulators were joined.
    """

    simulator: str
    metric: str
    rows: tuple[PredictedTrial, ...]
    pictures: tuple[str, ...] = ()
    members: tuple[SimulatorStanding, ...] = ()

    @property
    def good(self) -> list[PredictedTrial]:
        return [row for row in self.rows if row.error is not None]

    @property
    def mean_error(self) -> float | None:
        errors = [abs(row.error) for row in self.good if row.error is not None]
        return float(np.mean(errors)) if errors else None

    @property
    def rank(self) -> float | None:
        """Kendall's tau; None for fewer than three."""
        if len(self.good) < 3:
            return None
        return kendall(np.array([row.predicted for row in self.good]), np.array([row.measured for row in self.good], dtype=np.float64))

    @property
    def sentence(self) -> str:
        """The whole in one line."""
        if self.mean_error is None:
            return f"{self.simulator}: no measured configuration to compare its predictions with"
        agreement = f", rank agreement {self.rank:.2f}" if self.rank is not None else ""
        failed = len(self.rows) - len(self.good)
        failures = f"; {failed} failed" if failed else ""
        count, error = len(self.good), f"{self.mean_error:.0%}"
        return f"{self.simulator} predicted {count} measured configurations with a mean error of {error}{agreement}{failures}"

    def to_json(self) -> dict[str, Any]:
        rows = [{**vars(row), "error": row.error} for row in self.rows]
        members = {"simulators": [vars(member) for member in self.members]} if self.members else {}
        return {"simulator": self.simulator, "mean_error": self.mean_error, "rank": self.rank, **members, "rows": rows}

    @property
    def cells(self) -> list[tuple[str, ...]]:
        """Simulator, weight, and error, R² and rank agreement on trials that it was not fitted to, as text."""
        return [
            (
                member.name,
                f"{member.weight:.2f}",
                *("-" if value is None else format(value, style) for value, style in _styled(member)),
            )
            for member in self.members
        ]


def _styled(member: SimulatorStanding) -> tuple[tuple[float | None, str], ...]:
    return (member.error, ".0%"), (member.r2, ".2f"), (member.rank, ".2f")


__all__ = ["PredictedTrial", "Predictions"]

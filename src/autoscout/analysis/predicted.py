"""What a simulator predicted, compared with what was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscout.common.stats import kendall


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
    """Predictions of a study, in the order of measuring; `pictures` are SVG of where the predicted time goes."""

    simulator: str
    metric: str
    rows: tuple[PredictedTrial, ...]
    pictures: tuple[str, ...] = ()

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
        return {"simulator": self.simulator, "mean_error": self.mean_error, "rank": self.rank, "rows": rows}


__all__ = ["PredictedTrial", "Predictions"]

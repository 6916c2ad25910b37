"""Forecast: how many jobs and GPUs are expected, in equal steps of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Forecast:
    """Expected arrivals per step: the moment each step begins, jobs and GPUs."""

    at_s: NDArray[np.float64]
    jobs: NDArray[np.float64]
    gpus: NDArray[np.float64]

    @classmethod
    def none(cls) -> Forecast:
        """Nothing is known."""
        return cls(np.empty(0), np.empty(0), np.empty(0))

    def after(self, origin: float) -> Forecast:
        """The same with times counted from `origin`."""
        return Forecast(self.at_s - origin, self.jobs, self.gpus)

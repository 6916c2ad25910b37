"""Forecast: how many jobs and GPUs are expected, in equal steps of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STEP_S = 600.0  # Lucid's thresholds are jobs per ten minutes
DAY_S, HOUR_S = 86_400.0, 3_600.0
DAYS = 7  # of the past that an expectation is the mean of, at most


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

    @classmethod
    def of_past(cls, submit_s: NDArray[np.float64], gpus: NDArray[np.float64], until_s: float) -> Forecast:
        """What the same time of the days before lets expect; on the first day, what came from three hours to one hour before.

        A step is worked out from what came an hour before it at the latest, so a forecast that is looked at within the hour knows nothing
        that is still to come.

        Args:
            submit_s: Arrivals, sorted.
            gpus: Of each.
            until_s: How far it reaches; beyond the last arrival it knows what the days before let expect.
        """
        if not len(submit_s):
            return cls.none()
        first = float(np.floor(submit_s[0] / STEP_S) * STEP_S)
        steps = max(1, int(np.ceil((until_s - first) / STEP_S)))
        at: NDArray[np.float64] = first + STEP_S * np.arange(steps, dtype=np.float64)
        step = np.clip(((submit_s - first) / STEP_S).astype(np.int64), 0, steps - 1)
        inside = submit_s < first + steps * STEP_S
        jobs = np.bincount(step[inside], minlength=steps).astype(np.float64)
        demand = np.bincount(step[inside], weights=gpus[inside], minlength=steps).astype(np.float64)
        return cls(at, _expected(jobs), _expected(demand))

    def after(self, origin: float) -> Forecast:
        """The same with times counted from `origin`."""
        return Forecast(self.at_s - origin, self.jobs, self.gpus)


def _expected(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """By step: the mean of the same step on the days before; without such a day, of the steps from three hours to one hour before."""
    day, hour = round(DAY_S / STEP_S), round(HOUR_S / STEP_S)
    past = np.concatenate([[0.0], np.cumsum(counts)])
    places = np.arange(len(counts))
    low, high = np.maximum(0, places - 3 * hour), np.maximum(0, places - hour)
    means = (past[high] - past[low]) / np.maximum(1, high - low)
    days = np.minimum(DAYS, places // day)
    total = np.zeros(len(counts))
    for back in range(1, DAYS + 1):
        has = days >= back
        total[has] += counts[places[has] - back * day]
    expected: NDArray[np.float64] = np.where(days > 0, total / np.maximum(1, days), means)
    return expected

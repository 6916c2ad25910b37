"""Least squares for a handful of positive constants: scipy's, in logarithms, with a pull to the start and a cap on outliers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

STEP = 1e-4
"""Change of a logarithm for a slope: the models round and clip, so a step near machine precision would see noise."""


def fit_positive(
    residual: Callable[[Vector], Vector],
    start: Vector,
    *,
    pull: float = 0.05,
    cap: float = 0.3,
    low: Vector | None = None,
    high: Vector | None = None,
) -> Vector:
    """Minimise the squared `residual(values)` over positive `values`, beginning at `start`.

    Args:
        residual: One error per row of data; logarithms of ratios, usually.
        start: First values. A constant that the data says nothing about stays there.
        pull: Weight of (log value - log start), relative to a tenth of the root of rows per value.
        cap: An error e counts as cap * sqrt(log(1 + (e / cap)^2)): tables hold rows measured under settings that their columns do not say.
        low: Lower bounds; exp(-4) of the start when None.
        high: Upper bounds; exp(4) of the start when None.
    """
    from scipy.optimize import least_squares

    base = np.log(start)
    lower = np.log(low) if low is not None else base - 4.0
    upper = np.log(high) if high is not None else base + 4.0
    weight = 0.1 * pull * np.sqrt(len(residual(start)) / len(start))

    def stacked(at: Vector) -> Vector:
        plain = residual(np.exp(at))
        robust = np.sign(plain) * cap * np.sqrt(np.log1p((plain / cap) ** 2))
        return np.concatenate([robust, weight * (at - base)])

    def slopes(at: Vector) -> Vector:
        now = stacked(at)
        return np.stack([(stacked(at + STEP * unit) - now) / STEP for unit in np.eye(len(at))], axis=1)

    optimum = least_squares(stacked, np.clip(base, lower, upper), jac=slopes, bounds=(lower, upper), ftol=1e-5, xtol=1e-5, max_nfev=60)
    return np.exp(np.asarray(optimum.x, dtype=np.float64))


__all__ = ["fit_positive"]

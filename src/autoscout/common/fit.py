"""Least squares for a handful of positive constants: Levenberg-Marquardt in log space, numpy only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


def fit_positive(
    residual: Callable[[Vector], Vector],
    start: Vector,
    *,
    pull: float = 0.05,
    rounds: int = 40,
    cap: float = 0.3,
    low: Vector | None = None,
    high: Vector | None = None,
) -> Vector:
    """Minimise the squared `residual(values)` over positive `values`, beginning at `start`.

    `pull` draws each log-value gently to its start (a prior of that weight relative to the mean residual), so that a
    constant the data says nothing about stays where physics put it. Errors far above
    `cap` hardly count: tables hold rows measured under settings that their columns do not tell.
    """
    base = np.log(start)
    lower = np.log(low) if low is not None else base - 4.0
    upper = np.log(high) if high is not None else base + 4.0
    point, damping = base.copy(), 1e-2
    weight = pull * np.sqrt(len(residual(start)) / len(start)) * 0.1

    def stacked(at: Vector) -> Vector:
        plain = residual(np.exp(at))
        robust = np.sign(plain) * cap * np.sqrt(np.log1p((plain / cap) ** 2))
        return np.concatenate([robust, weight * (at - base)])

    now = stacked(point)
    for _ in range(rounds):
        step = 1e-4
        jacobian = np.stack([(stacked(point + step * unit) - now) / step for unit in np.eye(len(point))], axis=1)
        normal, slope = jacobian.T @ jacobian, jacobian.T @ now
        for _ in range(8):
            move = np.linalg.solve(normal + damping * np.diag(np.maximum(np.diag(normal), 1e-9)), -slope)
            candidate = np.clip(point + np.clip(move, -1.0, 1.0), lower, upper)
            there = stacked(candidate)
            if there @ there < now @ now:
                break
            damping = min(damping * 4.0, 1e9)
        else:
            break
        gain = 1.0 - (there @ there) / (now @ now)
        point, now, damping = candidate, there, max(damping / 5.0, 1e-9)
        if gain < 1e-5:
            break
    return np.exp(point)


__all__ = ["fit_positive"]

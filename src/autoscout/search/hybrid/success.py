"""The chance that a configuration runs at all."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from autoscout.search.hybrid import tuning
from autoscout.space.encode import Encoder, Floats, Rows


class Success:
    """Log odds that are a straight line in all knobs, so that the chance is that of a logistic regression (Laplace's method).

    Memory, registers and time limits grow with every knob that drives them, so a straight boundary in all knobs together predicts
    failures of measured tables better than nearness to known failures does. Nothing is fitted but the boundary: with the few
    failures one can afford, hyperparameters would follow chance.

    Args:
        encoder: Of the space.
        slope: Standard deviation of the log odds along one knob from end to end; 0 where the expected log odds follow the knobs already.
    """

    def __init__(self, encoder: Encoder, slope: float = tuning.SLOPE_DEVIATION) -> None:
        self._encoder = encoder
        self._slope = slope
        self.fit(encoder.rows(()), np.zeros(0), np.zeros(0))

    def fit(self, rows: Rows, labels: Floats, expected: Floats) -> Floats:
        """Learn from rows that ran (1) or failed (0), and the log odds that were expected of them; see `left_out` for what is returned."""
        columns = self._columns(rows)
        self._weights, self._whiten = boundary(columns, labels, expected)
        return left_out(columns, labels, expected, self._weights, self._whiten)

    def chance(self, rows: Rows, expected: Floats) -> Floats:
        """Chance of each row, averaged over what the boundary may be, given the log odds that were expected of it."""
        columns = self._columns(rows)
        return averaged(expected + columns @ self._weights, ((columns @ self._whiten.T) ** 2).sum(1))

    def _columns(self, rows: Rows) -> Floats:
        level = np.full((len(rows), 1), tuning.LEVEL_DEVIATION)
        return np.hstack([level, self._slope * (rows.plain - self._encoder.middle)])


def boundary(columns: Floats, labels: Floats, expected: Floats) -> tuple[Floats, Floats]:
    """Logistic regression with standard normal weights, by Newton's steps.

    Args:
        columns: Of the labelled rows.
        labels: 1 or 0.
        expected: Log odds of each before any label is known.

    Returns:
        The most likely weights, and what whitens them: its square is their covariance.
    """
    weights, eye = np.zeros(columns.shape[1]), np.eye(columns.shape[1])
    for _ in range(tuning.NEWTON_STEPS):
        chance = expit(expected + columns @ weights)
        precision = eye + columns.T @ (columns * (chance * (1.0 - chance))[:, None])
        step = np.linalg.solve(precision, columns.T @ (labels - chance) - weights)
        weights = weights + step
        if np.abs(columns @ step).max(initial=0.0) < 1e-2:
            break
    return weights, np.linalg.inv(np.linalg.cholesky(precision))


def left_out(columns: Floats, labels: Floats, expected: Floats, weights: Floats, whiten: Floats) -> Floats:
    """Logarithm of the chance that each label had before it was known, given all others; `weights`, `whiten` from `boundary`."""
    odds, within = expected + columns @ weights, ((columns @ whiten.T) ** 2).sum(1)
    chance = expit(odds)
    variance = within / np.maximum(1.0 - within * chance * (1.0 - chance), 1e-9)
    chance = averaged(odds - variance * (labels - chance), variance)
    return np.log(np.maximum(np.where(labels > 0, chance, 1.0 - chance), 1e-300))


def averaged(odds: Floats, variance: Floats) -> Floats:
    """Chances of uncertain log odds."""
    return np.asarray(expit(odds / np.sqrt(1.0 + np.pi / 8.0 * variance)))

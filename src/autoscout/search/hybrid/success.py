"""The chance that a configuration runs at all."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from autoscout.core.config import Config
from autoscout.search.hybrid import tuning
from autoscout.space.encode import Encoder, Floats, Rows


class Success:
    """A Gaussian process classifier whose log odds are mostly straight lines.

    Memory, registers and time limits grow with every knob that drives them, so a straight boundary in all knobs together predicts
    failures of measured tables better than nearness to known failures does. Nothing is fitted but the boundary: with the few
    failures one can afford, hyperparameters would follow chance.

    Args:
        encoder: Of the space.
        slope: Standard deviation of the log odds along one knob from end to end; 0 where the expected log odds follow the knobs already.

    Attributes:
        evidence: Logarithm of the chance that each outcome had before it was known, given all others.
    """

    def __init__(self, encoder: Encoder, slope: float = tuning.SLOPE_DEVIATION) -> None:
        self._encoder = encoder
        self._slope = slope
        self._length = tuning.LENGTH_SCALE * np.sqrt(max(1, len(encoder.names)))
        self._rows = encoder.rows(())
        self._pull: Floats = np.zeros(0)
        self._root: Floats = np.zeros(0)
        self._whiten: Floats = np.zeros((0, 0))
        self.evidence: Floats = np.zeros(0)

    def fit(self, rows: Rows, labels: Floats, expected: Floats) -> None:
        """Learn from rows that ran (1) or failed (0), and the log odds that were expected of them."""
        self._rows = rows
        kernel = self._kernel(rows, rows)
        self._pull, self._root, self._whiten = boundary(kernel, labels, expected)
        self.evidence = left_out(kernel, labels, expected, self._pull, self._root, self._whiten)

    def chance(self, rows: Rows, expected: Floats) -> Floats:
        """Chance of each row, averaged over what the boundary may be, given the log odds that were expected of it."""
        cross = self._kernel(rows, self._rows)
        reduced = (cross * self._root) @ self._whiten.T
        prior = tuning.LEVEL_DEVIATION**2 + tuning.BEND_DEVIATION**2 + self._slope**2 * ((rows.plain - self._encoder.middle) ** 2).sum(1)
        variance = np.maximum(prior - (reduced**2).sum(1), 1e-9)
        return logistic((expected + cross @ self._pull) / np.sqrt(1.0 + np.pi / 8.0 * variance))

    def _kernel(self, one: Rows, other: Rows) -> Floats:
        rows, columns = one.plain - self._encoder.middle, other.plain - self._encoder.middle
        products = rows @ columns.T
        squares = (rows**2).sum(1)[:, None] + (columns**2).sum(1)[None, :] - 2.0 * products
        root = np.sqrt(5.0 * np.maximum(squares, 0.0)) / self._length
        bent = (1.0 + root + root**2 / 3.0) * np.exp(-root)
        kernel: Floats = tuning.LEVEL_DEVIATION**2 + self._slope**2 * products + tuning.BEND_DEVIATION**2 * bent
        return kernel


def labelled(encoder: Encoder, bad: Sequence[Config], good: Sequence[Config]) -> tuple[Rows, Floats]:
    """Rows in an order that means nothing, and 1 for the good ones."""
    rows = encoder.rows([*bad, *good])
    labels = np.concatenate([np.zeros(len(bad)), np.ones(len(good))])
    by_hash = np.argsort([zlib.crc32(row.tobytes()) for row in rows.codes], kind="stable")
    return rows.take(by_hash), labels[by_hash]


def boundary(kernel: Floats, labels: Floats, expected: Floats) -> tuple[Floats, Floats, Floats]:
    """Classification by a Gaussian process (Laplace's method, Newton's steps).

    Args:
        kernel: Between the labelled rows.
        labels: 1 or 0.
        expected: Log odds of each before any label is known.

    Returns:
        What each row pulls the log odds of others by, the roots of their weights, and the inverse factor that whitens them.
    """
    latent = expected.copy()
    eye = np.eye(len(labels))
    for _ in range(tuning.NEWTON_STEPS):
        chance = logistic(latent)
        weight = np.maximum(chance * (1.0 - chance), 1e-9)
        root = np.sqrt(weight)
        goal = weight * (latent - expected) + labels - chance
        pull = goal - root * np.linalg.solve(eye + root[:, None] * kernel * root, root * (kernel @ goal))
        before, latent = latent, expected + kernel @ pull
        if np.abs(latent - before).max(initial=0.0) < 1e-2:
            break
    return pull, root, np.linalg.inv(np.linalg.cholesky(eye + root[:, None] * kernel * root))


def left_out(kernel: Floats, labels: Floats, expected: Floats, pull: Floats, root: Floats, whiten: Floats) -> Floats:
    """Logarithm of the chance that each label had before it was known, given all others; `pull`, `root`, `whiten` from `boundary`."""
    within = np.diag(kernel) - ((whiten @ (root[:, None] * kernel)) ** 2).sum(0)
    variance = 1.0 / np.maximum(1.0 / np.maximum(within, 1e-9) - root**2, 1e-9)
    odds = (expected + kernel @ pull - variance * pull) / np.sqrt(1.0 + np.pi / 8.0 * variance)
    logs: Floats = -np.logaddexp(0.0, np.where(labels > 0, -odds, odds))
    return logs


def logistic(odds: Floats) -> Floats:
    """Chances of log odds."""
    chances: Floats = 1.0 / (1.0 + np.exp(-np.clip(odds, -500.0, 500.0)))
    return chances

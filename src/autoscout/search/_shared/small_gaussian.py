"""A small Gaussian process over configurations: Matérn 5/2 on a distance per knob, one length scale each, numpy only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.core.config import Config
from autoscout.space import Space

Array = NDArray[np.float64]
_SCALES = (0.25, 0.5, 1.0, 2.0, 4.0)
_NOISES = (1e-4, 1e-2, 1e-1)
_PASSES = 2


class Encoding:
    """Configurations as rows of numbers: the rank of an ordered value from 0 to 1, the position of a category, -1 where inactive."""

    def __init__(self, space: Space) -> None:
        self._knobs = list(space.knobs.items())
        self._ordered = np.array([knob.ordered for _, knob in self._knobs], dtype=np.bool_)

    @property
    def width(self) -> int:
        return len(self._knobs)

    def rows(self, configs: Sequence[Config]) -> Array:
        found = np.full((len(configs), len(self._knobs)), -1.0)
        for row, config in enumerate(configs):
            for column, (name, knob) in enumerate(self._knobs):
                if name in config and (position := knob.position(config[name])) is not None:
                    found[row, column] = position / max(1, len(knob.values) - 1) if knob.ordered else position
        return found

    def distances(self, left: Array, right: Array) -> NDArray[np.float32]:
        """Squared distance per knob, each at most 1; shape (left, right, knobs)."""
        gap = np.abs(left[:, None, :] - right[None, :, :])
        mixed = (left[:, None, :] < 0) != (right[None, :, :] < 0)
        return np.where(self._ordered & ~mixed, gap**2, gap > 0).astype(np.float32)

    def scaled(self, left: Array, right: Array, weights: Array) -> Array:
        """The same, weighted and summed over the knobs, without holding them all at once; shape (left, right)."""
        found = np.zeros((len(left), len(right)))
        for column, weight in enumerate(weights):
            one, other = left[:, column, None], right[None, :, column]
            if self._ordered[column]:
                gap = one - other
                gap *= gap
                if left[:, column].min(initial=0.0) < 0 or right[:, column].min(initial=0.0) < 0:
                    gap[(one < 0) != (other < 0)] = 1.0
                gap *= weight
                found += gap
            else:
                found += weight * (one != other)
        return found


@dataclass(frozen=True)
class Fit:
    """Hyperparameters: an inverse squared length scale per knob, and the noise."""

    weights: Array
    noise: float


def matern(squared: Array) -> Array:
    """Matérn 5/2 of squared scaled distances."""
    root = np.sqrt(5.0 * np.maximum(squared, 0.0))
    found: Array = (1.0 + root + root**2 / 3.0) * np.exp(-root)
    return found


@np.errstate(invalid="ignore")  # see `autoscout.search._shared.gaussian.Process`
def likelihood(fit: Fit, distances: NDArray[np.float32], targets: Array) -> float:
    """Log marginal likelihood with a weak prior that keeps length scales near 1."""
    kernel = matern((distances @ fit.weights.astype(np.float32)).astype(np.float64))
    kernel[np.diag_indices_from(kernel)] += fit.noise + 1e-6
    try:
        root = np.linalg.cholesky(kernel)
    except np.linalg.LinAlgError:
        return -math.inf
    half = np.linalg.solve(root, targets)
    prior = -0.5 * float(np.sum((0.5 * np.log(fit.weights) / 1.5) ** 2))
    return float(-0.5 * half @ half - np.log(np.diag(root)).sum()) + prior


def fitted(distances: NDArray[np.float32], targets: Array) -> Fit:
    """The best of a few common scales and noises, then each knob's own scale up or down as long as that pays."""
    width = distances.shape[2]
    base = max(1.0, float(width)) ** 0.5  # distances add up over knobs, so scales grow with their number
    best = Fit(np.full(width, 1.0 / base), _NOISES[1])
    score = -math.inf
    for scale in _SCALES:
        for noise in _NOISES:
            trial = Fit(np.full(width, 1.0 / (base * scale**2)), noise)
            if (found := likelihood(trial, distances, targets)) > score:
                best, score = trial, found
    for _ in range(_PASSES):
        moved = False
        for knob in range(width):
            for factor in (4.0, 0.25):
                weights = best.weights.copy()
                weights[knob] *= factor
                trial = Fit(weights, best.noise)
                if (found := likelihood(trial, distances, targets)) > score + 1e-9:
                    best, score, moved = trial, found, True
                    break
        if not moved:
            break
    return best


@np.errstate(invalid="ignore")  # see `autoscout.search._shared.gaussian.Process`
def posterior(fit: Fit, among: Array, across: Array, targets: Array) -> tuple[Array, Array]:
    """Mean and standard deviation at some points.

    Args:
        fit: Hyperparameters.
        among: Scaled distances between what is known.
        across: Scaled distances from the points to what is known.
        targets: What is known, standardised.
    """
    kernel = matern(among)
    kernel[np.diag_indices_from(kernel)] += fit.noise + 1e-6
    inverse = np.linalg.inv(kernel)
    cross = matern(across)
    mean = cross @ (inverse @ targets)
    variance = 1.0 - np.einsum("ij,ij->i", cross @ inverse, cross)
    return mean, np.sqrt(np.maximum(variance, 1e-12))

"""A Gaussian process for few, mixed, partly additive data: curves of single knobs plus one smooth interaction of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.space.encode import Encoder, Floats, Rows

Reals = NDArray[np.floating[Any]]

FIT_POINTS = 56
"""Hyperparameters are fitted to this many points at most: the cost must not grow with the cube of the trials."""
OPTIMIZER_STEPS = 18
GRAIN_LENGTH, PAIR_LENGTH, CATEGORY_LENGTH = 0.7, 0.8, 0.4
"""How much longer the length scales of grains are expected to be, for most knobs have none that matters; and those of knobs with two
values and of categories: their shortest step is from end to end, and few of them turn everything round. Those that decide whether other
knobs are active may well."""
ORDERED_VARIANCE = 0.5
"""How much more variance the own effects of ordered knobs are expected to have than those of others."""


@dataclass(frozen=True)
class Scales:
    """Hyperparameters, all as logarithms.

    Attributes:
        length: Length scale of every knob, and of every grain, in the interaction.
        weight: Variance of every knob's own effect.
        signal: Standard deviation of the interaction.
        noise: Standard deviation of a measurement.
    """

    length: Floats
    weight: Floats
    signal: float
    noise: float


@dataclass(frozen=True)
class Beliefs:
    """Where hyperparameters are expected: (centre, spread) of normal priors on their logarithms."""

    length: tuple[float, float] = (-0.5, 0.7)  # plus a quarter of log d: distances grow with the number of knobs
    weight: tuple[float, float] = (-2.5, 1.3)  # minus log d: knobs share the variance
    signal: tuple[float, float] = (-0.2, 0.5)
    noise: tuple[float, float] = (-2.0, 0.7)

    def centre(self, encoder: Encoder) -> Floats:
        knobs = len(encoder.names)
        longer = np.full(encoder.groups, GRAIN_LENGTH)
        longer[:knobs] = np.where(encoder.ordered | encoder.gates, 0.0, np.where(encoder.sizes <= 2, PAIR_LENGTH, CATEGORY_LENGTH))
        length = self.length[0] + 0.25 * np.log(max(encoder.groups, 1)) + longer
        weight = self.weight[0] + np.log(4.0 / max(knobs, 1)) + ORDERED_VARIANCE * encoder.ordered
        return np.concatenate([length, weight, [self.signal[0], self.noise[0]]])

    def spread(self, encoder: Encoder) -> Floats:
        knobs = len(encoder.names)
        return np.repeat([self.length[1], self.weight[1], self.signal[1], self.noise[1]], [encoder.groups, knobs, 1, 1])


class Process:
    """The posterior given rows and targets (standardised by the caller).

    Invalid values are not warned of: numpy was seen to warn in one of many runs with the same inputs, so it is the library's flag (a
    BLAS that reads padding, presumably) and not the data.
    """

    def __init__(self, encoder: Encoder, beliefs: Beliefs | None = None) -> None:
        self._encoder = encoder
        self._beliefs = beliefs or Beliefs()
        self._scaled: Reals = np.zeros((0, 0))
        self._basis: Reals = np.zeros((0, 0))
        self._alpha: Reals = np.zeros(0)
        self._whiten: Reals = np.zeros((0, 0))
        self.scales = _unpack(self._beliefs.centre(encoder), encoder.groups)

    @np.errstate(invalid="ignore")
    def fit(self, rows: Rows, targets: Floats) -> Scales:
        """Hyperparameters of highest posterior density for these rows; a fixed number of steps from the prior's centre."""
        distances = _distances(rows.plain, self._encoder.group, self._encoder.groups)
        products = _products(rows.effects, self._encoder.owner, len(self._encoder.names))
        self.scales = _climb(distances, products, targets, self._beliefs.centre(self._encoder), self._beliefs.spread(self._encoder))
        return self.scales

    @np.errstate(invalid="ignore")
    def condition(self, rows: Rows, targets: Floats, noise: Floats | None = None) -> None:
        """Compute the posterior for these rows with the present hyperparameters; `noise` adds variance per row."""
        self._scaled, self._basis = self._columns(rows)
        kernel = self._kernel(self._scaled, self._basis)
        extra = np.exp(2 * self.scales.noise) + 1e-6
        kernel[np.diag_indices(len(rows))] += extra if noise is None else extra + noise
        whiten = np.linalg.inv(np.linalg.cholesky(kernel))
        self._alpha = (whiten.T @ (whiten @ targets)).astype(np.float32)
        # Predictions are for ranking candidates: single precision is enough and twice as fast.
        self._whiten = whiten.astype(np.float32)
        self._scaled, self._basis = self._scaled.astype(np.float32), self._basis.astype(np.float32)

    @np.errstate(invalid="ignore")
    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation (of the noise-free value)."""
        scaled, basis = (columns.astype(np.float32) for columns in self._columns(rows))
        cross = self._kernel(scaled, basis)
        mean = cross @ self._alpha
        prior = np.exp(2 * self.scales.signal) + np.einsum("ij,ij->i", basis, basis)
        reduced = cross @ self._whiten.T
        variance = np.maximum(prior - np.einsum("ij,ij->i", reduced, reduced), 1e-6)
        return mean.astype(np.float64), np.sqrt(variance.astype(np.float64))

    @np.errstate(invalid="ignore")
    def left_out(self, targets: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation, noise included, of each row conditioned on, as all others predict it; `targets` as conditioned."""
        whiten = self._whiten.astype(np.float64)
        precision = np.maximum((whiten**2).sum(0), 1e-9)
        return targets - whiten.T @ (whiten @ targets) / precision, 1.0 / np.sqrt(precision)

    def _columns(self, rows: Rows) -> tuple[Floats, Floats]:
        scaled = rows.plain * np.exp(-self.scales.length)[self._encoder.group]
        return scaled, rows.effects * np.exp(0.5 * self.scales.weight)[self._encoder.owner]

    def _kernel(self, scaled: Reals, basis: Reals) -> Reals:
        """Between the given rows and those conditioned on."""
        squares = scaled @ (-2 * self._scaled.T)
        squares += (scaled**2).sum(1)[:, None]
        squares += (self._scaled**2).sum(1)[None, :]
        root = np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)
        root *= 5**0.5
        kernel: Reals = np.exp(-root)
        kernel *= 1.0 + root * (1.0 + root * (1.0 / 3.0))
        kernel *= float(np.exp(2 * self.scales.signal))
        kernel += basis @ self._basis.T
        return kernel


PLAIN = (Beliefs(),)
SHORT_AND_LONG = (Beliefs(length=(-0.9, 0.5)), Beliefs(length=(-0.1, 0.5)))
"""Few trials cannot tell whether knobs act locally or far and wide. A fit that picks one is too sure of it."""


class Mixture:
    """A process for each of some beliefs; where they disagree none is certain.

    Args:
        encoder: Of the space.
        beliefs: What each expects of its hyperparameters.
    """

    def __init__(self, encoder: Encoder, beliefs: Sequence[Beliefs]) -> None:
        self._parts = tuple(Process(encoder, belief) for belief in beliefs)

    @property
    def scales(self) -> tuple[Scales, ...]:
        return tuple(part.scales for part in self._parts)

    @scales.setter
    def scales(self, values: tuple[Scales, ...]) -> None:
        for part, scales in zip(self._parts, values, strict=True):
            part.scales = scales

    def fit(self, rows: Rows, targets: Floats) -> tuple[Scales, ...]:
        return tuple(part.fit(rows, targets) for part in self._parts)

    def condition(self, rows: Rows, targets: Floats, noise: Floats | None = None) -> None:
        for part in self._parts:
            part.condition(rows, targets, noise)

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation (of the noise-free value)."""
        return _mixed([part.predict(rows) for part in self._parts])

    def left_out(self, targets: Floats) -> tuple[Floats, Floats]:
        """The same, noise included, of each row conditioned on, as all others predict it; `targets` as conditioned."""
        return _mixed([part.left_out(targets) for part in self._parts])


def _mixed(parts: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    if len(parts) == 1:
        return parts[0]
    means, spreads = (np.array(column) for column in zip(*parts, strict=True))
    return means.mean(0), np.sqrt((spreads**2).mean(0) + means.var(0))


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Matérn 5/2 of squared distances, and minus twice its derivative by them."""
    root = np.sqrt(5.0 * np.maximum(squares, 0.0))
    decay = np.exp(-root)
    return (1.0 + root + root**2 / 3.0) * decay, (5.0 / 3.0) * (1.0 + root) * decay


def _distances(plain: Floats, group: NDArray[np.int64], groups: int) -> Floats:
    squares = np.zeros((groups, len(plain), len(plain)))
    for column, index in enumerate(group):
        squares[index] += (plain[:, column][:, None] - plain[:, column][None, :]) ** 2
    return squares


def _products(basis: Floats, owner: NDArray[np.int64], d: int) -> Floats:
    products = np.zeros((d, len(basis), len(basis)))
    for index in range(d):
        part = basis[:, owner == index]
        products[index] = part @ part.T
    return products


def _unpack(flat: Floats, groups: int) -> Scales:
    return Scales(length=flat[:groups], weight=flat[groups:-2], signal=float(flat[-2]), noise=float(flat[-1]))


def _climb(distances: Floats, products: Floats, targets: Floats, centre: Floats, spread: Floats) -> Scales:
    """Adam on the log posterior density of the hyperparameters."""
    flat, first, second = centre.copy(), np.zeros_like(centre), np.zeros_like(centre)
    for step in range(1, OPTIMIZER_STEPS + 1):
        gradient = _gradient(flat, distances, products, targets) - (flat - centre) / spread**2
        first = 0.8 * first + 0.2 * gradient
        second = 0.9 * second + 0.1 * gradient**2
        rate = 0.3 * (1.0 - 0.7 * step / OPTIMIZER_STEPS)
        flat = flat + rate * (first / (1 - 0.8**step)) / (np.sqrt(second / (1 - 0.9**step)) + 1e-3)
        flat = np.clip(flat, centre - 3.0 * spread, centre + 3.0 * spread)
    return _unpack(flat, len(distances))


def _gradient(flat: Floats, distances: Floats, products: Floats, targets: Floats) -> Floats:
    """Of the log marginal likelihood, by all logarithmic hyperparameters."""
    groups, n = len(distances), len(targets)
    inverse, weight = np.exp(-2 * flat[:groups]), np.exp(flat[groups:-2])
    signal, noise = np.exp(2 * flat[-2]), np.exp(2 * flat[-1])
    flat_distances, flat_products = distances.reshape(groups, -1), products.reshape(len(products), -1)
    shape, slope = _matern(inverse @ flat_distances)
    kernel = (signal * shape + weight @ flat_products).reshape(n, n)
    kernel[np.diag_indices(n)] += noise + 1e-6
    precision = np.linalg.inv(kernel)
    alpha = precision @ targets
    pull = 0.5 * (np.outer(alpha, alpha) - precision)
    flat_pull = pull.ravel()
    by_length = signal * inverse * (flat_distances @ (flat_pull * slope))
    by_weight = weight * (flat_products @ flat_pull)
    return np.concatenate([by_length, by_weight, [2 * signal * (flat_pull @ shape), 2 * noise * np.trace(pull)]])

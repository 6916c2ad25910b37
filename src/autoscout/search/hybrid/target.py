"""Losses as targets of regression."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from autoscout.space.encode import Floats

TAIL = 1.5
"""Where, in deviations above the mean, slow trials begin to count as equally slow."""
FAR, FASTER = 6.0, 12.0
"""Slow trials count for mean and deviation as so many deviations of the faster half above the median, and that half's deviation as this
part of all at least: where some are many times slower than the rest, their spread would make all that matters look alike."""

USUAL, USUAL_WORTH, USUAL_UNTIL = 0.5, 3.0, 20
"""Standard deviation expected of the logarithm of a loss, and how many trials that expectation is worth: the first few trials that
work are often alike, and a model that takes their spread for that of the space never leaves them. The worth fades until so many trials
are known: where all configurations are alike within some per cent, expecting more would be exploring for good."""


@dataclass(frozen=True)
class Ruler:
    """How losses become targets.

    Attributes:
        logarithmic: Whether their logarithms count; `values` below are these then.
        centre: The mean of their values, far ones drawn in.
        deviation: Their standard deviation, likewise.
        shift: What is left of the mean once slow ones are drawn together.
        scale: And of the standard deviation.
    """

    logarithmic: bool
    centre: float
    deviation: float
    shift: float
    scale: float

    @property
    def unit(self) -> float:
        """What one unit of the target is worth at the good end."""
        return self.deviation * self.scale

    def targets(self, values: Floats) -> Floats:
        plain = (values - self.centre) / self.deviation
        return (_drawn(plain) - self.shift) / self.scale

    def slope(self, values: Floats) -> Floats:
        """How much the target grows with the value there."""
        plain = np.maximum((values - self.centre) / self.deviation, 0.0)
        return (1.0 - np.tanh(plain / TAIL) ** 2) / self.unit


def ruler(losses: Floats) -> tuple[Ruler, Floats]:
    """Logarithms where signs allow, of deviation about 1, slow ones drawn together; and the values to be carried over.

    Speed-ups multiply, and how slow the slow ones are says nothing about where the fast ones stand.
    """
    logarithmic = bool((losses > 0).all() or (losses < 0).all())
    values = np.sign(losses) * np.log(np.abs(losses)) if logarithmic else losses
    near = _without_far(values)
    centre, deviation = float(near.mean()), max(float(near.std()), 1e-12)
    if logarithmic:
        worth = USUAL_WORTH * max(1.0 - len(losses) / USUAL_UNTIL, 0.02)
        deviation = math.sqrt((len(losses) * deviation**2 + worth * USUAL**2) / (len(losses) + worth))
    drawn = _drawn((values - centre) / deviation)
    scale = max(float(drawn.std()) * deviation / max(float(near.std()), 1e-12), 1e-12)
    return Ruler(logarithmic, centre, deviation, float(drawn.mean()), scale), values


def _without_far(values: Floats) -> Floats:
    """Values, with those drawn in that are much slower than the faster half would make one expect."""
    median = float(np.median(values))
    faster = float(np.sqrt(np.mean((values[values <= median] - median) ** 2)))
    found: Floats = np.minimum(values, median + FAR * max(faster, float(values.std()) / FASTER))
    return found


def standardise(losses: Floats) -> tuple[Floats, float]:
    """Targets, and what one unit of them is worth at the good end."""
    found, values = ruler(losses)
    return found.targets(values), found.unit


def _drawn(plain: Floats) -> Floats:
    return np.where(plain > 0.0, TAIL * np.tanh(plain / TAIL), plain)

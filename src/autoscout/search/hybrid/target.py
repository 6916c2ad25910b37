"""Losses as targets of regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscout.search.hybrid import tuning
from autoscout.space.encode import Floats


@dataclass(frozen=True)
class Ruler:
    """How losses become targets.

    Attributes:
        logarithmic: Whether their logarithms count; `values` below are these then.
        centre: The mean of their values.
        deviation: Their standard deviation.
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
        return (1.0 - np.tanh(plain / tuning.TARGET_TAIL) ** 2) / self.unit


def ruler(losses: Floats) -> tuple[Ruler, Floats]:
    """Logarithms where signs allow, of deviation about 1, slow ones drawn together; and the values to be carried over.

    Speed-ups multiply, and how slow the slow ones are says nothing about the fast ones.
    """
    logarithmic = bool((losses > 0).all() or (losses < 0).all())
    values = np.sign(losses) * np.log(np.abs(losses)) if logarithmic else losses
    centre, plain = float(values.mean()), max(float(values.std()), 1e-12)
    deviation = plain
    if logarithmic:
        worth = tuning.PRIOR_TRIALS * max(1.0 - len(losses) / tuning.EARLY_TRIALS, 0.02)
        deviation = np.sqrt((len(losses) * plain**2 + worth * tuning.USUAL_DEVIATION**2) / (len(losses) + worth))
    drawn = _drawn((values - centre) / deviation)
    scale = max(float(drawn.std()) * deviation / plain, 1e-12)
    return Ruler(logarithmic, centre, deviation, float(drawn.mean()), scale), values


def standardise(losses: Floats) -> tuple[Floats, float]:
    """Targets, and what one unit of them is worth at the good end."""
    scale, values = ruler(losses)
    return scale.targets(values), scale.unit


def _drawn(plain: Floats) -> Floats:
    return np.where(plain > 0.0, tuning.TARGET_TAIL * np.tanh(plain / tuning.TARGET_TAIL), plain)

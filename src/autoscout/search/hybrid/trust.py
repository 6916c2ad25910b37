"""How far a model is followed that knows little yet."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from autoscout.space.encode import Floats

FEW, MANY, KEPT = 4, 8, 0.5
"""With so many knobs every promise counts in full; with so many or more each knob beyond the first that a candidate changes leaves it
this share of its promise, while nothing is known."""
LEARNT = 20.0
"""Trials in which that fades (to a third)."""


def trusted(apart: NDArray[np.int64], knobs: int, known: int) -> Floats:
    """The share of its promise that counts of a candidate.

    Most of what a young model knows about a configuration that differs in several knobs from the best is a guess, and there are so many of
    them that the best guess is the luckiest. What differs in one knob says besides which knob it was.

    Args:
        apart: In how many knobs each candidate differs from the best configuration.
        knobs: How many there are.
        known: Trials with an answer.
    """
    lost = min(max(knobs - FEW, 0) / (MANY - FEW), 1.0) * (1.0 - KEPT) * math.exp(-known / LEARNT)
    found: Floats = (1.0 - lost) ** np.maximum(apart - 1, 0)
    return found

"""Gaussian processes that expect different things, in equal shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscout.search._shared.gaussian import Beliefs, Process, Scales
from autoscout.space.encode import Encoder, Floats, Rows

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
    def scales(self, found: tuple[Scales, ...]) -> None:
        for part, scales in zip(self._parts, found, strict=True):
            part.scales = scales

    @property
    def sensitivity(self) -> Floats:
        """How much the target varies with each knob."""
        found: Floats = np.mean([scales.sensitivity for scales in self.scales], axis=0)
        return found

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

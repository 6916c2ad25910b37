"""How a session asks: its turns, what is sent together, and the pauses of whoever reads the answers."""

from __future__ import annotations

import math
from typing import NamedTuple

HALF = math.log(2)
"""Median over mean of pauses that come to an end at any moment with the same chance."""


class SessionShape(NamedTuple):
    """How a session asks.

    Attributes:
        turns: That follow one another.
        branches: Requests of each turn, which are sent together.
        think_s: Median pause between two turns.
    """

    turns: int = 1
    branches: int = 1
    think_s: float = 0.0

    @property
    def requests(self) -> int:
        """Of one session."""
        return self.turns * self.branches

    @property
    def pause_s(self) -> float:
        """Mean pause between two turns."""
        return self.think_s / HALF

    @property
    def pauses(self) -> bool:
        """Whether somebody thinks between two requests."""
        return self.turns > 1 and self.think_s > 0

    def under_way(self, rate: float, answer_s: float) -> float:
        """Sessions at a time, on average, whose requests come at a rate: as many as begin in the time that one lasts.

        Requests that are sent together count as one answer.

        >>> SessionShape(turns=4, think_s=20 * math.log(2)).under_way(rate=2.0, answer_s=1.0)
        32.0
        """
        return rate / self.requests * (self.turns * answer_s + (self.turns - 1) * self.pause_s)


__all__ = ["SessionShape"]

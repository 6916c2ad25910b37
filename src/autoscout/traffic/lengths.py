"""How long things are: bins with the share of each, and drawing from them so that any few draws have nearly the mean of all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, FiniteFloat, model_validator

from autoscout.common.fields import Block, Refused

STEPS = np.array([(math.sqrt(5) - 1) / 2, math.sqrt(2) - 1])  # of `Even`: the two irrational steps that fill an interval most evenly
MOST_BINS = 40
MIDDLE = 0.5  # of a bin, where nothing is known of what lies inside
FILL = (0.05, 0.95)  # bounds of the mean place inside a bin: a mean that says more contradicts the bins
MOST_TOKENS = 10_000_000  # of a prompt or an answer


Bin = Annotated[tuple[FiniteFloat, FiniteFloat, FiniteFloat], Field(strict=False)]


class Even:
    """Pairs of numbers between 0 and 1, of which any few in a row have nearly the mean of all.

    Additive sequences with irrational steps and a random beginning. With independent draws the work in a few hundred requests would
    differ by percents from draw to draw.
    """

    def __init__(self, random: np.random.Generator) -> None:
        self._at = random.random(2)

    def draw(self) -> tuple[float, float]:
        self._at = (self._at + STEPS) % 1.0
        return float(self._at[0]), float(self._at[1])


class TokenLengths(Block):
    """A distribution of lengths.

    Attributes:
        bins: Each from above `low` to `high`, with its share of all; in rising order.
        fill: Where the lengths of a bin lie on average, from 0 (its low end) to 1: what a known mean says of bins that are wide.
    """

    bins: tuple[Bin, ...] = Field(min_length=1, strict=False)
    fill: FiniteFloat = Field(MIDDLE, gt=0, lt=1)

    @model_validator(mode="after")
    def _rises(self) -> Self:
        if len(self.bins) > 2000:
            raise Refused("has more than 2,000 bins")
        before = 0.0
        for low, high, share in self.bins:
            if not before <= low <= high <= MOST_TOKENS or share < 0:
                raise Refused(f"bins read [low, high, share] in rising order up to {MOST_TOKENS:,} tokens, with shares from 0 up")
            before = low
        if sum(share for _, _, share in self.bins) <= 0:
            raise Refused("all shares are 0")
        return self

    @classmethod
    def counted(cls, edges: Sequence[float], counts: Sequence[float], total: float | None = None) -> Self:
        """Of a histogram.

        Args:
            edges: Upper ends of the bins in rising order; one without an end is twice the last.
            counts: How many lie in each.
            total: Sum of all lengths, where it is known.
        """
        number = sum(counts)
        bins, low = [], 0.0
        for high, count in zip(edges, counts, strict=True):
            end = high if math.isfinite(high) else max(2.0 * low, 1.0)
            if count > 0:
                bins.append((low, min(end, float(MOST_TOKENS)), count / number))
            low = end
        fill = MIDDLE
        if total is not None and (room := sum(share * (high - low) for low, high, share in bins)) > 0:
            fill = (total / number - sum(share * low for low, _, share in bins)) / room
        return cls(bins=tuple(bins), fill=min(FILL[1], max(FILL[0], fill)))

    @classmethod
    def of(cls, values: Sequence[float] | NDArray[np.float64]) -> Self:
        """Of single lengths: bins that hold nearly equal shares."""
        ordered = np.sort(np.asarray(values, dtype=float))
        parts = np.array_split(ordered, min(MOST_BINS, len(ordered)))
        bins: list[tuple[float, float, float]] = []
        for part in parts:
            low, high, share = float(part[0]), float(part[-1]), len(part) / len(ordered)
            if bins and bins[-1][:2] == (low, high):
                share += bins.pop()[2]
            bins.append((low, high, share))
        room = sum(share * (high - low) for low, high, share in bins)
        fill = (float(ordered.mean()) - sum(share * low for low, _, share in bins)) / room if room > 0 else MIDDLE
        return cls(bins=tuple(bins), fill=min(FILL[1], max(FILL[0], fill)))

    @property
    def mean(self) -> float:
        total = sum(share for _, _, share in self.bins)
        return sum(share * (low + self.fill * (high - low)) for low, high, share in self.bins) / total

    @property
    def longest(self) -> int:
        return math.ceil(max(high for _, high, share in self.bins if share > 0))

    def at(self, part: float) -> int:
        """The length that this part of all lies below, from 0 to 1; at least one token."""
        left = part * sum(share for _, _, share in self.bins)
        low, high, place = self.bins[-1][0], self.bins[-1][1], 1.0
        for one_low, one_high, share in self.bins:
            if left < share:
                low, high, place = one_low, one_high, left / share
                break
            left -= share
        within = float(place ** (1.0 / self.fill - 1.0))
        return max(1, round(low + (high - low) * within))


__all__ = ["MOST_TOKENS", "Even", "TokenLengths"]

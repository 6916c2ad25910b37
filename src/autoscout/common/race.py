"""For programs that measure: whether a trial can still win, and what its seconds are spent on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from autoscout.core.clock import Clock, RealClock
from autoscout.core.to_beat import ToBeat

Over = Callable[[Mapping[str, float]], bool]
"""Asked with the best that a repeat can still reach: whether it may end."""


class Race:
    """Whether a trial that repeats its measurement can still win: asked after every repeat but the last, and within each.

    Args:
        to_beat: What is to beat; None: it always can.

    Attributes:
        why: Why it cannot win any more; empty while it can.
        bounds: The best that its metrics are likely to reach, once it is lost.
    """

    def __init__(self, to_beat: ToBeat | None) -> None:
        self._to_beat = to_beat
        self.why = ""
        self.bounds: dict[str, float] = {}

    def lost(self, samples: Sequence[Mapping[str, float]], repeats: int = 0) -> bool:
        """By the repeats so far; `why` and `bounds` then say so. What was measured to its end is not bounded."""
        if self._to_beat is None or self.why or not samples or len(samples) == repeats:
            return bool(self.why)
        names = set.intersection(*(set(sample) for sample in samples))
        bounds = self._to_beat.likely({name: [sample[name] for sample in samples] for name in names})
        self.why = self._to_beat.lost(bounds)
        self.bounds = bounds if self.why else {}
        return bool(self.why)

    def over(self, samples: Sequence[Mapping[str, float]]) -> Over:
        """The same while a repeat runs: to be asked with the best that it can still reach."""
        return lambda best: self.lost([*samples, best])


@contextmanager
def timed(spent: dict[str, float], name: str, clock: Clock | None = None) -> Iterator[None]:
    """Add the seconds inside to those of a part (`autoscout.core.trial.SPENT`)."""
    clock = clock or RealClock()
    begun_s = clock.span_s()
    try:
        yield
    finally:
        spent[name] = spent.get(name, 0.0) + clock.span_s() - begun_s


__all__ = ["Over", "Race", "timed"]

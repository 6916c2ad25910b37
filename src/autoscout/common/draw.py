"""From values to places on paper: axes of plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from autoscout.common.text import show
from autoscout.core.config import Value

_MAX_STOPS = 12  # more different numbers than this make a continuous axis


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Maps numbers to places between `start` and `end`, on a linear or a logarithmic axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, margin: float = 0.06) -> Scale:
        """An axis that holds all values, with some air; logarithmic when they span more than a factor of 20."""
        low, high = min(values), max(values)
        log = low > 0 and high / low > 20.0
        if log:
            air = (high / low) ** margin
            return cls(low=low / air, high=high * air, start=start, end=end, log=True)
        air = (high - low) * margin if high > low else abs(high) * 0.05 or 1.0
        return cls(low=low - air, high=high + air, start=start, end=end)

    def place(self, value: float) -> float:
        if self.log:
            part = math.log(max(value, 1e-300) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round numbers on the axis."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if self.high / self.low < 500.0 else (1,)
            marks = [step * 10.0**decade for decade in decades for step in steps]
        else:
            raw = (self.high - self.low) / wanted
            size = 10.0 ** math.floor(math.log10(raw))
            step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= raw)
            marks = [step * i for i in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [mark for mark in marks if self.low <= mark <= self.high]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One vertical axis of a parallel-coordinates plot.

    Attributes:
        name: The knob, or the objective's metric.
        marks: Labels and places along the axis.
        scale: For continuous axes.
        places: For axes of stops: the place of each value.
        absent: Where configurations go that have no value here.
        gaps: Whether there are any.
    """

    name: str
    marks: tuple[tuple[str, float], ...]
    scale: Scale | None = None
    places: dict[str, float] = field(default_factory=dict)
    absent: float = 0.0
    gaps: bool = False

    @classmethod
    def of(cls, name: str, values: Sequence[Value], start: float, end: float, absent: float, *, gaps: bool = False) -> Axis:
        """An axis for the values that occur: a stop for each when they are few or words, else a scale."""
        numbers = [float(value) for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        different = sorted(set(numbers))
        if len(numbers) == len(values) and len(different) > _MAX_STOPS:
            scale = Scale.over(different, start, end, margin=0.0)
            marks = [(f"{mark:g}", scale.place(mark)) for mark in scale.ticks()]
            return cls(name=name, marks=tuple(marks), scale=scale, absent=absent, gaps=gaps)
        if len(numbers) == len(values):
            ordered = sorted({repr(value): value for value in values}.items(), key=lambda item: float(item[1] or 0))
        else:
            ordered = sorted({repr(value): value for value in values}.items(), key=lambda item: show(item[1]))
        count = len(ordered)
        places = {key: start + (end - start) * (i / (count - 1) if count > 1 else 0.5) for i, (key, _) in enumerate(ordered)}
        every = math.ceil(count / _MAX_STOPS)
        marks = [(show(value), places[key]) for i, (key, value) in enumerate(ordered) if i % every == 0]
        return cls(name=name, marks=tuple(marks), places=places, absent=absent, gaps=gaps)

    def place(self, value: Value) -> float:
        if self.scale is not None and isinstance(value, (int, float)):
            return self.scale.place(float(value))
        return self.places.get(repr(value), self.absent)

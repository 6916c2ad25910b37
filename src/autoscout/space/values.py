"""Ordered numbers of a range, lazy where there may be many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, overload

from autoscout.core.config import Value

FRACTION_POINTS = 101


class Steps(Sequence[Value]):
    """`low`, `low + step`, ... as fractions, computed on demand and rounded to the digits of low and step."""

    def __init__(self, low: float, step: float, count: int) -> None:
        self.low, self.step, self.length = low, step, count
        self.digits = max(_digits(low), _digits(step))

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Value, ...]: ...
    def __getitem__(self, index: int | slice) -> Value | tuple[Value, ...]:
        if isinstance(index, slice):
            return tuple(self._at(place) for place in range(*index.indices(self.length)))
        if not -self.length <= index < self.length:
            raise IndexError(index)
        return self._at(index % self.length)

    def _at(self, index: int) -> float:
        return round(self.low + index * self.step, self.digits)

    def find(self, value: object) -> int | None:
        """The index of `value`, without a search."""
        if not isinstance(value, float) or not math.isfinite(value):
            return None
        index = round((value - self.low) / self.step)
        return index if 0 <= index < self.length and self._at(index) == value else None

    def __repr__(self) -> str:
        return f"Steps({self.low}, {self.step}, {self.length})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Steps):
            return (self.low, self.step, self.length) == (other.low, other.step, other.length)
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.low, self.step, self.length))


class Picked(Sequence[Value]):
    """Some values of a long sequence, by position, computed on demand."""

    def __init__(self, values: Sequence[Value], positions: Sequence[int]) -> None:
        self._values, self._positions = values, positions

    def __len__(self) -> int:
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Value]: ...
    def __getitem__(self, index: int | slice) -> Value | Sequence[Value]:
        if isinstance(index, slice):
            return Picked(self._values, self._positions[index])
        return self._values[self._positions[index]]

    def __repr__(self) -> str:
        return f"Picked({self._values!r}, {self._positions!r})"


def linear(low: float, high: float, step: float | None, points: int | None) -> Sequence[Value]:
    """Whole numbers when both ends and the step are whole, else fractions."""
    if points is not None:
        spread = [low + (high - low) * index / (points - 1) for index in range(points)]
        return _tidy(spread, low, high)
    if isinstance(low, int) and isinstance(high, int) and (step is None or float(step).is_integer()):
        return range(low, high + 1, int(step or 1))
    if step is None:
        return linear(low, high, None, FRACTION_POINTS)
    low = float(low)
    return Steps(low, float(step), math.floor((high - low) / step * (1 + 1e-12) + 1e-9) + 1)


def logarithmic(low: float, high: float, base: float | None, points: int | None) -> tuple[Value, ...]:
    """Equal ratios from `low` to `high`, both included."""
    if points is not None:
        spread = [low * (high / low) ** (index / (points - 1)) for index in range(points)]
        return _tidy(spread, low, high)
    ratio = base or 2
    spread = [low]
    while spread[-1] * ratio < high * (1 - 1e-12):
        spread.append(spread[-1] * ratio)
    return _tidy([*spread, high], low, high)


def is_on_grid(values: Sequence[Value], default: float) -> bool:
    """Whether `default` is one of the values of a lazy range."""
    if isinstance(values, Steps):
        return values.find(float(default)) is not None
    return float(default).is_integer() and int(default) in values


def with_default(values: Sequence[Value], default: float) -> Sequence[Value]:
    """The values with `default` among them, in order."""
    whole = isinstance(values[0], int)
    if whole and float(default).is_integer():
        default = int(default)
    if isinstance(values, range) and isinstance(default, int) and default in values:
        return values
    if isinstance(values, Steps) and values.find(float(default)) is not None:
        return values
    numbers: list[Any] = list(values)
    if any(value == default for value in numbers):
        return values
    if whole and isinstance(default, float):
        numbers = [float(value) for value in numbers]
    return tuple(sorted([*numbers, default if whole else float(default)]))


def _tidy(spread: Sequence[float], low: float, high: float) -> tuple[Value, ...]:
    """Whole numbers when both ends are; else twelve significant digits, which hides the rounding of the ratios."""
    if isinstance(low, int) and isinstance(high, int):
        return tuple(sorted({min(high, max(low, round(value))) for value in spread}))
    values = sorted({float(f"{value:.12g}") for value in spread[1:-1] if low < value < high} | {float(low), float(high)})
    return tuple(values)


def _digits(value: float) -> int:
    exponent = Decimal(repr(float(value))).normalize().as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0

"""Bounds of expressions from the bounds of their parts.

Every rule here is safe for rounded arithmetic: rounding never turns an order around, so the rounded results at the corners
bound all rounded results between them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Interval = tuple[float, float]


def interval(op: str, bounds: Sequence[Interval | None], whole: bool) -> Interval | None:
    """Bounds of `op` applied to parts within `bounds`, all of them `whole` numbers or not; None when nothing is known."""
    rule = _RULES.get(op)
    if rule is None or any(bound is None for bound in bounds) or (op in ("floordiv", "mod") and not whole):
        return None
    try:
        low, high = rule([bound for bound in bounds if bound is not None]) or (-math.inf, math.inf)
    except OverflowError:
        return None
    return None if low == -math.inf or high == math.inf or low != low or high != high else (low, high)


def has_bounds(op: str) -> bool:
    """Whether there is a rule for the bounds of an operator at all."""
    return op in _RULES


def _add(bounds: Sequence[Interval]) -> Interval | None:
    low, high = bounds[0]
    for other in bounds[1:]:
        low, high = low + other[0], high + other[1]
    return low, high


def _mul(bounds: Sequence[Interval]) -> Interval | None:
    low, high = bounds[0]
    for other in bounds[1:]:
        corners = (low * other[0], low * other[1], high * other[0], high * other[1])
        low, high = min(corners), max(corners)
    return low, high


def _sub(bounds: Sequence[Interval]) -> Interval | None:
    return bounds[0][0] - bounds[1][1], bounds[0][1] - bounds[1][0]


def _neg(bounds: Sequence[Interval]) -> Interval | None:
    return -bounds[0][1], -bounds[0][0]


def _abs(bounds: Sequence[Interval]) -> Interval | None:
    low, high = bounds[0]
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


def _min(bounds: Sequence[Interval]) -> Interval | None:
    return min(bound[0] for bound in bounds), min(bound[1] for bound in bounds)


def _max(bounds: Sequence[Interval]) -> Interval | None:
    return max(bound[0] for bound in bounds), max(bound[1] for bound in bounds)


def _either(bounds: Sequence[Interval]) -> Interval | None:
    return min(bounds[1][0], bounds[2][0]), max(bounds[1][1], bounds[2][1])


def _div(bounds: Sequence[Interval]) -> Interval | None:
    (low, high), (least, most) = bounds
    if least <= 0 <= most:
        return None
    corners = (low / least, low / most, high / least, high / most)
    return min(corners), max(corners)


def _floordiv(bounds: Sequence[Interval]) -> Interval | None:
    (low, high), (least, most) = bounds
    if least <= 0 <= most:
        return None
    corners = (low // least, low // most, high // least, high // most)
    return min(corners), max(corners)


def _mod(bounds: Sequence[Interval]) -> Interval | None:
    (low, high), (least, most) = bounds
    if least <= 0:
        return None
    return (low, high) if low >= 0 and high < least else (0, most - 1)


def _le(bounds: Sequence[Interval]) -> Interval | None:
    (low, high), (least, most) = bounds
    return float(high <= least), float(low <= most)


def _lt(bounds: Sequence[Interval]) -> Interval | None:
    (low, high), (least, most) = bounds
    return float(high < least), float(low < most)


def _eq(bounds: Sequence[Interval]) -> Interval | None:
    (low, high), (least, most) = bounds
    return float(low == high == least == most), float(low <= most and least <= high)


def _ne(bounds: Sequence[Interval]) -> Interval | None:
    low, high = _eq(bounds) or (0, 1)
    return 1 - high, 1 - low


def truth(bound: Interval) -> Interval:
    """Bounds of the truth of a number: 0 is false, all else is true."""
    low, high = bound
    return float(low > 0 or high < 0), float(low != 0 or high != 0)


def _and(bounds: Sequence[Interval]) -> Interval | None:
    return _min([truth(bound) for bound in bounds])


def _or(bounds: Sequence[Interval]) -> Interval | None:
    return _max([truth(bound) for bound in bounds])


def _not(bounds: Sequence[Interval]) -> Interval | None:
    low, high = truth(bounds[0])
    return 1 - high, 1 - low


_RULES = {
    "and": _and,
    "or": _or,
    "not": _not,
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "neg": _neg,
    "abs": _abs,
    "min": _min,
    "max": _max,
    "if": _either,
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "le": _le,
    "lt": _lt,
    "eq": _eq,
    "ne": _ne,
}

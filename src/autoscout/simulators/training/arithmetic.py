"""Arithmetic of one number or of many: plain floats cost a tenth of arrays of one, and searchers ask one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = Any
"""A float or a float64 array; whichever is given, the functions here answer in kind."""


def has_any(condition: Array) -> bool:
    """Whether it holds anywhere."""
    return bool(condition.any()) if isinstance(condition, np.ndarray) else bool(condition)


def where(condition: Array, one: Array, other: Array) -> Array:
    """`one` where it holds, else `other`; both are computed either way."""
    return np.where(condition, one, other) if isinstance(condition, np.ndarray) else (one if condition else other)


def larger(one: Array, other: Array) -> Array:
    """The larger of two, element by element."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return one if one >= other else other


def smaller(one: Array, other: Array) -> Array:
    """The smaller of two, element by element."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return one if one <= other else other


def ceil(value: Array) -> Array:
    """Rounded up."""
    return np.ceil(value) if isinstance(value, np.ndarray) else float(math.ceil(value))


def floor(value: Array) -> Array:
    """Rounded down."""
    return np.floor(value) if isinstance(value, np.ndarray) else float(math.floor(value))


def sqrt(value: Array) -> Array:
    """Square root."""
    return np.sqrt(value) if isinstance(value, np.ndarray) else math.sqrt(value)


def log2(value: Array) -> Array:
    """Logarithm to base 2."""
    return np.log2(value) if isinstance(value, np.ndarray) else math.log2(value)


__all__ = ["Array", "ceil", "floor", "has_any", "larger", "log2", "smaller", "sqrt", "where"]

"""A rule over one variable, tested on all values of a large domain at once.

Only where the arithmetic of arrays gives exactly what plain Python gives: numbers below 2**53, no part that can fail, and
no operator (powers, logarithms, remainders of fractions) that rounds differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.space.algebra import LOGIC, Node

_EXACT = float(2**53)
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "sub": np.subtract,
    "div": np.true_divide,
    "neg": np.negative,
    "abs": np.abs,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
}
_FOLDED: dict[str, Callable[..., Any]] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}
_WHOLE_ONLY: dict[str, Callable[..., Any]] = {"floordiv": np.floor_divide, "mod": np.mod}


def satisfying(rule: Node, domain: NDArray[Any]) -> list[int] | None:
    """Positions of `domain` at which a total rule of one variable holds; None when that cannot be told this way."""
    if not rule.total:
        return None
    truth = _value(rule, domain)
    if truth is None:
        return None
    holds = np.broadcast_to(np.asarray(truth) != 0, domain.shape)
    return np.nonzero(holds)[0].tolist()


def as_array(values: Sequence[Any]) -> NDArray[Any]:
    """A numeric domain as an array that keeps whole numbers whole."""
    if isinstance(values, range):
        return np.arange(values.start, values.stop, values.step, dtype=np.int64)
    whole = all(isinstance(value, int) for value in values)
    return np.asarray(list(values), dtype=np.int64 if whole else np.float64)


def _value(node: Node, domain: NDArray[Any]) -> Any:
    if node.bound is None or max(-node.bound[0], node.bound[1]) >= _EXACT or not node.total:
        return None
    if node.op == "constant":
        return int(node.value) if isinstance(node.value, int) else node.value
    if node.op == "sure variable":
        return domain
    args = [_value(arg, domain) for arg in node.args]
    if any(arg is None for arg in args):
        return None
    return _applied(node, args)


def _applied(node: Node, args: list[Any]) -> Any:
    op = node.op
    if op in LOGIC:
        return _logic(op, args)
    if op in _FOLDED:
        return reduce(_FOLDED[op], args)
    if op in _ELEMENTWISE:
        return _ELEMENTWISE[op](*args)
    if op in _WHOLE_ONLY and all(arg.whole for arg in node.args):
        return _WHOLE_ONLY[op](*args)
    if op == "if":
        return np.where(np.asarray(args[0]) != 0, args[1], args[2])
    return None


def _logic(op: str, args: list[Any]) -> Any:
    """Truth as 0 and 1 in 64 bits, so that sums of comparisons count them."""
    if op in ("and", "or"):
        truths = [np.asarray(arg) != 0 for arg in args]
        result = reduce(np.logical_and if op == "and" else np.logical_or, truths)
    elif op == "not":
        result = np.asarray(args[0]) == 0
    elif op == "in":
        result = reduce(np.logical_or, [np.equal(args[0], item) for item in args[1:]], np.zeros(np.shape(args[0]), dtype=bool))
    elif op in _ELEMENTWISE:
        result = _ELEMENTWISE[op](*args)
    else:
        return None
    return np.asarray(result, dtype=np.int64)

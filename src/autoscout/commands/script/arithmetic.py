"""Arithmetic of shells on whole numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

LARGEST = 2**63
LONGEST = 2000  # characters of one expression
_RULES: dict[type[ast.AST], Callable[[Any, Any], int]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.FloorDiv: lambda left, right: int(left / right) if abs(left) < 2**52 else left // right,
    ast.Mod: lambda left, right: left - right * int(left / right) if abs(left) < 2**52 else left % right,
    ast.LShift: lambda left, right: left << right if 0 <= right < 63 else 0,
    ast.RShift: lambda left, right: left >> right if 0 <= right < 63 else 0,
    ast.BitAnd: lambda left, right: left & right,
    ast.BitOr: lambda left, right: left | right,
    ast.BitXor: lambda left, right: left ^ right,
    ast.Pow: lambda left, right: left**right if 0 <= right < 64 and abs(left) < 2**16 else 0,
    ast.Lt: lambda left, right: left < right,
    ast.LtE: lambda left, right: left <= right,
    ast.Gt: lambda left, right: left > right,
    ast.GtE: lambda left, right: left >= right,
    ast.Eq: lambda left, right: left == right,
    ast.NotEq: lambda left, right: left != right,
}


def computed(text: str, lookup: Callable[[str], int | None]) -> int | None:
    """The value of an expression; None where it is not determined or not understood.

    Args:
        text: The expression, without its brackets; `$name` is expanded already.
        lookup: The value of a variable; None where it has none that is a number.
    """
    if len(text) > LONGEST:
        return None
    python = re.sub(r"&&", " and ", text).replace("||", " or ")
    python = re.sub(r"!(?!=)", " not ", python)
    python = re.sub(r"(?<!/)/(?!/)", "//", python)
    python = re.sub(r"\b0+(?=\d)", "", python)
    if match := re.fullmatch(r"([^?]+)\?([^:]+):(.+)", python, re.DOTALL):
        python = f"({match[2]}) if ({match[1]}) else ({match[3]})"
    try:
        tree = ast.parse(python.strip() or "0", mode="eval")
        return _value(tree.body, lookup)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError, OverflowError):
        return None


def _value(node: ast.expr, lookup: Callable[[str], int | None]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return _bounded(node.value)
    if isinstance(node, ast.Name):
        value = lookup(node.id)
        if value is None:
            raise ValueError
        return value
    if isinstance(node, ast.BinOp) and type(node.op) in _RULES:
        return _bounded(_RULES[type(node.op)](_value(node.left, lookup), _value(node.right, lookup)))
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _RULES:
        return int(_RULES[type(node.ops[0])](_value(node.left, lookup), _value(node.comparators[0], lookup)))
    if isinstance(node, ast.BoolOp):
        values = [bool(_value(part, lookup)) for part in node.values]
        return int(all(values) if isinstance(node.op, ast.And) else any(values))
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, lookup)
        if isinstance(node.op, ast.Not):
            return int(not inner)
        return -inner if isinstance(node.op, ast.USub) else ~inner if isinstance(node.op, ast.Invert) else inner
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, lookup) else node.orelse, lookup)
    raise ValueError


def _bounded(value: int) -> int:
    if abs(value) >= LARGEST:
        raise OverflowError
    return value


__all__ = ["computed"]

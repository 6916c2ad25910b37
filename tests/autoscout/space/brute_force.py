"""An independent, slow reading of spaces: Python's own parser, four-valued logic by hand, the full product of the values."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from autoscout.core.config import Config
from autoscout.space import Space

MISSING, BROKEN = "<missing>", "<broken>"
_ORDER = [False, BROKEN, MISSING, True]
_COMPARE: dict[type, Callable[..., Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, found: item in found,
    ast.NotIn: lambda item, found: item not in found,
}
_ARITHMETIC: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def truth(value: Any) -> Any:
    return value if value in (MISSING, BROKEN) and isinstance(value, str) else bool(value)


def mark(value: Any) -> bool:
    return isinstance(value, str) and value in (MISSING, BROKEN)


@cache
def tree(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def read(text: str, values: Mapping[str, Any]) -> Any:
    return _read(tree(text), values)


def _read(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return values.get(node.id, MISSING)
    if isinstance(node, ast.BoolOp):
        found = [_ORDER.index(truth(_read(part, values))) for part in node.values]
        return _ORDER[min(found) if isinstance(node.op, ast.And) else max(found)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = truth(_read(node.operand, values))
        return inner if mark(inner) else not inner
    if isinstance(node, ast.IfExp):
        chosen = _read(node.test, values)
        return chosen if mark(chosen) else _read(node.body if chosen else node.orelse, values)
    if isinstance(node, ast.Compare):
        return _compare(node, values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "active":
        return _read(node.args[0], values) != MISSING
    return _strict(node, values)


def _compare(node: ast.Compare, values: Mapping[str, Any]) -> Any:
    parts = [node.left, *node.comparators]
    links = []
    for op, left, right in zip(node.ops, parts, parts[1:], strict=False):
        items = right.elts if isinstance(right, ast.Tuple) else [right]
        sides = [_read(left, values), *(_read(item, values) for item in items)]
        if MISSING in [side for side in sides if mark(side)]:
            links.append(MISSING)
        elif any(mark(side) for side in sides):
            links.append(BROKEN)
        else:
            links.append(_plain(op, sides, isinstance(right, ast.Tuple)))
    return _ORDER[min(_ORDER.index(link) for link in links)]


def _plain(op: ast.cmpop, sides: list[Any], listed: bool) -> Any:
    left, right = sides[0], sides[1:] if listed else sides[1]
    try:
        return _COMPARE[type(op)](left, right)
    except TypeError:
        return BROKEN


def _strict(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.BinOp):
        args, function = [node.left, node.right], _ARITHMETIC[type(node.op)]
    elif isinstance(node, ast.UnaryOp):
        args, function = [node.operand], operator.neg
    else:
        assert isinstance(node, ast.Call), ast.dump(node)
        assert isinstance(node.func, ast.Name)
        args, function = node.args, {"min": min, "max": max, "abs": abs}[node.func.id]
    found = [_read(arg, values) for arg in args]
    marks = [value for value in found if mark(value)]
    if marks:
        return MISSING if MISSING in marks else BROKEN
    if any(isinstance(value, str) or value is None for value in found):
        return BROKEN
    try:
        return function(*found)
    except (ArithmeticError, ValueError):
        return BROKEN


def valid(space: Space, config: Mapping[str, Any]) -> bool:
    """Whether a configuration is valid, by definition."""
    seen = dict(space.facts)
    for name, knob in space.knobs.items():
        active = knob.when is None or truth(read(knob.when, seen)) is True
        if active != (name in config):
            return False
        if active:
            seen[name] = config[name]
    for constraint in space.constraints:
        assert isinstance(constraint.rule, str)
        found = truth(read(constraint.rule, seen))
        if found is False or found == BROKEN or (constraint.strict and found == MISSING):
            return False
    return True


def everything(space: Space) -> list[Config]:
    """All valid configurations, from the full product of the values and of being absent."""
    domains = [[*knob.values, *([MISSING] if knob.when is not None else [])] for knob in space.knobs.values()]
    found = []
    for values in itertools.product(*domains):
        config = {name: value for name, value in zip(space.knobs, values, strict=True) if not mark(value)}
        if valid(space, config):
            found.append(Config(config))
    return found

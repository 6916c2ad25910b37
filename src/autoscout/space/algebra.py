"""Expressions as shared, simplified nodes that can be filled in bit by bit.

A `Table` holds every node once, so two partial assignments that leave the same question open (`8 * cp * dp == 64`) share
one node: this is what lets the solver count and look ahead without listing the product of the knobs. Filling in a value
folds constants, and whole numbers are also put into a normal form (sums and products are flattened and sorted); arithmetic
with fractions keeps the order in which it was written, so that the rounding is that of the plain expression.

Truth has four values, `False < FAILED < UNDEFINED < True`: a part that reads an inactive knob is UNDEFINED, one that cannot
be computed (division by zero, text times number) is FAILED; `and` takes the least, `or` the greatest, `not` mirrors the
two ends. A constraint holds when it is UNDEFINED or True, a condition only when it is True.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from autoscout.space.interval import Interval, interval
from autoscout.space.values import Steps


class _Mark:
    """A value beyond the values."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


UNDEFINED: Final = _Mark("undefined")  # reads an inactive knob
FAILED: Final = _Mark("failed")  # cannot be computed
_RANK = {FAILED: 1, UNDEFINED: 2}
_BY_RANK = (False, FAILED, UNDEFINED, True)

MAX_POWER_BITS = 1024


def _number(*values: Any) -> None:
    for value in values:
        if not isinstance(value, (int, float)):
            raise TypeError(f"{value!r} is not a number")


def _arithmetic(function: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*values: Any) -> Any:
        _number(*values)
        return function(*values)

    return checked


def _power(base: Any, exponent: Any) -> Any:
    _number(base, exponent)
    if abs(exponent) > 1 and abs(base) > 1 and abs(exponent) * math.log2(abs(base)) > MAX_POWER_BITS:
        raise OverflowError("the power is too large")
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("the root of a negative number")
    return result


def _contains(item: Any, *others: Any) -> bool:
    return any(item == other for other in others)


def _within(part: Any, text: Any) -> bool:
    if not isinstance(part, str) or not isinstance(text, str):
        raise TypeError("'in' needs a list, or text in text")
    return part in text


def _fold(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def folded(*values: Any) -> Any:
        total = values[0]
        for value in values[1:]:
            total = function(total, value)
        return total

    return folded


STRICT: dict[str, Callable[..., Any]] = {
    "add": _arithmetic(_fold(operator.add)),
    "sub": _arithmetic(operator.sub),
    "mul": _arithmetic(_fold(operator.mul)),
    "div": _arithmetic(operator.truediv),
    "floordiv": _arithmetic(operator.floordiv),
    "mod": _arithmetic(operator.mod),
    "neg": _arithmetic(operator.neg),
    "pow": _power,
    "abs": _arithmetic(abs),
    "min": _arithmetic(min),
    "max": _arithmetic(max),
    "round": _arithmetic(round),
    "floor": _arithmetic(math.floor),
    "ceil": _arithmetic(math.ceil),
    "log2": _arithmetic(math.log2),
    "sqrt": _arithmetic(math.sqrt),
    "gcd": math.gcd,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "in": _contains,
    "within": _within,
}
"""Operators whose result is UNDEFINED or FAILED as soon as an argument is."""

LOGIC = frozenset({"eq", "ne", "lt", "le", "in", "within", "and", "or", "not", "active", "holds", "sure"})
_WHOLE = frozenset({"add", "sub", "mul", "floordiv", "mod", "neg", "abs", "min", "max", "if"})
_ALWAYS_WHOLE = LOGIC | {"floor", "ceil", "gcd"}
_NEVER_MARKED = frozenset({"holds", "sure", "active"})
_NEVER_FAILS = frozenset({"eq", "ne", "in", "and", "or", "not", "if"})


def compute(op: str, values: Sequence[Any], function: Callable[..., Any] | None = None) -> Any:
    """The result of one operator on plain values, UNDEFINED and FAILED among them."""
    if op in ("and", "or"):
        ranks = [_rank(value) for value in values]
        return _BY_RANK[min(ranks) if op == "and" else max(ranks)]
    first = values[0] if values else None
    if op == "not":
        return first if isinstance(first, _Mark) else not first
    if op == "if":
        return first if isinstance(first, _Mark) else values[1] if first else values[2]
    if op == "holds":
        return _rank(first) >= 2
    if op == "sure":
        return _rank(first) == 3
    if op == "active":
        return first is not UNDEFINED
    for mark in (UNDEFINED, FAILED):
        if any(value is mark for value in values):
            return mark
    try:
        result = (function or STRICT[op])(*values)
    except (ArithmeticError, TypeError, ValueError) as error:
        if function is not None and not isinstance(error, ArithmeticError):
            raise
        return FAILED
    if isinstance(result, float) and not math.isfinite(result):
        return FAILED
    return bool(result) if function is not None else result


def _rank(value: Any) -> int:
    if isinstance(value, _Mark):
        return _RANK[value]
    return 3 if value else 0


class Node:
    """One shared expression. Compare by identity; make them only through a `Table`."""

    __slots__ = ("args", "bound", "filled", "function", "number", "op", "total", "value", "variables", "whole")

    def __init__(self, op: str, args: tuple[Node, ...], value: Any, number: int, function: Callable[..., Any] | None = None) -> None:
        self.op = op
        self.args = args
        self.value = value  # of a constant; index of a variable
        self.number = number  # order of birth: a stable sort key
        self.function = function
        self.variables = 0  # bit set of the variables inside
        for arg in args:
            self.variables |= arg.variables
        self.total = False  # never UNDEFINED or FAILED
        self.whole = False  # an int or a bool whenever it is a number at all, and always a number
        self.bound: Interval | None = None
        self.filled: dict[tuple[int, int], Node] = {}

    def __repr__(self) -> str:
        if self.op == "constant":
            return repr(self.value)
        if self.op in ("variable", "sure variable"):
            return f"#{self.value}"
        return f"{self.op}({', '.join(map(repr, self.args))})"

    @property
    def constant(self) -> bool:
        return self.op == "constant"


INACTIVE: Final = -1
ACTIVE: Final = -2
"""Instead of a position in its domain: the variable has no value; it will have some value, so what reads it is defined."""


class Table:
    """All nodes of one space, and the domains their variables range over."""

    def __init__(self, domains: Sequence[Sequence[Any]]) -> None:
        self._domains = domains
        self._nodes: dict[Any, Node] = {}
        self._born = 0
        self.true = self.constant(True)
        self.false = self.constant(False)
        self.undefined = self.constant(UNDEFINED)
        self._constants = dict(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)

    def forget(self) -> None:
        """Drop all shared nodes but the basic ones. Nodes still held elsewhere stay right, they are only shared less."""
        for node in list(self._nodes.values()):
            node.filled = {}
        self._nodes = dict(self._constants)

    def constant(self, value: Any) -> Node:
        key = (value.__class__, value)
        node = self._nodes.get(key)
        if node is None:
            node = self._new("constant", (), value)
            node.total = not isinstance(value, _Mark)
            node.whole = isinstance(value, int)
            if isinstance(value, (int, float)):
                node.bound = (value, value)
            self._nodes[key] = node
        return node

    def variable(self, index: int, *, sure: bool) -> Node:
        op = "sure variable" if sure else "variable"
        key = (op, index)
        node = self._nodes.get(key)
        if node is None:
            node = self._new(op, (), index)
            node.variables = 1 << index
            node.total = sure
            domain = self._domains[index]
            node.bound, node.whole = _domain_bound(domain)
            self._nodes[key] = node
        return node

    def texts(self) -> set[str]:
        """All text that variables may hold."""
        short = [domain for domain in self._domains if isinstance(domain, tuple)]
        return {value for domain in short for value in domain if isinstance(value, str)}

    def is_text(self, node: Node) -> bool:
        """Whether the node is a constant or a variable that never holds anything but text."""
        if node.op == "constant":
            return isinstance(node.value, str)
        if node.op in ("variable", "sure variable"):
            domain = self._domains[node.value]
            return not isinstance(domain, (range, Steps)) and all(isinstance(value, str) for value in domain)
        return False

    def function(self, function: Callable[..., Any], args: Iterable[Node]) -> Node:
        return self._make("function", tuple(args), function)

    def _new(self, op: str, args: tuple[Node, ...], value: Any, function: Callable[..., Any] | None = None) -> Node:
        self._born += 1
        return Node(op, args, value, self._born, function)

    def make(self, op: str, args: Sequence[Node]) -> Node:
        """The node for an operator on nodes, simplified."""
        if op in ("gt", "ge"):
            return self.make("lt" if op == "gt" else "le", args[::-1])
        if op in ("and", "or"):
            return self._junction(op, args)
        if op in ("sub", "neg") and all(arg.whole for arg in args):
            minus = self.make("mul", (self.constant(-1), args[-1]))
            return minus if op == "neg" else self.make("add", (args[0], minus))
        if op in ("add", "mul") and all(arg.whole for arg in args):
            return self._flat(op, args)
        if op in ("eq", "le", "lt") and all(arg.whole for arg in args):
            return self._compare(op, args[0], args[1])
        return self._make(op, tuple(args))

    def _make(self, op: str, args: tuple[Node, ...], function: Callable[..., Any] | None = None) -> Node:
        if all(arg.op == "constant" for arg in args):
            return self.constant(compute(op, [arg.value for arg in args], function))
        simpler = self._simpler(op, args)
        if simpler is not None:
            return simpler
        key = (op, args, function)
        node = self._nodes.get(key)
        if node is not None:
            return node
        node = self._new(op, args, None, function)
        node.bound = interval(op, [arg.bound for arg in args], all(arg.whole for arg in args))
        node.total = op in _NEVER_MARKED or (
            all(arg.total for arg in args) and (op in _NEVER_FAILS or _is_computable(op, args, node.bound))
        )
        node.whole = op in _ALWAYS_WHOLE or (op in _WHOLE and all(arg.whole for arg in (args[1:] if op == "if" else args)))
        if op in LOGIC:
            low, high = node.bound = node.bound or (0, 1)
            if low == high and node.total:
                node = self.constant(bool(low))
        self._nodes[key] = node
        return node

    def _simpler(self, op: str, args: tuple[Node, ...]) -> Node | None:
        """A node that means the same and is known to be smaller, if there is one."""
        first = args[0]
        if op in ("holds", "sure"):
            return self._settled(op, first)
        if op == "active":
            return self.true if first.total else None
        if op == "not":
            return first.args[0] if first.op == "not" and first.args[0].op in LOGIC else None
        if op == "if":
            if first.op != "constant":
                return args[1] if args[1] is args[2] and first.total else None
            return first if isinstance(first.value, _Mark) else args[1] if first.value else args[2]
        if op == "in":
            return self._member(args)
        strict = op not in ("and", "or")
        return self.undefined if strict and any(arg is self.undefined for arg in args) else None

    def _settled(self, op: str, inner: Node) -> Node | None:
        if inner.total and inner.op in LOGIC:
            return inner
        if inner.op == "or" and inner.args[-1] is self.undefined:
            return self.true if op == "holds" else self.make(op, (self.make("or", inner.args[:-1]),))
        if inner.op == "and" and inner.args[-1] is self.undefined:
            return self.false if op == "sure" else self.make(op, (self.make("and", inner.args[:-1]),))
        return None

    def _member(self, args: tuple[Node, ...]) -> Node | None:
        """`x in (1, 2, 3)` less the items that x can never reach."""
        if any(arg is self.undefined for arg in args):
            return self.undefined
        item = args[0]
        if any(arg.op == "constant" and isinstance(arg.value, _Mark) for arg in args):
            return None
        if item.op == "constant" or item.bound is None or not all(arg.op == "constant" for arg in args[1:]):
            return None
        low, high = item.bound
        reachable = tuple(arg for arg in args[1:] if isinstance(arg.value, (int, float)) and low <= arg.value <= high)
        if len(reachable) == len(args) - 1:
            return None
        if not reachable:
            return self.false if item.total else None
        return self._make("in", (item, *reachable))

    def _junction(self, op: str, args: Sequence[Node]) -> Node:
        """`and` and `or`: flattened, without doubles, sorted, and decided as soon as one part decides."""
        decides, neutral = (0, 3) if op == "and" else (3, 0)
        parts: dict[Node, None] = {}
        mark = neutral
        for arg in args:
            for part in arg.args if arg.op == op else (arg,):
                if part.op != "constant":
                    parts[part] = None
                    continue
                rank = _rank(part.value)
                if rank == decides:
                    return self.constant(op == "or")
                mark = min(mark, rank) if op == "and" else max(mark, rank)
        nodes = sorted(parts, key=lambda node: node.number)
        if mark != neutral or not nodes:
            nodes.append(self.constant(_BY_RANK[mark]))
        if len(nodes) == 1:
            return nodes[0] if nodes[0].op == "constant" or nodes[0].op in LOGIC else self._truth(nodes[0])
        return self._make(op, tuple(nodes))

    def _truth(self, node: Node) -> Node:
        return self._make("not", (self._make("not", (node,)),))

    def _flat(self, op: str, args: Sequence[Node]) -> Node:
        """A sum or product of whole numbers: constant first, the rest sorted, nested ones taken apart."""
        constant, parts = (0 if op == "add" else 1), []
        for arg in args:
            for part in arg.args if arg.op == op else (arg,):
                if part.op == "constant":
                    constant = constant + part.value if op == "add" else constant * part.value
                else:
                    parts.append(part)
        if not parts:
            return self.constant(int(constant))
        parts.sort(key=lambda node: node.number)
        if op == "mul" and constant == 0 and all(part.total for part in parts):
            return self.constant(0)
        if op == "mul" and constant != 1 and len(parts) == 1 and parts[0].op == "add":
            return self._flat("add", [self._flat("mul", (self.constant(int(constant)), term)) for term in parts[0].args])
        if constant != (0 if op == "add" else 1):
            parts.insert(0, self.constant(int(constant)))
        return self._make(op, tuple(parts)) if len(parts) > 1 else parts[0]

    def _compare(self, op: str, left: Node, right: Node) -> Node:
        """A comparison of whole numbers: what varies on the left, one constant on the right, common factors divided out."""
        if op == "lt":
            op, right = "le", self.make("add", (right, self.constant(-1)))
        if right.op != "constant":
            left, right = self._flat("add", (left, self._flat("mul", (self.constant(-1), right)))), self.constant(0)
        limit = right.value
        if left.op == "add" and left.args[0].op == "constant":
            limit -= left.args[0].value
            left = self._flat("add", left.args[1:])
        if left.op == "mul" and left.args[0].op == "constant" and left.args[0].value != 0:
            factor = left.args[0].value
            if op == "le":
                limit //= abs(factor)
                left = self._flat("mul", (self.constant(1 if factor > 0 else -1), *left.args[1:]))
            elif limit % factor == 0:
                limit //= factor
                left = self._flat("mul", left.args[1:])
            elif left.total:
                return self.false
        return self._make(op, (left, self.constant(limit)))

    def fill(self, node: Node, index: int, position: int) -> Node:
        """The node once variable `index` takes the value at `position` of its domain, or is INACTIVE, or is ACTIVE."""
        if not node.variables >> index & 1:
            return node
        key = (index, position)
        filled = node.filled.get(key)
        if filled is None:
            filled = node.filled[key] = self._filled(node, index, position)
        return filled

    def _filled(self, node: Node, index: int, position: int) -> Node:
        if node.op in ("variable", "sure variable"):
            if position == ACTIVE:
                return self.variable(index, sure=True)
            return self.undefined if position == INACTIVE else self.constant(self._domains[index][position])
        args = [self.fill(arg, index, position) for arg in node.args]
        if node.function is not None:
            return self._make(node.op, tuple(args), node.function)
        return self.make(node.op, args)


def evaluate(node: Node, values: Mapping[int, Any]) -> Any:
    """The value of a node when variable i holds `values[i]` (UNDEFINED for an inactive one)."""
    op = node.op
    if op == "constant":
        return node.value
    if op in ("variable", "sure variable"):
        return values[node.value]
    return compute(op, [evaluate(arg, values) for arg in node.args], node.function)


def predicate_of(rule: Node, index: int) -> Callable[[Any], bool]:
    """The truth of a rule that reads variable `index` alone, as a function of its value."""
    inner = rule.args[0] if rule.op == "holds" else rule
    function = inner.function
    if function is None or any(arg.variables and not arg.op.endswith("variable") for arg in inner.args):
        return lambda value: bool(evaluate(rule, {index: value}))
    plain = [arg.value for arg in inner.args]
    places = [place for place, arg in enumerate(inner.args) if arg.variables]

    def is_true(value: Any) -> bool:
        for place in places:
            plain[place] = value
        try:
            return bool(function(*plain))
        except ArithmeticError:
            return False

    return is_true


def _domain_bound(domain: Sequence[Any]) -> tuple[Interval | None, bool]:
    if isinstance(domain, (range, Steps)):
        return (domain[0], domain[-1]), isinstance(domain, range)  # type: ignore[return-value]
    numbers = all(isinstance(value, (int, float)) for value in domain)
    if not numbers or not len(domain):
        return None, False
    return (min(domain), max(domain)), all(isinstance(value, int) for value in domain)


def _is_computable(op: str, args: tuple[Node, ...], bound: Interval | None) -> bool:
    """Whether the operator gives a finite number whatever its parts are within their bounds."""
    if any(arg.bound is None for arg in args):
        return False
    if op in ("lt", "le"):
        return True
    if op in ("div", "floordiv", "mod"):
        low, high = args[1].bound or (0, 0)
        return bound is not None and (low > 0 or high < 0)
    return bound is not None

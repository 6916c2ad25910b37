"""Constraints: an expression or a Python function that a valid configuration must satisfy."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscout.common.text import suggestion
from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.space.algebra import FAILED, UNDEFINED, Node, Table, compute
from autoscout.space.parser import Syntax, parse, refuse

Rule = str | Callable[..., Any]
_ARITHMETIC = frozenset(
    {"add", "sub", "mul", "div", "floordiv", "mod", "neg", "pow", "abs", "min", "max", "round", "floor", "ceil", "log2", "sqrt", "gcd"}
)
_ORDER = frozenset({"lt", "le", "gt", "ge"})


@dataclass(frozen=True)
class Constraint:
    """What must hold.

    A part of an expression that reads an inactive knob is undefined, and a constraint that comes out undefined is not
    enforced; neither is a function one of whose arguments is inactive. A constraint that cannot be computed for some values
    (division by zero) is broken there.

    Attributes:
        rule: An expression, or a function whose argument names are the knobs and facts it reads (those with a default
            value are left alone).
        why: The reason, shown when it is broken.
        strict: Broken, instead of not enforced, where undefined. Conditions of pinned knobs are.
    """

    rule: Rule
    why: str = ""
    strict: bool = False
    where: str = field(default="", compare=False)  # file:line, for messages

    @property
    def text(self) -> str:
        """The rule as a person should see it."""
        if isinstance(self.rule, str):
            return self.rule
        name = getattr(self.rule, "__name__", type(self.rule).__name__)
        return f"{name}({', '.join(self.names())})"

    def names(self) -> tuple[str, ...]:
        """The knobs and facts it reads, each once, in order of appearance."""
        if isinstance(self.rule, str):
            return tuple(dict.fromkeys(name for name, _ in parse(self.rule).names()))
        try:
            parameters = inspect.signature(self.rule).parameters.values()
        except (TypeError, ValueError) as error:
            raise SpaceError(Fault(rule="a constraint must be text or a function with named arguments", value=repr(self.rule))) from error
        read = [parameter for parameter in parameters if parameter.default is parameter.empty]
        if any(parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in read):
            raise SpaceError(Fault(rule="a constraint takes plain arguments: no stars, no keyword-only ones", value=repr(self.rule)))
        return tuple(parameter.name for parameter in read)

    def node(self, table: Table, scope: Mapping[str, Node]) -> Node:
        """The rule over the variables and facts of `scope`.

        Raises:
            SpaceError: it reads a name that is not there, or does sums with text.
        """
        if isinstance(self.rule, str):
            return build(self.rule, table, scope)
        unknown = [name for name in self.names() if name not in scope]
        if unknown:
            rule = f"the function reads {unknown[0]!r}, which is neither a knob nor a fact"
            raise SpaceError(Fault(rule=rule, value=self.text, fix=suggestion(unknown[0], scope)))
        return table.function(self.rule, [scope[name] for name in self.names()])

    def identity(self) -> str:
        """Text that is equal for equal constraints, across processes."""
        if isinstance(self.rule, str):
            return self.rule
        try:
            body = inspect.getsource(self.rule)
        except (OSError, TypeError):
            body = ""
        code = getattr(self.rule, "__code__", None)
        if code is not None:  # two lambdas may share their lines, and what they close over is not in the source
            cells = [repr(cell.cell_contents) for cell in getattr(self.rule, "__closure__", None) or ()]
            body += repr((code.co_code, code.co_names, [const for const in code.co_consts if not hasattr(const, "co_code")], cells))
        return f"{self.text} {hashlib.sha256(body.encode()).hexdigest()}"


def meant(name: str, names: Iterable[str], texts: Iterable[Value] = ()) -> str:
    """Advice for a name that an expression reads and nobody declared; it may be text that lacks its quotes."""
    if name in [text for text in texts if isinstance(text, str)]:
        return f"Text needs quotes: '{name}'"
    return suggestion(name, names)


def build(text: str, table: Table, scope: Mapping[str, Node]) -> Node:
    """The node of an expression over the names of `scope`."""
    return _build(parse(text), text, table, scope)


def value_of(syntax: Syntax, values: Mapping[str, Any]) -> Any:
    """What an expression comes to under given values; UNDEFINED for a name without one, FAILED where it cannot be computed."""
    if syntax.op == "constant":
        return syntax.value
    if syntax.op == "name":
        return values.get(str(syntax.value), UNDEFINED)
    args = [value_of(arg, values) for arg in syntax.args]
    op = syntax.op
    if op in ("gt", "ge"):
        return compute("lt" if op == "gt" else "le", args[::-1])
    return compute("within" if op == "in" and not syntax.value else op, args)


def _build(syntax: Syntax, text: str, table: Table, scope: Mapping[str, Node]) -> Node:
    if syntax.op == "constant":
        return table.constant(syntax.value)
    if syntax.op == "name":
        name = str(syntax.value)
        if name not in scope:
            raise refuse(text, syntax.at, f"{name!r} is neither a knob nor a fact", meant(name, scope, table.texts()))
        return scope[name]
    if syntax.op == "list":
        raise refuse(text, syntax.at, "a list is allowed only after 'in'")
    args = [_build(arg, text, table, scope) for arg in syntax.args]
    op = syntax.op
    if op in _ARITHMETIC:
        for arg, part in zip(args, syntax.args, strict=True):
            if table.is_text(arg):
                raise refuse(text, part.at, "text cannot take part in arithmetic", "Compare it with == or in")
    if op in _ORDER and any(table.is_text(arg) for arg in args) and any(arg.bound is not None for arg in args):
        raise refuse(text, syntax.at, "text and numbers have no order between them", "Compare like with like")
    if op == "in" and not syntax.value:
        op = "within"
    node = table.make(op, args)
    if op == "pow" and node.constant and node.value is FAILED:
        raise refuse(text, syntax.at, "the power is too large, or has no value")
    return node

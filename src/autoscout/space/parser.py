"""A small parser for the expressions in conditions and constraints: text in, a syntax tree out, nothing ever run.

The language: knobs and facts by name (a dotted name is one name, an odd name goes in backticks), numbers, text in quotes,
`True False None`, `+ - * / // % **`, comparisons (chained too), `in` a list or a text, `and or not`, `a if c else b`, and
the functions of `FUNCTIONS`.

This is Python's grammar but for the names, so Python parses it. Before that, `_mask` replaces every name, number and text by
a placeholder of the same length, which keeps the columns, and refuses every word and sign that is not in the language. What
Python sees is placeholders, brackets and operators; `_ExpressionReader` takes the nodes of its tree that have a meaning here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError

FUNCTIONS = {
    "abs": (1, 1), "active": (1, 1), "ceil": (1, 1), "floor": (1, 1), "gcd": (2, 2),
    "log2": (1, 1), "max": (2, 50), "min": (2, 50), "round": (1, 2), "sqrt": (1, 1),
}  # fmt: skip
"""Function -> fewest and most arguments."""

MAX_LENGTH = 200_000  # characters; tables of allowed combinations may be long
MAX_DEPTH = 30  # brackets inside one another
MAX_CHAIN = 150  # operators inside one another; `a + b + c` nests one level per sign

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<number>(?:\d[\d_]*\.?(?:\d[\d_]*)?|\.\d[\d_]*)(?:[eE][-+]?\d+)?)
  | (?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
  | (?P<quoted>`[^`]+`)
  | (?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
  | (?P<op>\*\*|//|<=|>=|==|!=|<>|&&|\|\||[-+*/%<>()\[\],!=&|^~@:;{}.?$\\])
    """,
    re.VERBOSE,
)
_CONSTANTS: dict[str, Value] = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_WORDS = {"and", "or", "not", "in", "is", "if", "else"}
_REFUSED = {
    "lambda", "for", "while", "import", "yield", "await", "async", "def", "class", "return", "exec", "eval", "del", "with", "global",
}  # fmt: skip
_HINTS = {"=": "==", "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or", "<>": "!=", "^": "**"}
_NO_CODE = set(".{}:;@\\~?$")
_PLACEHOLDERS: dict[str, Callable[[str], str]] = {
    "space": lambda written: " " * len(written),
    "name": lambda written: "_" * len(written),
    "number": lambda written: "_" * len(written),
    "text": lambda written: f'"{"_" * (len(written) - 2)}"',  # a word may follow or precede it without a space
    "quoted": lambda written: f'"{"_" * (len(written) - 2)}"',
}
"""What Python sees in place of a token, of the same length."""
_ESCAPES = {"n": "\n", "t": "\t"}
_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div", ast.FloorDiv: "floordiv", ast.Mod: "mod", ast.Pow: "pow",
    ast.And: "and", ast.Or: "or", ast.Not: "not", ast.USub: "neg", ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le",
    ast.Gt: "gt", ast.GtE: "ge", ast.In: "in", ast.NotIn: "notin", ast.Is: "eq", ast.IsNot: "ne",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Syntax:
    """One node of a syntax tree: `op` is an operator, a function, `name`, `constant` or `list`."""

    op: str
    at: int  # offset of the part in the text, from 0
    args: tuple[Syntax, ...] = ()
    value: Value = None  # the constant, or the name

    def names(self) -> Iterator[tuple[str, int]]:
        """Every name that the tree reads, with its offset, left to right."""
        if self.op == "name":
            yield str(self.value), self.at
        for arg in self.args:
            yield from arg.names()


def parse(text: str) -> Syntax:
    """The syntax tree of an expression.

    Raises:
        SpaceError: the text is not an expression of this language; the fault names the column.
    """
    if not isinstance(text, str) or not text.strip():
        raise refuse(str(text), 0, "an expression must not be empty", "Write a comparison such as tp * pp <= gpus")
    if len(text) > MAX_LENGTH:
        raise refuse(text[:40] + "...", 0, f"an expression may have {MAX_LENGTH} characters at most", "Split it into several constraints")
    masked, leaves = _mask(text)
    start = len(masked) - len(masked.lstrip())
    try:
        tree = ast.parse(masked.strip(), mode="eval").body
    except SyntaxError as error:
        raise _misplaced(text, start, error) from error
    except (MemoryError, RecursionError) as error:  # what CPython's parser raises for deep nesting
        raise _too_deep(text, 0) from error
    reader = _ExpressionReader(text, masked, start, leaves)
    return reader.no_list(reader.read(tree, MAX_CHAIN))


def name_text(name: str) -> str:
    """A name as expressions write it: in backticks when it would read as something else."""
    plain = _TOKEN.fullmatch(name)
    reserved = name in _WORDS or name in _REFUSED or name in _CONSTANTS or "__" in name
    return name if plain and plain.lastgroup == "name" and not reserved else f"`{name}`"


def value_text(value: Value) -> str:
    """A value as expressions write it."""
    if not isinstance(value, str):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\t", "\\t")
    return f"'{escaped}'"


def refuse(text: str, at: int, rule: str, fix: str = "") -> SpaceError:
    """The error for a part of an expression, naming its column from 1."""
    start = max(0, at - 60)
    excerpt = f"{'...' if start else ''}{text[start : at + 60]}{'...' if at + 60 < len(text) else ''}"
    return SpaceError(Fault(rule=f"column {at + 1}: {rule}", value=f"`{excerpt}`", fix=fix))


def _mask(text: str) -> tuple[str, dict[int, Syntax]]:
    """The text with placeholders for leaves and blanks for spaces, and the leaves by their offset."""
    masked: list[str] = []
    leaves: dict[int, Syntax] = {}
    depth, ended = 0, False  # whether an operand has just ended, so that another one cannot follow
    for token in _tokens(text):
        kind, written, at = str(token.lastgroup), token[0], token.start()
        leaf = _leaf(kind, written, at, text)
        if leaf is not None:
            if ended:
                raise refuse(text, at, f"unexpected {written!r}")
            leaves[at] = leaf
        depth += (written in "([") - (written in ")]") if kind == "op" else 0
        if depth > MAX_DEPTH:
            raise refuse(text, at, f"nested deeper than {MAX_DEPTH} levels", "Split it into several constraints")
        ended = leaf is not None or written in (")", "]") or (ended and kind == "space")
        piece = _PLACEHOLDERS[kind](written) if leaf is not None or kind == "space" else written
        if masked and (masked[-1][-1] + piece[0]).isidentifier():  # such as 1if, which would become one name
            raise refuse(text, at, f"unexpected {written!r}", "Write a space before it")
        masked.append(piece)
    if not ended:
        raise refuse(text, len(text), "the expression ends too early")
    return "".join(masked), leaves


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise refuse(text, at, f"unexpected character {text[at]!r}", "Text needs a closing quote, odd names need backticks")
        yield match
        at = match.end()


def _misplaced(text: str, start: int, error: SyntaxError) -> SpaceError:
    at = start + max(0, (error.offset or 1) - 1)
    if "never closed" in error.msg:
        return refuse(text, at, f"{text[at]!r} is never closed")
    if "expected 'else'" in error.msg:
        return refuse(text, start + (error.end_offset or 1) - 1, "expected 'else'")
    token = _TOKEN.match(text, at)
    return refuse(text, at, f"unexpected {token[0] if token else 'end'!r}")


def _too_deep(text: str, at: int) -> SpaceError:
    return refuse(text, at, f"more than {MAX_CHAIN} operators in a row or inside one another", "Split it into several constraints")


def _no_code(text: str, token: str, at: int) -> SpaceError:
    rule = f"{token!r} is not allowed: there are no attributes, subscripts or statements in expressions"
    return refuse(text, at, rule, "Use knobs, facts, numbers, arithmetic, comparisons, and, or, not, in, if else")


def _leaf(kind: str, token: str, at: int, text: str) -> Syntax | None:
    """The name or constant that a token is; None for operators, brackets and words."""
    if kind == "text":
        body = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token[1:-1], flags=re.DOTALL)
        return Syntax("constant", at, value=body)
    if kind == "quoted":
        return Syntax("name", at, value=token[1:-1])
    if kind == "number":
        return Syntax("constant", at, value=_number(token.replace("_", ""), at, text))
    if kind == "op" and token in _HINTS:
        raise refuse(text, at, f"{token!r} is not an operator here", f"Write {_HINTS[token]!r}")
    if kind == "op" and token in _NO_CODE:
        raise _no_code(text, token, at)
    if kind != "name" or token in _WORDS:
        return None
    if token in _REFUSED:
        raise refuse(text, at, f"{token!r} is not allowed: expressions compute, they run no code")
    if "__" in token:
        raise refuse(text, at, f"{token!r}: names with a double underscore are refused")
    return Syntax("constant", at, value=_CONSTANTS[token]) if token in _CONSTANTS else Syntax("name", at, value=token)


def _number(digits: str, at: int, text: str) -> Value:
    if len(digits) > 40:
        raise refuse(text, at, "a number may have 40 characters at most")
    value = int(digits) if digits.isdigit() else float(digits)
    if isinstance(value, float) and value == float("inf"):
        raise refuse(text, at, "the number is too large")
    return value


@dataclass(frozen=True)
class _ExpressionReader:
    """Python's tree of a masked expression -> ours."""

    text: str
    masked: str
    start: int  # offset of the tree in the text
    leaves: dict[int, Syntax]

    def read(self, node: ast.expr, depth: int) -> Syntax:
        """One node; a list only where one may be."""
        at = self.start + node.col_offset
        if depth < 0:
            raise _too_deep(self.text, at)
        match node:
            case ast.Name() | ast.Constant():
                return self.leaves[at]
            case ast.Tuple() if not node.elts:
                raise refuse(self.text, at, "empty parentheses")
            case ast.Tuple() | ast.List():
                return Syntax("list", at, tuple(self.read(item, depth - 1) for item in node.elts))
            case ast.BoolOp():
                parts = tuple(self.read(part, depth - 1) for part in node.values)
                return Syntax(_OPERATORS[type(node.op)], parts[0].at, parts)
            case ast.UnaryOp():
                inner = self.read(node.operand, depth - 1)
                if isinstance(node.op, ast.USub):
                    self.no_list(inner)
                return inner if isinstance(node.op, ast.UAdd) else Syntax(_OPERATORS[type(node.op)], at, (inner,))
            case ast.BinOp():
                sides = (self.scalar(node.left, depth), self.scalar(node.right, depth))
                if type(node.op) not in _OPERATORS:  # two comparisons in a row, as in a >> b
                    raise _no_code(self.text, self.text[self.sign(node.left)], self.sign(node.left))
                return Syntax(_OPERATORS[type(node.op)], self.sign(node.left), sides)
            case ast.IfExp():
                parts = tuple(self.read(part, depth - 1) for part in (node.test, node.body, node.orelse))
                return Syntax("if", self.sign(node.body), parts)
            case ast.Compare():
                return self.comparison(node, depth)
            case ast.Call():
                return self.call(node, depth)
        at = self.sign(node.value) if isinstance(node, ast.Subscript) else at
        raise _no_code(self.text, self.text[at], at)

    def sign(self, left: ast.expr) -> int:
        """Where the operator after an operand is."""
        at = self.start + (left.end_col_offset or 0)
        while self.masked[at] in " )":
            at += 1
        return at

    def scalar(self, node: ast.expr, depth: int) -> Syntax:
        return self.no_list(self.read(node, depth - 1))

    def no_list(self, tree: Syntax) -> Syntax:
        if tree.op == "list":
            raise refuse(self.text, tree.at, "a list is allowed only after 'in'")
        return tree

    def comparison(self, node: ast.Compare, depth: int) -> Syntax:
        sides = [node.left, *node.comparators]
        trees = [self.read(side, depth - 1) for side in sides]
        links = tuple(self.link(op, self.sign(sides[n]), trees[n], trees[n + 1]) for n, op in enumerate(node.ops))
        return links[0] if len(links) == 1 else Syntax("and", links[0].at, links)

    def link(self, operator: ast.cmpop, at: int, left: Syntax, right: Syntax) -> Syntax:
        op = _OPERATORS[type(operator)]
        plain = right.op == "constant" and (right.value is None or isinstance(right.value, bool))
        if isinstance(operator, ast.Is | ast.IsNot) and not plain:
            raise refuse(self.text, at, "'is' compares with None, True or False only", "Use ==")
        if op in ("in", "notin"):
            if left.op == "list" or any(item.op == "list" for item in right.args if right.op == "list"):
                tree = self.table(at, left, right)
            else:
                tree = Syntax("in", at, (left, *(right.args if right.op == "list" else (right,))), value=right.op == "list")
            return tree if op == "in" else Syntax("not", at, (tree,))
        if "list" in (left.op, right.op):
            raise refuse(self.text, at, "a list is allowed only after 'in'")
        return Syntax(op, at, (left, right))

    def table(self, at: int, left: Syntax, right: Syntax) -> Syntax:
        """`(a, b) in ((1, 2), (3, 4))`: one of the rows, column by column."""
        width = len(left.args) if left.op == "list" else 0
        if right.op != "list" or not width or any(row.op != "list" or len(row.args) != width for row in right.args):
            raise refuse(self.text, at, "a row such as (a, b) needs a list of rows of the same length after 'in'")
        if any(cell.op == "list" for row in (left, *right.args) for cell in row.args):
            raise refuse(self.text, at, "a row holds plain values only")
        rows = tuple(Syntax("and", row.at, _equal(row.at, left.args, row.args)) for row in right.args)
        return Syntax("or", at, rows) if rows else Syntax("constant", at, value=False)

    def call(self, node: ast.Call, depth: int) -> Syntax:
        called = self.read(node.func, depth - 1)
        name = str(called.value)
        if called.op != "name" or name not in FUNCTIONS:
            raise refuse(self.text, called.at, f"{name!r} cannot be called", f"The functions are: {', '.join(FUNCTIONS)}")
        args = tuple(self.scalar(item, depth) for item in node.args)
        fewest, most = FUNCTIONS[name]
        if not fewest <= len(args) <= most:
            count = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise refuse(self.text, called.at, f"{name}() takes {count} arguments, not {len(args)}")
        if name == "active" and args[0].op != "name":
            raise refuse(self.text, called.at, "active() takes the name of a knob")
        return Syntax(name, called.at, args)


def _equal(at: int, left: Sequence[Syntax], right: Sequence[Syntax]) -> tuple[Syntax, ...]:
    return tuple(Syntax("eq", at, pair) for pair in zip(left, right, strict=True))

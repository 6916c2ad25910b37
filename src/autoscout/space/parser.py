"""A small parser for the expressions in conditions and constraints: text in, a syntax tree out, nothing ever run.

The language: knobs and facts by name (dotted names are one name, odd names stand in backticks), numbers, text in quotes,
`True False None`, `+ - * / // % **`, comparisons (chained too), `in` a list or a text, `and or not`, `a if c else b`, and
the functions of `FUNCTIONS`. There are no attributes, subscripts, comprehensions or other calls to refuse: the grammar
has no words for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError

FUNCTIONS = {
    "abs": (1, 1),
    "active": (1, 1),
    "ceil": (1, 1),
    "floor": (1, 1),
    "gcd": (2, 2),
    "log2": (1, 1),
    "max": (2, 50),
    "min": (2, 50),
    "round": (1, 2),
    "sqrt": (1, 1),
}
"""Function -> fewest and most arguments."""

MAX_LENGTH = 200_000  # tables of allowed combinations may be long
MAX_DEPTH = 30
MAX_CHAIN = 150  # operators in a row; each nests one level deeper

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
    "lambda",
    "for",
    "while",
    "import",
    "yield",
    "await",
    "async",
    "def",
    "class",
    "return",
    "exec",
    "eval",
    "del",
    "with",
    "global",
}
_COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_HINTS = {"=": "==", "&&": "and", "||": "or", "!": "not", "&": "and", "|": "or", "<>": "!=", "^": "**"}
_ESCAPES = {"n": "\n", "t": "\t"}


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


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


def parse(text: str) -> Syntax:
    """The syntax tree of an expression.

    Raises:
        SpaceError: the text is not an expression of this language; the fault names the column.
    """
    if not isinstance(text, str) or not text.strip():
        raise refuse(str(text), 0, "an expression must not be empty", "Write a comparison such as tp * pp <= gpus")
    if len(text) > MAX_LENGTH:
        raise refuse(text[:40] + "...", 0, f"an expression may have {MAX_LENGTH} characters at most", "Split it into several constraints")
    return _Parser(text).whole()


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
    shown = f"{'...' if start else ''}{text[start : at + 60]}{'...' if at + 60 < len(text) else ''}"
    return SpaceError(Fault(rule=f"column {at + 1}: {rule}", value=f"`{shown}`", fix=fix))


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = list(self._tokens())
        self.next = 0
        self.depth = 0

    def _tokens(self) -> Iterator[_Token]:
        at = 0
        while at < len(self.text):
            match = _TOKEN.match(self.text, at)
            if match is None:
                raise refuse(
                    self.text, at, f"unexpected character {self.text[at]!r}", "Text needs a closing quote, odd names need backticks"
                )
            kind = str(match.lastgroup)
            if kind != "space":
                yield _Token(kind, match[0], at)
            at = match.end()
        yield _Token("end", "", at)

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def error(self, rule: str, fix: str = "", at: int | None = None) -> SpaceError:
        return refuse(self.text, self.token.at if at is None else at, rule, fix)

    def take(self, *texts: str) -> _Token | None:
        """The next token if it is one of these operators or words."""
        token = self.token
        if token.kind in ("op", "name") and token.text in texts:
            self.next += 1
            return token
        return None

    def expect(self, text: str) -> None:
        if not self.take(text):
            raise self.error(f"expected {text!r} before {self.token.text or 'the end'!r}")

    def whole(self) -> Syntax:
        tree = self.ternary()
        if self.token.kind != "end":
            raise self.unexpected()
        return tree

    def unexpected(self) -> SpaceError:
        token = self.token
        if token.kind == "end":
            return self.error("the expression ends too early")
        if token.text in _HINTS:
            return self.error(f"{token.text!r} is not an operator here", f"Write {_HINTS[token.text]!r}")
        if token.text in (".", "[", "{", ":", ";", "@", "\\"):
            return self.error(
                f"{token.text!r} is not allowed: there are no attributes, subscripts or statements in expressions",
                "Use knobs, facts, numbers, arithmetic, comparisons, and, or, not, in, if else",
            )
        if token.text in _REFUSED:
            return self.error(f"{token.text!r} is not allowed: expressions compute, they run no code")
        return self.error(f"unexpected {token.text!r}")

    def ternary(self) -> Syntax:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH} levels", "Split it into several constraints")
        tree = self.disjunction()
        if token := self.take("if"):
            condition = self.disjunction()
            self.expect("else")
            tree = Syntax("if", token.at, (condition, tree, self.ternary()))
        self.depth -= 1
        return tree

    def disjunction(self) -> Syntax:
        parts = [self.conjunction()]
        while self.take("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else Syntax("or", parts[0].at, tuple(parts))

    def conjunction(self) -> Syntax:
        parts = [self.negation()]
        while self.take("and"):
            parts.append(self.negation())
        return parts[0] if len(parts) == 1 else Syntax("and", parts[0].at, tuple(parts))

    def chained(self, number: int) -> None:
        if number > MAX_CHAIN:
            raise self.error(f"more than {MAX_CHAIN} operators in a row", "Split it into several constraints")

    def negation(self) -> Syntax:
        tokens = []
        while token := self.take("not"):
            tokens.append(token)
            self.chained(len(tokens))
        tree = self.comparison()
        for token in reversed(tokens):
            tree = Syntax("not", token.at, (tree,))
        return tree

    def comparison(self) -> Syntax:
        left = self.sum()
        links: list[Syntax] = []
        while (found := self.comparator()) is not None:
            token, op = found
            right = self.sum()
            links.append(self.link(op, token, left, right))
            left = right
        if not links:
            return left
        return links[0] if len(links) == 1 else Syntax("and", links[0].at, tuple(links))

    def comparator(self) -> tuple[_Token, str] | None:
        if token := self.take(*_COMPARISONS):
            return token, _COMPARISONS[token.text]
        if token := self.take("in"):
            return token, "in"
        if token := self.take("is"):
            return token, "isnot" if self.take("not") else "is"
        if self.token.text == "not" and self.tokens[self.next + 1].text == "in":
            token = self.token
            self.next += 2
            return token, "notin"
        return None

    def link(self, op: str, token: _Token, left: Syntax, right: Syntax) -> Syntax:
        if op in ("is", "isnot"):
            if right.op != "constant" or not (right.value is None or isinstance(right.value, bool)):
                raise self.error("'is' compares with None, True or False only", "Use ==", at=token.at)
            op = "eq" if op == "is" else "ne"
        if op in ("in", "notin"):
            if left.op == "list" or any(item.op == "list" for item in right.args if right.op == "list"):
                tree = self.table(token, left, right)
                return tree if op == "in" else Syntax("not", token.at, (tree,))
            tree = Syntax("in", token.at, (left, *(right.args if right.op == "list" else (right,))), value=right.op == "list")
            return tree if op == "in" else Syntax("not", token.at, (tree,))
        if "list" in (left.op, right.op):
            raise self.error("a list may only stand after 'in'", at=token.at)
        return Syntax(op, token.at, (left, right))

    def table(self, token: _Token, left: Syntax, right: Syntax) -> Syntax:
        """`(a, b) in ((1, 2), (3, 4))`: one of the rows, column by column."""
        width = len(left.args) if left.op == "list" else 0
        if right.op != "list" or not width or any(row.op != "list" or len(row.args) != width for row in right.args):
            raise self.error("a row such as (a, b) needs a list of rows of the same length after 'in'", at=token.at)
        if any(cell.op == "list" for row in (left, *right.args) for cell in row.args):
            raise self.error("a row holds plain values only", at=token.at)
        rows = tuple(
            Syntax("and", row.at, tuple(Syntax("eq", row.at, pair) for pair in zip(left.args, row.args, strict=True))) for row in right.args
        )
        return Syntax("or", token.at, rows) if rows else Syntax("constant", token.at, value=False)

    def sum(self) -> Syntax:
        tree, number = self.term(), 0
        while token := self.take("+", "-"):
            number += 1
            self.chained(number)
            tree = Syntax("add" if token.text == "+" else "sub", token.at, (self.operand(tree), self.operand(self.term())))
        return tree

    def term(self) -> Syntax:
        names = {"*": "mul", "/": "div", "//": "floordiv", "%": "mod"}
        tree, number = self.factor(), 0
        while token := self.take(*names):
            number += 1
            self.chained(number)
            tree = Syntax(names[token.text], token.at, (self.operand(tree), self.operand(self.factor())))
        return tree

    def factor(self) -> Syntax:
        signs = []
        while token := self.take("-", "+"):
            signs.append(token)
            self.chained(len(signs))
        tree = self.power()
        for token in reversed(signs):
            if token.text == "-":
                tree = Syntax("neg", token.at, (self.operand(tree),))
        return tree

    def power(self) -> Syntax:
        tree = self.atom()
        if token := self.take("**"):
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise self.error(f"nested deeper than {MAX_DEPTH} levels")
            tree = Syntax("pow", token.at, (self.operand(tree), self.operand(self.factor())))
            self.depth -= 1
        return tree

    def operand(self, tree: Syntax) -> Syntax:
        if tree.op == "list":
            raise self.error("a list may only stand after 'in'", at=tree.at)
        return tree

    def atom(self) -> Syntax:
        token = self.token
        if token.kind == "number":
            self.next += 1
            return Syntax("constant", token.at, value=self.number(token))
        if token.kind == "text":
            self.next += 1
            body = re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), token.text[1:-1], flags=re.DOTALL)
            return Syntax("constant", token.at, value=body)
        if token.kind == "quoted":
            self.next += 1
            return Syntax("name", token.at, value=token.text[1:-1])
        if token.kind == "name" and token.text not in _WORDS and token.text not in _REFUSED:
            self.next += 1
            return self.named(token)
        if opening := self.take("(", "["):
            return self.group(opening)
        raise self.unexpected()

    def number(self, token: _Token) -> Value:
        text = token.text.replace("_", "")
        if len(text) > 40:
            raise self.error("a number may have 40 characters at most", at=token.at)
        value = int(text) if text.isdigit() else float(text)
        if isinstance(value, float) and value in (float("inf"), float("-inf")):
            raise self.error("the number is too large", at=token.at)
        return value

    def named(self, token: _Token) -> Syntax:
        if token.text in _CONSTANTS:
            return Syntax("constant", token.at, value=_CONSTANTS[token.text])
        if "__" in token.text:
            raise self.error(f"{token.text!r}: names with a double underscore are refused", at=token.at)
        if not self.take("("):
            return Syntax("name", token.at, value=token.text)
        if token.text not in FUNCTIONS:
            raise self.error(f"{token.text!r} cannot be called", f"The functions are: {', '.join(FUNCTIONS)}", at=token.at)
        args = tuple(self.operand(item) for item in self.items(")"))
        fewest, most = FUNCTIONS[token.text]
        if not fewest <= len(args) <= most:
            count = str(fewest) if fewest == most else f"{fewest} to {most}"
            raise self.error(f"{token.text}() takes {count} arguments, not {len(args)}", at=token.at)
        if token.text == "active" and args[0].op != "name":
            raise self.error("active() takes the name of a knob", at=token.at)
        return Syntax(token.text, token.at, args)

    def items(self, closing: str) -> tuple[Syntax, ...]:
        found: list[Syntax] = []
        while not self.take(closing):
            if found:
                self.expect(",")
                if self.take(closing):
                    break
            found.append(self.ternary())
        return tuple(found)

    def group(self, opening: _Token) -> Syntax:
        if opening.text == "[":
            return Syntax("list", opening.at, self.items("]"))
        start = self.next
        items = self.items(")")
        if len(items) == 1 and self.tokens[self.next - 2].text != ",":
            return items[0]
        if not items and self.next == start + 1:
            raise self.error("empty parentheses", at=opening.at)
        return Syntax("list", opening.at, items)

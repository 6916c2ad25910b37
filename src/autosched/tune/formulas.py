"""Metrics that an operator defines: `mean(wait[gpus <= 2])`, worked out from the jobs of a simulation. Text in, numbers out, nothing run.

The language is a small part of Python's: columns with one value a job, `[condition]` after a column for some of the jobs, and statistics
that make one number of a column; numbers may be added, subtracted, multiplied and divided. Python's parser makes the tree; `_read` takes
the nodes that have a meaning here, refuses all others, and knows of each part whether it is a number, a column, a condition or
text, so that a formula which was read cannot fail on any jobs.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Direction

Vector = NDArray[np.float64]
Chosen = NDArray[np.bool_]

COLUMNS = {
    "wait": "seconds without GPUs, in the window",
    "run": "seconds with GPUs, in the window",
    "time": "seconds in the system, in the window; work that is left at its end is added",
    "work": "seconds of work that the job had when the window began, or when it came",
    "slowdown": "time / work",
    "gpus": "GPUs that the job wants",
    "preemptions": "how often it lost its GPUs, in the window",
    "hour": "hour of the day at which it came, 0 to 24 (UTC)",
}
"""Numbers of a job."""
TEXTS = {"user": "who submitted it", "vc": "its virtual cluster or partition", "kind": "the type of GPU that it wants"}
"""Texts of a job, for comparisons with `==`, `!=` and `in`."""
_QUANTILES = {"median": 0.5, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def _at_share(share: float) -> Callable[[Vector, Vector], float]:
    return lambda values, weights: quantile(values, weights, share)


STATISTICS: dict[str, Callable[[Vector, Vector], float]] = {
    "mean": lambda values, weights: float(np.average(values, weights=weights)),
    "sum": lambda values, weights: float((values * weights).sum()),
    "max": lambda values, _: float(values.max()),
    "min": lambda values, _: float(values.min()),
    "std": lambda values, weights: float(np.sqrt(np.average((values - np.average(values, weights=weights)) ** 2, weights=weights))),
    **{name: _at_share(share) for name, share in _QUANTILES.items()},
}
"""Of a column: one number; jobs that were merged count as many times as they are."""
COUNTS = {"count": "jobs for which a condition holds", "share": "those among all jobs, or among those in [brackets]"}
"""Of a condition: one number."""
MOST_CHARACTERS = 500  # of a formula
MOST_DEPTH = 40  # parts inside one another
MOST_FORMULAS = 50
MOST_NUMBER = 1e15  # beyond it floats have no whole numbers

_NAME = re.compile(r"[A-Za-z_]\w{0,59}")
_AIM = re.compile(r"\s*(maximize|minimize)\s+(?=\S)")
_ARITHMETIC: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Div: np.divide,
}  # fmt: skip
_COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater, ast.GtE: np.greater_equal, ast.Eq: np.equal, ast.NotEq: np.not_equal,
}  # fmt: skip
_EXAMPLE = "Example: mean(wait[gpus <= 2])"


@dataclass(frozen=True, eq=False, kw_only=True)
class Jobs:
    """What formulas are worked out from.

    Attributes:
        columns: By the names of `COLUMNS` and `TEXTS`, one value a job.
        weights: How many jobs each is.
        metrics: Numbers that are there already, by name.
    """

    columns: Mapping[str, NDArray[Any]]
    weights: Vector
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class _Part:
    """A part of a formula: what kind of value it has (number, column, condition, text), how it is worked out, and of which jobs it is.

    Two parts are of the same jobs when their filters are written alike.
    """

    kind: str
    value: Callable[[Jobs], Any]
    chosen: Callable[[Jobs], Chosen] | None = None
    filter: str = ""


@dataclass(frozen=True, kw_only=True)
class Formula:
    """A metric of an operator.

    Attributes:
        name: As goals, limits and edges call it.
        text: As it was written.
        direction: Which way is better.
    """

    name: str
    text: str
    direction: Direction
    _part: _Part

    def __call__(self, jobs: Jobs) -> float:
        """Its value; 0 where there is no number (no such jobs, a division by zero) or a negative one, because gains are ratios."""
        if not len(jobs.weights):
            return 0.0
        with np.errstate(all="ignore"):
            value = float(self._part.value(jobs))
        return value if np.isfinite(value) and value > 0 else 0.0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and (self.name, self.text) == (other.name, other.text)

    def __hash__(self) -> int:
        return hash((self.name, self.text))


def read_formulas(written: Mapping[str, str], metrics: tuple[str, ...], where: str = "", field: str = "metrics") -> tuple[Formula, ...]:
    """Formulas by name, as `FORMULA` or `maximize FORMULA`; without that word less is better.

    Args:
        written: The texts.
        metrics: Names of metrics that there are already; a formula may use them, and none may be called so.
        where: What they are read from, for messages.
        field: Likewise.

    Raises:
        ConfigError: all faults at once.
    """
    faults: list[Fault] = []
    formulas = []
    if len(written) > MOST_FORMULAS:
        rule = f"may define {MOST_FORMULAS} metrics at most"
        raise ConfigError(Fault(where=where, field=field, value=str(len(written)), rule=rule, fix="Leave some out"))
    for name, text in written.items():
        place = f"{field}.{name[:60]}"
        if not _NAME.fullmatch(name):
            fix = "Example: wait_of_small"
            faults.append(
                Fault(where=where, field=place, rule="a name has 1 to 60 letters, digits and underscores, no digit first", fix=fix)
            )
        elif name in metrics:
            faults.append(Fault(where=where, field=place, rule="there is a metric of this name already", fix="Choose another name"))
        try:
            formulas.append(_formula(name, str(text), metrics))
        except ConfigError as error:
            faults += [Fault(where=where, field=place, value=repr(_short(text)), rule=each.rule, fix=each.fix) for each in error.faults]
    if faults:
        raise ConfigError(faults)
    return tuple(formulas)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _formula(name: str, text: str, metrics: tuple[str, ...]) -> Formula:
    if len(text) > MOST_CHARACTERS:
        _refuse(f"may have {MOST_CHARACTERS} characters at most, not {len(text):,}", "Define two metrics")
    aim = _AIM.match(text)
    body = text[aim.end() :] if aim else text.lstrip()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's advice on odd texts is not for operators
            tree = ast.parse(body.rstrip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        at = f"column {error.offset + len(text) - len(body)}: " if isinstance(error, SyntaxError) and error.offset else ""
        _refuse(f"{at}is not a formula", _EXAMPLE)
    for node in ast.walk(tree):
        if isinstance(node, ast.expr):
            node.col_offset += len(text) - len(body)
    part = _read(tree, metrics, MOST_DEPTH)
    if part.kind != "number":
        _refuse(f"is a {part.kind} with one value a job, not a number", f"Use a statistic of it: {', '.join((*STATISTICS, *COUNTS))}")
    return Formula(name=name, text=text, direction=Direction(aim[1]) if aim else Direction.MINIMIZE, _part=part)


def _refuse(rule: str, fix: str = "") -> NoReturn:
    raise ConfigError(Fault(rule=rule, fix=fix))


def _at(node: ast.expr, what: str) -> str:
    return f"column {node.col_offset + 1}: {what}"


def _read(node: ast.expr, metrics: tuple[str, ...], depth: int) -> _Part:
    """What a node means.

    Raises:
        ConfigError: nothing here.
    """
    if depth < 0:
        _refuse(f"has more than {MOST_DEPTH} parts inside one another", "Define two metrics")

    def read(part: ast.expr) -> _Part:
        return _read(part, metrics, depth - 1)

    match node:
        case ast.Constant(value=bool()):
            _refuse(_at(node, "True and False are no numbers"), "Use a condition such as gpus <= 2")
        case ast.Constant(value=int() | float() as number):
            if abs(number) > MOST_NUMBER:
                _refuse(_at(node, f"a number may be {MOST_NUMBER:g} at most"), _EXAMPLE)
            return _Part("number", lambda _: float(number))
        case ast.Constant(value=str() as text):
            return _Part("text", lambda _: text)
        case ast.Name(id=name):
            return _named(node, name, metrics)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _joined(node, np.multiply, _Part("number", lambda _: -1.0), read(operand), ("number", "column"))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            part = read(operand)
            _need(operand, part, "condition")
            return _Part("condition", lambda jobs: ~part.value(jobs), part.chosen, part.filter)
        case ast.BinOp(op=sign, left=left, right=right) if type(sign) in _ARITHMETIC:
            return _joined(node, _ARITHMETIC[type(sign)], read(left), read(right), ("number", "column"))
        case ast.BoolOp(op=sign, values=values):
            parts = [read(value) for value in values]
            for value, part in zip(values, parts, strict=True):
                _need(value, part, "condition")
            whole = parts[0]
            for part in parts[1:]:
                whole = _joined(node, np.logical_and if isinstance(sign, ast.And) else np.logical_or, whole, part, ("condition",))
            return whole
        case ast.Compare(left=left, ops=signs, comparators=others):
            return _compared(node, [left, *others], signs, read)
        case ast.Subscript(value=value, slice=condition):
            return _filtered(node, read(value), condition, read(condition))
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in STATISTICS or name in COUNTS:
            return _statistic(argument, name, read(argument))
        case ast.Call(func=ast.Name(id=name)):
            rule = "takes one column or condition" if name in STATISTICS or name in COUNTS else "is no statistic"
            _refuse(_at(node, f"{name[:40]} {rule}"), f"There are {', '.join((*STATISTICS, *COUNTS))}")
    _refuse(_at(node, "this has no meaning in a formula"), f"{_EXAMPLE}; signs: + - * / < <= > >= == != and or not in [ ] ( )")


def _named(node: ast.expr, name: str, metrics: tuple[str, ...]) -> _Part:
    if name in COLUMNS:
        return _Part("column", lambda jobs: jobs.columns[name])
    if name in TEXTS:
        return _Part("text column", lambda jobs: jobs.columns[name])
    if name in metrics:
        return _Part("number", lambda jobs: jobs.metrics.get(name, 0.0))
    near, names = suggestion(name, (*COLUMNS, *TEXTS, *metrics)), ", ".join((*COLUMNS, *TEXTS))
    _refuse(_at(node, f"{name[:40]!r} is neither a column of jobs nor a metric"), f"{near} Columns: {names}".strip())


def _need(node: ast.expr, part: _Part, *kinds: str) -> None:
    if part.kind not in kinds:
        _refuse(_at(node, f"is a {part.kind}, and must be a {' or '.join(kinds)}"), _EXAMPLE)


def _joined(node: ast.expr, make: Callable[[Any, Any], Any], one: _Part, other: _Part, kinds: tuple[str, ...]) -> _Part:
    """Two parts of the same jobs as one."""
    for part in (one, other):
        _need(node, part, *kinds)
    columns = [part for part in (one, other) if part.kind != "number"]
    if len({part.filter for part in columns}) > 1:
        rule = "joins columns of different jobs"
        _refuse(_at(node, rule), "Put the same [condition] behind both, or one behind the whole in brackets")
    kind = columns[0].kind if columns else "number"
    whole = columns[0] if columns else one
    return _Part(kind, lambda jobs: make(one.value(jobs), other.value(jobs)), whole.chosen, whole.filter)


def _compared(node: ast.expr, sides: list[ast.expr], signs: list[ast.cmpop], read: Callable[[ast.expr], _Part]) -> _Part:
    """A condition; of a chain such as `2 < gpus <= 8` all must hold."""
    answer: _Part | None = None
    for left, sign, right in zip(sides, signs, sides[1:], strict=False):
        if isinstance(sign, (ast.In, ast.NotIn)):
            each = _listed(left, read(left), right, isinstance(sign, ast.NotIn))
        elif type(sign) not in _COMPARISONS:
            _refuse(_at(node, "this comparison has no meaning in a formula"), "There are < <= > >= == != in")
        else:
            each = _pair(node, _COMPARISONS[type(sign)], read(left), read(right), sign)
        answer = each if answer is None else _joined(node, np.logical_and, answer, each, ("condition",))
    assert answer is not None, "a comparison has two sides"
    return answer


def _pair(node: ast.expr, make: Callable[[Any, Any], Any], one: _Part, other: _Part, sign: ast.cmpop) -> _Part:
    if "text column" in (one.kind, other.kind):
        if {one.kind, other.kind} != {"text column", "text"} or not isinstance(sign, (ast.Eq, ast.NotEq)):
            _refuse(_at(node, "a text column is compared with a text, by == or !="), "Example: user == 'alice'")
        column, text = (one, other) if one.kind == "text column" else (other, one)
        return _Part("condition", lambda jobs: make(column.value(jobs), text.value(jobs)), column.chosen, column.filter)
    if "column" not in (one.kind, other.kind):
        _refuse(_at(node, "compares no column of jobs"), _EXAMPLE)
    whole = _joined(node, make, one, other, ("number", "column"))
    return _Part("condition", whole.value, whole.chosen, whole.filter)


def _listed(left: ast.expr, part: _Part, right: ast.expr, negated: bool) -> _Part:
    _need(left, part, "column", "text column")
    items = right.elts if isinstance(right, (ast.List, ast.Tuple)) else None
    values: list[Any] = [item.value for item in items or [] if isinstance(item, ast.Constant)]
    kinds = str if part.kind == "text column" else (int, float)
    if items is None or len(values) != len(items) or not all(isinstance(value, kinds) and not isinstance(value, bool) for value in values):
        _refuse(_at(right, "must be a list of texts or numbers, as the column"), "Example: user in ['alice', 'bob']")
    return _Part("condition", lambda jobs: np.isin(part.value(jobs), values, invert=negated), part.chosen, part.filter)


def _filtered(node: ast.expr, part: _Part, at: ast.expr, condition: _Part) -> _Part:
    """Some of the jobs; a filter after a filter leaves those that both allow."""
    _need(at, condition, "condition")
    if condition.filter:
        _refuse(_at(at, "a condition in brackets has no brackets of its own"), "Join conditions by `and`")
    if part.kind == "number":
        _refuse(_at(node, "a number is of no jobs"), "Put the [condition] behind a column, inside the statistic")
    before = part.chosen
    both = condition.value if before is None else lambda jobs: before(jobs) & condition.value(jobs)
    return _Part(part.kind, part.value, both, f"{part.filter}[{ast.unparse(at)}]")


def _statistic(argument: ast.expr, name: str, part: _Part) -> _Part:
    _need(argument, part, "condition" if name in COUNTS else "column")

    def value(jobs: Jobs) -> float:
        chosen = np.ones(len(jobs.weights), bool) if part.chosen is None else part.chosen(jobs)
        if not chosen.any():
            return 0.0
        weights, values = jobs.weights[chosen], np.asarray(part.value(jobs))[chosen]
        if name in COUNTS:
            return float(weights[values].sum() / (weights.sum() if name == "share" else 1.0))
        return STATISTICS[name](values.astype(np.float64), weights)

    return _Part("number", value)


def quantile(values: Vector, weights: Vector, share: float) -> float:
    """The least value that at least this share of the weight is not above."""
    order = np.argsort(values, kind="stable")
    heap = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(heap, share * heap[-1])])


__all__ = ["COLUMNS", "COUNTS", "STATISTICS", "TEXTS", "Formula", "Jobs", "quantile", "read_formulas"]

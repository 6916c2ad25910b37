"""Where the numbers of a run come from: JSON, a regular expression, or the clock; and what must hold of its output."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from autoscout.common.fields import Block, Refused
from autoscout.core.config import Value
from autoscout.core.errors import Fault, SpaceError
from autoscout.space import algebra
from autoscout.space.constraint import build
from autoscout.space.parser import parse

PICKS: dict[str, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "first": lambda values: values[0],
    "mean": statistics.fmean,
    "median": statistics.median,
    "min": min,
    "max": max,
    "sum": math.fsum,
}
"""How several numbers of one run become one."""

_SOURCE_FIX = "Write {json: path.to.value}, {regex: 'time: ([0-9.]+)'} or wall"


class UnreadableError(Exception):
    """The output does not hold what it should; the text says why."""


@dataclass(frozen=True, kw_only=True)
class CommandRun:
    """What one run of the command left behind."""

    stdout: str = ""
    stderr: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    wall_s: float = 0.0
    returncode: int | None = 0

    def stream(self, name: str) -> str:
        return {"stdout": self.stdout, "stderr": self.stderr}.get(name, f"{self.stdout}\n{self.stderr}")


def _pattern(value: Any) -> re.Pattern[str]:
    if isinstance(value, re.Pattern):
        return value
    if not isinstance(value, str) or not value:
        raise Refused("must be a regular expression")
    try:
        return re.compile(value, re.MULTILINE)
    except re.error as error:
        raise Refused(f"not a regular expression: {error}") from error


def inner_path(value: Any) -> str:
    """A relative path that stays inside the trial folder."""
    text = value.removeprefix("{folder}/") if isinstance(value, str) else ""
    path = PurePosixPath(text)
    if not text or path.is_absolute() or ".." in path.parts or "{" in text:
        raise Refused("must be a relative path inside the trial folder")
    return str(path)


def _expression(text: str) -> str:
    try:
        parse(text)
    except SpaceError as error:
        raise Refused(error.faults[0].rule, error.faults[0].fix) from error
    return text


Pattern = Annotated[re.Pattern[str], PlainValidator(_pattern), PlainSerializer(lambda pattern: pattern.pattern)]
"""A regular expression that looks at all lines."""
InnerPath = Annotated[str, PlainValidator(inner_path)]
Expression = Annotated[str, AfterValidator(_expression)]


class MetricSource(Block):
    """Where one metric comes from; exactly one of `json`, `regex` and `wall` is set."""

    json_path: str | None = Field(None, alias="json")  # dotted; empty for the whole document
    regex: Pattern | None = None
    wall: bool = False
    file: InnerPath = ""  # in the trial folder; the streams when empty
    stream: Literal["both", "stdout", "stderr"] = "both"
    pick: Literal["last", "first", "mean", "median", "min", "max", "sum"] = "last"
    skip: int = Field(0, ge=0)  # values to drop first (warm-up steps)
    scale: float = 1.0

    @model_validator(mode="before")
    @classmethod
    def _long(cls, value: Any) -> Any:
        """The long form of `wall`, `json:a.b`, `json:file.json#a.b` and `regex:PATTERN`."""
        if not isinstance(value, str):
            return value
        kind, colon, rest = value.partition(":")
        if value == "wall":
            return {"wall": True}
        if kind == "regex" and rest:
            return {"regex": rest}
        if kind == "json" and colon:
            file, hash_sign, path = rest.rpartition("#")
            return {"json": path, "file": file} if hash_sign else {"json": rest}
        raise Refused("is not a source of a metric", _SOURCE_FIX)

    @model_validator(mode="after")
    def _one(self) -> MetricSource:
        kinds = {"json": self.json_path is not None, "regex": self.regex is not None, "wall": self.wall}
        chosen = [kind for kind, there in kinds.items() if there]
        if len(chosen) != 1:
            raise Refused(f"takes one source, not {' and '.join(chosen)}" if chosen else "says nowhere to look", _SOURCE_FIX)
        if self.wall and self.model_fields_set - {"wall", "scale"}:
            raise Refused("the wall time takes no further settings but scale")
        if not self.scale:
            raise Refused(Fault(field="scale", rule="must be a number other than 0"))
        return self

    def suits(self, name: str) -> Iterator[tuple[str, str, str]]:
        """What of it does not suit a metric of this name: field, rule, fix."""
        if name == "*" and self.json_path is None:
            yield "", "`*` takes all numbers of a JSON object, so it needs a json source", ""
        if self.regex is not None and self.regex.groups > 1 and not {name, "value"} & set(self.regex.groupindex):
            yield ".regex", "has several groups; one must be named", f"Write (?P<value>...) or (?P<{name}>...)"

    def read(self, name: str, run: CommandRun) -> tuple[float, tuple[float, ...]]:
        """The metric and the values behind it.

        Raises:
            UnreadableError: there is no such number in the output.
        """
        values = [value * self.scale for value in self._values(name, run)]
        rest = values[self.skip :]
        if not rest:
            counted = f" after skipping {self.skip} of {len(values)}" if values else ""
            raise UnreadableError(f"metric {name}: {self._sought()} was not found{counted}")
        strange = [value for value in rest if not math.isfinite(value)]
        if strange:
            raise UnreadableError(f"metric {name} is {strange[0]}")
        return PICKS[self.pick](rest), tuple(rest)

    def read_all(self, run: CommandRun) -> dict[str, float]:
        """For the metric named `*`: every finite number at the top of the last JSON document."""
        document = list(documents(text_of(run, self.file, self.stream)))[-1:]
        data = _follow(document[0], self.json_path or "") if document else None
        if not isinstance(data, Mapping):
            raise UnreadableError(f"{self._sought()} was not found, or is no object")
        numbers = {str(key): float(value) for key, value in data.items() if _is_number(value) and math.isfinite(value)}
        return {key: value * self.scale for key, value in numbers.items()}

    def _values(self, name: str, run: CommandRun) -> Iterator[float]:
        if self.wall:
            yield run.wall_s
        elif self.regex is not None:
            group = next((group for group in (name, "value") if group in self.regex.groupindex), 1 if self.regex.groups else 0)
            for match in self.regex.finditer(text_of(run, self.file, self.stream)):
                if match[group] is not None:
                    yield _number(match[group], name)
        else:
            for document in documents(text_of(run, self.file, self.stream)):
                value = _follow(document, self.json_path or "")
                if value is not _MISSING:
                    yield _number(value, name)

    def _sought(self) -> str:
        origin = self.file or ("the output" if self.stream == "both" else self.stream)
        return f"`{self.regex.pattern}` in {origin}" if self.regex else f"JSON value `{self.json_path}` in {origin}"


class OutputCheck(Block):
    """Something that must hold of a run that claims success; a bare text is a regular expression."""

    regex: Pattern | None = None
    absent: bool = False  # the pattern must not occur
    expression: Expression = ""  # over the metrics
    json_path: str | None = Field(None, alias="json")
    equals: Any = None
    file: InnerPath = ""

    @model_validator(mode="before")
    @classmethod
    def _long(cls, value: Any) -> Any:
        return {"regex": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one(self) -> OutputCheck:
        kinds = [self.regex is not None, bool(self.expression), self.json_path is not None]
        if sum(kinds) != 1 or ("equals" in self.model_fields_set) != kinds[2]:
            fix = "Write {regex: PASS}, {expression: accuracy >= 0.9} or {json: ok, equals: true}"
            raise Refused("takes one of regex, expression, or json with equals", fix)
        return self

    @model_serializer(mode="wrap")
    def _plain(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {**usual(self), **({"equals": self.equals} if self.json_path is not None else {})}

    def broken(self, run: CommandRun, metrics: Mapping[str, float]) -> str:
        """Why it does not hold; empty when it does."""
        if self.expression:
            return _broken_expression(self.expression, metrics)
        try:
            text = text_of(run, self.file)
        except UnreadableError as error:
            return str(error)
        if self.regex is not None:
            occurs = self.regex.search(text) is not None
            return "" if occurs != self.absent else f"`{self.regex.pattern}` {'occurs' if occurs else 'does not occur'} in the output"
        values = [_follow(document, self.json_path or "") for document in documents(text)]
        last = next((value for value in reversed(values) if value is not _MISSING), None)
        holds = last == self.equals and isinstance(last, bool) == isinstance(self.equals, bool)  # 1 is not true
        return "" if holds else f"`{self.json_path}` is {last!r}"


def text_of(run: CommandRun, file: str, stream: str = "both") -> str:
    """What a run wrote to a file of its folder, or said on its streams where none is named.

    Raises:
        UnreadableError: there is no such file.
    """
    if not file:
        return run.stream(stream)
    if file not in run.outputs:
        raise UnreadableError(f"{file} was not written to the trial folder; the command must write {{folder}}/{file}")
    return run.outputs[file]


def calculate(expression: str, values: Mapping[str, Value]) -> Any:
    """The value of an expression over `values`, in the language of constraints; None when it cannot be computed.

    Raises:
        SpaceError: it is no expression, or reads a name that is not in `values`.
    """
    table = algebra.Table([])
    node = build(expression, table, {name: table.constant(value) for name, value in values.items()})
    return node.value if isinstance(node.value, (bool, int, float, str)) else None  # all names are known, so it is a constant


def _broken_expression(expression: str, metrics: Mapping[str, float]) -> str:
    try:
        held = calculate(expression, metrics)
    except SpaceError as error:
        return f"check {error}"
    values = ", ".join(f"{name} is {value:g}" for name, value in metrics.items() if name in expression)
    return "" if held else f"`{expression}` does not hold ({values})"


def documents(text: str) -> Iterator[Any]:
    """The JSON documents in a text: the text itself, or else every object or list that starts a line, pretty-printed or not."""
    try:
        yield json.loads(text)
        return
    except (ValueError, RecursionError):
        pass
    decoder = json.JSONDecoder()
    at = 0
    for match in re.finditer(r"^[ \t]*(?=[{\[])", text, re.MULTILINE):
        if match.end() < at:
            continue  # inside the document before
        try:
            document, at = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            continue
        yield document


_MISSING = object()


def _follow(document: Any, path: str) -> Any:
    """The value at a dotted path; numbers index lists; a key may itself contain dots."""
    if path in ("", "*"):
        return document
    if isinstance(document, Mapping):
        if path in document:
            return document[path]
        cuts = [position for position, letter in enumerate(path) if letter == "."]
        for cut in reversed(cuts):
            if path[:cut] in document and (value := _follow(document[path[:cut]], path[cut + 1 :])) is not _MISSING:
                return value
    if isinstance(document, list):
        head, _, rest = path.partition(".")
        if re.fullmatch(r"-?\d+", head) and -len(document) <= int(head) < len(document):
            return _follow(document[int(head)], rest)
    return _MISSING


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any, name: str) -> float:
    if isinstance(value, str):
        try:
            return float(re.sub(r"(?<=\d)[,_](?=\d)", "", value.strip()))
        except ValueError:
            pass
    elif _is_number(value):
        return float(value)
    raise UnreadableError(f"metric {name} is not a number: {str(value)[:60]!r}")

"""Where the numbers of a run come from: JSON, a regular expression, or the clock; and what must hold of its output."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscout.core.config import Value
from autoscout.core.errors import SpaceError
from autoscout.space import algebra
from autoscout.space.constraint import build

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

STREAMS = ("both", "stdout", "stderr")


class UnreadableError(Exception):
    """The output does not hold what it should; the text says why."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of the command left behind."""

    stdout: str = ""
    stderr: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)
    wall_s: float = 0.0
    returncode: int | None = 0

    def stream(self, name: str) -> str:
        return {"stdout": self.stdout, "stderr": self.stderr}.get(name, f"{self.stdout}\n{self.stderr}")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where one metric comes from; exactly one of `json`, `regex` and `wall` is set."""

    json: str | None = None  # dotted path; empty for the whole document
    regex: re.Pattern[str] | None = None
    wall: bool = False
    file: str = ""  # relative path in the trial folder; the streams when empty
    stream: str = "both"
    pick: str = "last"
    skip: int = 0  # values to drop first (warm-up steps)
    scale: float = 1.0

    def read(self, name: str, run: Run) -> tuple[float, tuple[float, ...]]:
        """The metric and the values behind it.

        Raises:
            UnreadableError: there is no such number in the output.
        """
        found = [value * self.scale for value in self._values(name, run)]
        kept = found[self.skip :]
        if not kept:
            counted = f" after skipping {self.skip} of {len(found)}" if found else ""
            raise UnreadableError(f"metric {name}: {self._sought()} was not found{counted}")
        strange = [value for value in kept if not math.isfinite(value)]
        if strange:
            raise UnreadableError(f"metric {name} is {strange[0]}")
        return PICKS[self.pick](kept), tuple(kept)

    def read_all(self, run: Run) -> dict[str, float]:
        """For the metric named `*`: every finite number at the top of the last JSON document."""
        document = self._documents(run)[-1:]
        found = _follow(document[0], self.json or "") if document else None
        if not isinstance(found, Mapping):
            raise UnreadableError(f"{self._sought()} was not found, or is no object")
        numbers = {str(key): float(value) for key, value in found.items() if _is_number(value) and math.isfinite(value)}
        return {key: value * self.scale for key, value in numbers.items()}

    def _values(self, name: str, run: Run) -> Iterator[float]:
        if self.wall:
            yield run.wall_s
        elif self.regex is not None:
            group = next((group for group in (name, "value") if group in self.regex.groupindex), 1 if self.regex.groups else 0)
            for match in self.regex.finditer(self._text(run)):
                if match[group] is not None:
                    yield _number(match[group], name)
        else:
            for document in self._documents(run):
                found = _follow(document, self.json or "")
                if found is not _MISSING:
                    yield _number(found, name)

    def _text(self, run: Run) -> str:
        if not self.file:
            return run.stream(self.stream)
        if self.file not in run.outputs:
            raise UnreadableError(f"{self.file} was not written to the trial folder; the command must write {{folder}}/{self.file}")
        return run.outputs[self.file]

    def _documents(self, run: Run) -> list[Any]:
        return list(documents(self._text(run)))

    def _sought(self) -> str:
        place = self.file or ("the output" if self.stream == "both" else self.stream)
        return f"`{self.regex.pattern}` in {place}" if self.regex else f"JSON value `{self.json}` in {place}"

    def to_json(self) -> dict[str, Any]:
        if self.wall:
            data: dict[str, Any] = {"wall": True}
        else:
            data = {"regex": self.regex.pattern} if self.regex else {"json": self.json}
        plain = Source()
        data.update({name: getattr(self, name) for name in _SETTINGS if getattr(self, name) != getattr(plain, name)})
        return data


@dataclass(frozen=True, kw_only=True)
class Check:
    """Something that must hold of a run that claims success."""

    regex: re.Pattern[str] | None = None
    absent: bool = False  # the pattern must not occur
    expression: str = ""  # over the metrics
    json: str | None = None
    equals: Any = None
    file: str = ""

    def broken(self, run: Run, metrics: Mapping[str, float]) -> str:
        """Why it does not hold; empty when it does."""
        source = Source(json=self.json, regex=self.regex, file=self.file)
        if self.expression:
            return _broken_expression(self.expression, metrics)
        try:
            if self.regex is not None:
                found = self.regex.search(source._text(run)) is not None
                return "" if found != self.absent else f"`{self.regex.pattern}` {'occurs' if found else 'does not occur'} in the output"
            values = [_follow(document, self.json or "") for document in source._documents(run)]
        except UnreadableError as error:
            return str(error)
        last = next((value for value in reversed(values) if value is not _MISSING), None)
        return "" if last == self.equals and isinstance(last, bool) == isinstance(self.equals, bool) else f"`{self.json}` is {last!r}"

    def to_json(self) -> dict[str, Any]:
        if self.expression:
            return {"expression": self.expression}
        data: dict[str, Any] = {"file": self.file} if self.file else {}
        if self.regex is not None:
            return {"regex": self.regex.pattern, **data, **({"absent": True} if self.absent else {})}
        return {"json": self.json, "equals": self.equals, **data}


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
    shown = ", ".join(f"{name} is {value:g}" for name, value in metrics.items() if name in expression)
    return "" if held else f"`{expression}` does not hold ({shown})"


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


_SETTINGS = ("file", "stream", "pick", "skip", "scale")
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
            if path[:cut] in document and (found := _follow(document[path[:cut]], path[cut + 1 :])) is not _MISSING:
                return found
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

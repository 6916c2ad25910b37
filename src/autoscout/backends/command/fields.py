"""Reading the fields of a `command` workload from plain data; every fault is noted, none stops the reading."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from autoscout.backends.command.sources import PICKS, STREAMS, Check, Source
from autoscout.core.errors import Fault, SpaceError
from autoscout.space.parser import parse

_SOURCE_KEYS = ("json", "regex", "wall", "file", "stream", "pick", "skip", "scale")
_CHECK_KEYS = ("regex", "absent", "expression", "json", "equals", "file")
_SOURCE_FIX = "Write {json: path.to.value}, {regex: 'time: ([0-9.]+)'} or wall"


def suggest(name: str, known: Iterable[str]) -> str:
    """`Did you mean ...?`, or the names there are."""
    known = sorted(set(known))
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(close)}?"
    return f"There are: {', '.join(known)}" if known else "There are none"


class Reader:
    """Takes fields out of a mapping and collects what is wrong with them."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.faults: list[Fault] = []

    def fault(self, field: str, rule: str, value: object = None, fix: str = "") -> None:
        """Note a fault."""
        shown = "" if value is None else repr(value) if len(repr(value)) <= 80 else repr(value)[:77] + "..."
        self.faults.append(Fault(where=self.where, field=field, value=shown, rule=rule, fix=fix))

    def keys(self, field: str, data: Mapping[str, Any], known: Sequence[str]) -> None:
        """Refuse keys nobody knows."""
        for key in data:
            if key not in known:
                self.fault(f"{field}.{key}" if field else str(key), "unknown field", fix=suggest(str(key), known))

    def mapping(self, field: str, value: Any) -> dict[str, Any]:
        """A mapping with text keys; empty for None."""
        if value is None:
            return {}
        if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
            return dict(value)
        self.fault(field, "must be a mapping with text keys", value)
        return {}

    def number(self, field: str, value: Any, *, above: float, whole: bool = False) -> Any:
        """A number above a bound, or None."""
        if value is None:
            return None
        good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool) and value > above
        if not good:
            self.fault(field, f"must be a {'whole number' if whole else 'number'} above {above:g}", value)
            return None
        return value

    def pattern(self, field: str, value: Any) -> re.Pattern[str] | None:
        """A regular expression that looks at all lines."""
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            self.fault(field, "must be a regular expression", value)
            return None
        try:
            return re.compile(value, re.MULTILINE)
        except re.error as error:
            self.fault(field, f"not a regular expression: {error}", value)
            return None

    def patterns(self, field: str, value: Any) -> tuple[re.Pattern[str], ...]:
        """One regular expression or a list of them."""
        listed = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(listed, (list, tuple)):
            self.fault(field, "must be a list of regular expressions", value)
            return ()
        found = [self.pattern(f"{field}.{position}", item) for position, item in enumerate(listed)]
        return tuple(pattern for pattern in found if pattern is not None)

    def path(self, field: str, value: Any) -> str:
        """A relative path that stays inside the trial folder."""
        text = str(value or "")
        path = PurePosixPath(text.removeprefix("{folder}/"))
        if not isinstance(value, str) or not text or path.is_absolute() or ".." in path.parts or "{" in str(path):
            self.fault(field, "must be a relative path inside the trial folder", value)
            return ""
        return str(path)

    def source(self, name: str, value: Any) -> Source | None:
        """Where a metric comes from, long or short form."""
        field = f"metrics.{name}"
        data = _long_source(value)
        if data is None:
            self.fault(field, "is not a source of a metric", value, _SOURCE_FIX)
            return None
        self.keys(field, data, _SOURCE_KEYS)
        chosen = [kind for kind in ("json", "regex", "wall") if data.get(kind) not in (None, False)]
        if len(chosen) != 1:
            rule = f"takes one source, not {' and '.join(chosen)}" if chosen else "says nowhere to look"
            self.fault(field, rule, value, _SOURCE_FIX)
            return None
        before = len(self.faults)
        regex = self.pattern(f"{field}.regex", data.get("regex"))
        if regex is not None and regex.groups > 1 and not {name, "value"} & set(regex.groupindex):
            self.fault(f"{field}.regex", "has several groups; one must be named", regex.pattern, f"Write (?P<value>...) or (?P<{name}>...)")
        if chosen == ["json"] and not isinstance(data["json"], str):
            self.fault(f"{field}.json", "must be a dotted path", data["json"])
        if chosen == ["wall"] and set(data) - {"wall", "scale"}:
            self.fault(field, "the wall time takes no further settings but scale", value)
        if name == "*" and chosen != ["json"]:
            self.fault(field, "`*` takes all numbers of a JSON object, so it needs a json source", value)
        for key, allowed in (("pick", tuple(PICKS)), ("stream", STREAMS)):
            if key in data and data[key] not in allowed:
                self.fault(f"{field}.{key}", f"must be one of: {', '.join(allowed)}", data[key])
        source_file = self.path(f"{field}.file", data["file"]) if "file" in data else ""
        skip = self.number(f"{field}.skip", data.get("skip"), above=-1, whole=True)
        scale = data.get("scale", 1.0)
        if not isinstance(scale, (int, float)) or isinstance(scale, bool) or not scale:
            self.fault(f"{field}.scale", "must be a number other than 0", scale)
        if len(self.faults) > before:
            return None
        return Source(
            json=data.get("json"),
            regex=regex,
            wall=chosen == ["wall"],
            file=source_file,
            stream=data.get("stream", "both"),
            pick=data.get("pick", "last"),
            skip=skip or 0,
            scale=float(scale),
        )

    def check(self, field: str, value: Any) -> Check | None:
        """Something that must hold: a bare text is a regular expression."""
        data = {"regex": value} if isinstance(value, str) else value
        if not isinstance(data, Mapping):
            self.fault(field, "is not a check", value, "Write {regex: PASS}, {expression: accuracy >= 0.9} or {json: ok, equals: true}")
            return None
        self.keys(field, data, _CHECK_KEYS)
        kinds = [kind for kind in ("regex", "expression", "json") if data.get(kind) is not None]
        if len(kinds) != 1 or ("equals" in data) != (kinds == ["json"]):
            self.fault(field, "takes one of regex, expression, or json with equals", value)
            return None
        before = len(self.faults)
        regex = self.pattern(f"{field}.regex", data.get("regex"))
        expression = str(data.get("expression") or "")
        if expression:
            try:
                parse(expression)
            except SpaceError as error:
                self.fault(f"{field}.expression", error.faults[0].rule, expression, error.faults[0].fix)
        path = self.path(f"{field}.file", data["file"]) if "file" in data else ""
        if len(self.faults) > before:
            return None
        absent = bool(data.get("absent", False))
        return Check(regex=regex, absent=absent, expression=expression, json=data.get("json"), equals=data.get("equals"), file=path)


def _long_source(value: Any) -> dict[str, Any] | None:
    """The long form of `wall`, `json:a.b`, `json:file.json#a.b` and `regex:PATTERN`."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, str):
        return None
    kind, colon, rest = value.partition(":")
    if value == "wall":
        return {"wall": True}
    if kind == "regex" and rest:
        return {"regex": rest}
    if kind == "json" and colon:
        file, hash_sign, path = rest.rpartition("#")
        return {"json": path, "file": file} if hash_sign else {"json": rest}
    return None

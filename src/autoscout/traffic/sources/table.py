"""Requests in a table: traces (Azure, Mooncake, BurstGPT, Vidur and plain ones) and logs of gateways, as CSV or JSON lines."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from autoscout.common import document
from autoscout.common.fields import refuse_if, shown
from autoscout.core.errors import ConfigError, Fault
from autoscout.traffic.description import Traffic
from autoscout.traffic.requests import SeenRequest, traffic_of

TITLE = "a trace or a log with a row for each request (CSV or JSON lines)"
MOST_ROWS = 200_000  # of a file that are read
MOST_DEPTH = 4  # of mappings inside a row
LOOKED_AT = 1000  # rows that say which columns there are: not every line of a log is of a request
LARGE = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
"""A time above this counts in that unit: seconds since 1970 reach the last of them in the year 5138."""

COLUMNS = {
    "time": (
        "timestamp",
        "arrival_time",
        "arrived_at",
        "arrival",
        "time",
        "arrival_timestamp",
        "@timestamp",
        "ts",
        "start_time",
        "starttime",
        "request_time",
        "created_at",
        "created",
    ),
    "input": (
        "contexttokens",
        "input_length",
        "input_tokens",
        "prompt_tokens",
        "num_prefill_tokens",
        "request tokens",
        "tokens_evaluated",
        "tokens_prompt",
    ),
    "output": (
        "generatedtokens",
        "output_length",
        "output_tokens",
        "completion_tokens",
        "num_decode_tokens",
        "response tokens",
        "output_len",
        "tokens_predicted",
        "tokens_completion",
    ),
}
"""Columns of traces and logs, in lower case: those of Azure, Mooncake, BurstGPT, Vidur, of gateways such as LiteLLM, and plain ones."""
MORE = {
    "cached": ("cached_tokens", "cache_read_input_tokens", "num_cached_tokens"),
    "session": ("session_id", "session id", "conversation_id", "chat_id", "session"),
    "ended": ("end_time", "endtime", "completed_at"),
}
"""Columns that need not be there."""


def takes(text: str, first: Any) -> bool:
    """Whether this is such a table."""
    if isinstance(first, Mapping):
        names = {name.strip().lower() for name in flat(first)}
        return any(name in names for kind in ("input", "output") for name in COLUMNS[kind])
    header = text.lstrip("\ufeff").lstrip().partition("\n")[0].lower()
    columns = [name.strip().strip('"') for name in header.split(",")]
    return len(columns) > 1 and any(name in columns for kind in ("input", "output") for name in COLUMNS[kind])


def read(path: Path, text: str, windows: int) -> Traffic:
    """The traffic of such a file."""
    return traffic_of(requests_of(path, text), f"requests of {path.name}", windows)


def read_trace(path: Path) -> list[SeenRequest]:
    """The requests of a trace, CSV or JSON lines, in the order of their arrival.

    Raises:
        ConfigError: a column is missing, or values are no numbers: all of them at once.
    """
    return requests_of(path, document.read_text(path.expanduser()))


def requests_of(path: Path, text: str) -> list[SeenRequest]:
    """Likewise, of the text of the file."""
    text = text.removeprefix("\ufeff")
    as_json = text.lstrip().startswith("{")
    table = json_lines(path, text) if as_json else csv_lines(path, text)
    if not table or not all(isinstance(row, Mapping) for _, row in table):
        raise unusable(path, "holds no requests")
    rows = [(line, flat(row) if as_json else row) for line, row in table]
    names = list(dict.fromkeys(str(name) for _, row in rows[:LOOKED_AT] for name in row))
    columns, missing = columns_of(names)
    if missing:
        rule = f"has no column for the {' and the '.join(missing)} of a request; found {', '.join(names)}"
        raise unusable(path, rule, "Name them timestamp, input_tokens and output_tokens")
    is_log = as_json and any(columns["input"] not in row for _, row in rows)
    if is_log:  # lines of other requests
        rows = [(line, row) for line, row in rows if row.get(columns["input"]) is not None and row.get(columns["output"]) is not None]
    mooncake = as_json and any("hash_ids" in row for _, row in rows[:LOOKED_AT])
    requests, faults = [], []
    for line, row in rows:
        values: dict[str, Any] = {"blocks": ()}
        fields = [*columns.items(), *([("blocks", "hash_ids")] if as_json and row.get("hash_ids") else [])]
        for kind, column in fields:
            if kind in MORE and row.get(column) in (None, ""):
                continue
            rule, reader = _VALUES[kind]
            try:
                values[kind] = reader(row.get(column))
            except (ValueError, TypeError, OverflowError):
                faults.append(Fault(where=f"{path}:{line}", field=str(column), value=shown(row.get(column)), rule=rule))
        if not faults and min(values["input"], values["output"]) > 0 and math.isfinite(values["time"]):  # some traces list failed requests
            requests.append(_request(values, mooncake))
    refuse_if(faults)
    if not requests:
        raise unusable(path, "holds no request with a prompt and an answer")
    return sorted(requests, key=lambda request: request.time_s)


def columns_of(found: list[str]) -> tuple[dict[str, str], list[str]]:
    """Which column holds what, and what no column holds."""
    names = {name.strip().lower(): name for name in found}
    columns = {kind: names[name] for kind, spellings in {**COLUMNS, **MORE}.items() for name in reversed(spellings) if name in names}
    return columns, [kind for kind in COLUMNS if kind not in columns]


def flat(row: Mapping[str, Any], depth: int = MOST_DEPTH) -> dict[str, Any]:
    """The fields of a row with those of the mappings inside it; what stands further out wins."""
    inner: dict[str, Any] = {}
    for value in row.values():
        if isinstance(value, Mapping) and depth > 1:
            inner |= {name: one for name, one in flat(value, depth - 1).items() if name not in inner}
    return {**inner, **{str(name): value for name, value in row.items() if not isinstance(value, Mapping)}}


def json_lines(path: Path, text: str) -> list[tuple[int, Any]]:
    """The values of a file with one on each line, with the numbers of their lines."""
    rows, faults = [], []
    for number, line in enumerate(text.splitlines()[:MOST_ROWS], start=1):
        try:
            rows += [(number, json.loads(line))] if line.strip() else []
        except (ValueError, RecursionError) as error:
            faults.append(Fault(where=f"{path}:{number}", rule=f"not valid JSON: {error}", fix="Write one object a line"))
    refuse_if(faults)
    return rows


def csv_lines(path: Path, text: str) -> list[tuple[int, Any]]:
    """The rows of a table, with the numbers of their lines."""
    reader = csv.DictReader(text.splitlines()[: MOST_ROWS + 1])
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise unusable(path, f"cannot be read: {error}") from error


def unusable(path: Path, rule: str, fix: str = "") -> ConfigError:
    """What to raise for a file that cannot be used."""
    return ConfigError(Fault(where=str(path), rule=rule, fix=fix))


def moment_s(value: Any) -> float:
    """Seconds of a number, or of a date such as `2023-11-16 18:15:46.6805900`."""
    try:
        number = float(value)
    except ValueError:
        whole, dot, fraction = str(value).strip().rstrip("Z").partition(".")
        digits = "".join(letter for letter in fraction[:9] if letter.isdigit())
        return datetime.fromisoformat(whole).timestamp() + (float(f"0.{digits}") if dot and digits else 0.0)
    return next((number * unit for least, unit in LARGE if number > least), number)


def _request(values: Mapping[str, Any], mooncake: bool) -> SeenRequest:
    return SeenRequest(
        time_s=values["time"] * (0.001 if mooncake else 1.0),  # whose times are milliseconds from the beginning
        input_tokens=values["input"],
        output_tokens=values["output"],
        blocks=values["blocks"],
        cached_tokens=values.get("cached"),
        session=values.get("session", ""),
        ended_s=values.get("ended"),
    )


def _tokens(value: Any) -> int:
    return int(float(value))


_VALUES: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "time": ("must be seconds or a date such as 2023-11-16 18:15:46.68", moment_s),
    "input": ("must be a number of tokens", _tokens),
    "output": ("must be a number of tokens", _tokens),
    "blocks": ("must be a list of whole numbers", lambda value: tuple(map(int, value))),
    "cached": ("must be a number of tokens", _tokens),
    "session": ("must be text", str),
    "ended": ("must be seconds or a date such as 2023-11-16 18:15:46.68", moment_s),
}
"""What the values of a trace must be, and how they are read."""

__all__ = ["TITLE", "json_lines", "moment_s", "read", "read_trace", "takes", "unusable"]

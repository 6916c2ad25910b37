"""Lines of text with the tokens of a request in each, as gateways write them: `... prompt_tokens=512 completion_tokens=64`."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

from autoscout.traffic.description import Traffic
from autoscout.traffic.requests import SeenRequest, traffic_of
from autoscout.traffic.sources.table import MOST_ROWS, moment_s, unusable

TITLE = "an access log whose lines name prompt_tokens and completion_tokens"
LOOKED_AT = 2000  # lines in which a request must be found
_INPUT = re.compile(r"\b(?:prompt|input)_tokens[\"']?\s*[=:]\s*[\"']?(\d{1,8})\b", re.IGNORECASE)
_OUTPUT = re.compile(r"\b(?:completion|output|generated|generation)_tokens[\"']?\s*[=:]\s*[\"']?(\d{1,8})\b", re.IGNORECASE)
_CACHED = re.compile(r"\bcached_tokens[\"']?\s*[=:]\s*[\"']?(\d{1,8})\b", re.IGNORECASE)
_COMMON = re.compile(r"\[(\d{1,2}/[A-Za-z]{3}/\d{4}:\d{2}:\d{2}:\d{2}) ([+-]\d{4})\]")
_ISO = re.compile(r"\b(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,9})?Z?)")
_EPOCH = re.compile(r"^\[?(\d{9,19}(?:\.\d{1,9})?)\b")


def takes(text: str, first: Any) -> bool:  # noqa: ARG001 - the same for all sources
    """Whether some line is of a request."""
    return any(_INPUT.search(line) and _OUTPUT.search(line) for line in text.splitlines()[:LOOKED_AT])


def read(path: Path, text: str, windows: int) -> Traffic:
    """The traffic of the lines that hold both numbers and a time; all others are left out."""
    requests, undated = [], 0
    for line in text.splitlines()[:MOST_ROWS]:
        prompt, answer = _INPUT.search(line), _OUTPUT.search(line)
        if not prompt or not answer or not int(prompt[1]) or not int(answer[1]):
            continue
        time_s = _time_s(line)
        if time_s is None:
            undated += 1
            continue
        cached = _CACHED.search(line)
        requests.append(SeenRequest(time_s, int(prompt[1]), int(answer[1]), cached_tokens=int(cached[1]) if cached else None))
    if not requests and undated:
        raise unusable(path, "has no time in its lines", "Write it as [19/Nov/2026:15:00:00 +0000] or 2026-11-19T15:00:00Z")
    return traffic_of(requests, f"access log {path.name}", windows)


def _time_s(line: str) -> float | None:
    try:
        if common := _COMMON.search(line):
            return datetime.strptime(f"{common[1]} {common[2]}", "%d/%b/%Y:%H:%M:%S %z").timestamp()
        if match := _ISO.search(line) or _EPOCH.search(line):
            return moment_s(match[1].replace(",", "."))
    except ValueError:
        return None
    return None


__all__ = ["TITLE", "read", "takes"]

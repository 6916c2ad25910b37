"""An OpenTelemetry export: spans in OTLP's JSON with the attributes `gen_ai.usage.*`, one document or one on each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscout.traffic.description import Traffic
from autoscout.traffic.requests import SeenRequest, traffic_of
from autoscout.traffic.sources.table import json_lines, unusable

TITLE = "an OpenTelemetry export (OTLP JSON) with gen_ai.usage.* in its spans"
INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cached_tokens")
SESSION = ("gen_ai.conversation.id", "session.id")


def takes(text: str, first: Any) -> bool:  # noqa: ARG001 - the same for all sources
    """Whether this is one."""
    return isinstance(first, Mapping) and "resourceSpans" in first


def read(path: Path, text: str, windows: int) -> Traffic:
    """The traffic of its spans; spans without usage are of something else."""
    try:
        documents = [json.loads(text)]
    except (ValueError, RecursionError):
        documents = [one for _, one in json_lines(path, text)]
    requests = [request for one in documents for span in _spans(one) if (request := _request(span)) is not None]
    if not requests:
        raise unusable(path, "has no span with gen_ai.usage.input_tokens and gen_ai.usage.output_tokens", "Export the spans of the server")
    return traffic_of(requests, f"OpenTelemetry spans of {path.name}", windows)


def _spans(one: Any) -> Iterator[Mapping[str, Any]]:
    for resource in _listed(one, "resourceSpans"):
        for scope in (*_listed(resource, "scopeSpans"), *_listed(resource, "instrumentationLibrarySpans")):
            yield from _listed(scope, "spans")


def _listed(one: Any, name: str) -> list[Mapping[str, Any]]:
    values = one.get(name) if isinstance(one, Mapping) else None
    return [value for value in values if isinstance(value, Mapping)] if isinstance(values, list) else []


def _request(span: Mapping[str, Any]) -> SeenRequest | None:
    values: dict[str, Any] = {}
    for attribute in _listed(span, "attributes"):
        value = attribute.get("value")
        if isinstance(value, Mapping):
            values[str(attribute.get("key"))] = next(iter(value.values()), None)
    try:
        prompt, answer = int(_first(values, INPUT)), int(_first(values, OUTPUT))
        begin_s, end = int(span["startTimeUnixNano"]) / 1e9, span.get("endTimeUnixNano")
        cached = _first(values, CACHED)
        if min(prompt, answer) <= 0:
            return None
        ended_s = int(end) / 1e9 if end else None
        return SeenRequest(
            begin_s,
            prompt,
            answer,
            cached_tokens=None if cached is None else int(cached),
            session=str(_first(values, SESSION) or ""),
            ended_s=ended_s,
        )
    except (TypeError, ValueError, KeyError, OverflowError):
        return None


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if name in values), None)


__all__ = ["TITLE", "read", "takes"]

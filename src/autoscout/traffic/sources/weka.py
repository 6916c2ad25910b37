"""Sessions of coding agents in Weka's format: one JSON object for each, with its requests and those of the agents that it calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from autoscout.common.fields import refuse_if
from autoscout.core.errors import Fault
from autoscout.traffic.description import Traffic
from autoscout.traffic.requests import SeenRequest, traffic_of
from autoscout.traffic.sources.table import json_lines

TITLE = "sessions of agents in Weka's format (JSON)"
CALLS, AGENT = ("n", "s"), "subagent"
"""Types of entries: a call of the model, answered at once or as a stream, and an agent with calls of its own."""


def takes(text: str, first: Any) -> bool:  # noqa: ARG001 - the same for all sources
    """Whether this is one."""
    return isinstance(first, Mapping) and "requests" in first and ("block_size" in first or "hash_id_scope" in first)


def read(path: Path, text: str, windows: int) -> Traffic:
    """The traffic of all sessions; their clocks begin anew, so that they say nothing of how sessions arrive."""
    faults: list[Fault] = []
    requests: list[SeenRequest] = []
    for line, one in _documents(path, text):
        if not isinstance(one, Mapping) or not isinstance(one.get("requests"), list):
            faults.append(Fault(where=f"{path}:{line}", field="requests", rule="must be a list of calls"))
            continue
        requests += _calls(one["requests"], str(one.get("id") or line), f"{path}:{line}", faults, "main", 0.0)
    refuse_if(faults)
    traffic = traffic_of(requests, f"sessions of {path.name}", windows or 1)
    unknown = {"gap_variation": None, "seconds": None}
    return traffic.model_copy(update={"windows": tuple(window.model_copy(update=unknown) for window in traffic.windows)})


def _documents(path: Path, text: str) -> list[tuple[int, Any]]:
    try:
        return [(1, json.loads(text))]
    except (ValueError, RecursionError):
        return json_lines(path, text)


def _calls(entries: list[Any], session: str, where: str, faults: list[Fault], agent: str, begin_s: float) -> Iterator[SeenRequest]:
    for number, entry in enumerate(entries):
        kind = entry.get("type") if isinstance(entry, Mapping) else None
        if kind == AGENT and isinstance(entry.get("requests"), list):
            inner = [one for one in entry["requests"] if isinstance(one, Mapping) and one.get("type") in CALLS]
            own = all(_number(one.get("t")) < _number(entry.get("t")) for one in inner[:1])  # times from the beginning of the agent
            yield from _calls(
                inner, session, where, faults, f"{agent}/{entry.get('agent_id', number)}", _number(entry.get("t")) if own else 0.0
            )
            continue
        if kind not in CALLS:
            faults.append(Fault(where=where, field=f"requests[{number}].type", value=repr(kind), rule="must be n, s or subagent"))
            continue
        try:
            begun_s, prompt, answer = float(entry["t"]) + begin_s, int(entry["in"]), int(entry["out"])
            blocks = tuple(map(int, entry.get("hash_ids") or ()))
        except (KeyError, TypeError, ValueError, OverflowError):
            rule = "needs numbers t, in and out, and whole numbers hash_ids"
            faults.append(Fault(where=where, field=f"requests[{number}]", rule=rule))
            continue
        if min(prompt, answer) > 0:
            took_s = entry.get("api_time")
            ended_s = begun_s + float(took_s) if isinstance(took_s, (int, float)) else None
            yield SeenRequest(begun_s, prompt, answer, blocks, session=session, ended_s=ended_s, agent=agent)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


__all__ = ["TITLE", "read", "takes"]

"""Between messages and what the controller knows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from autosched.control.ledger import Entry
from autosched.events import JobEvent
from autosched.service.v1 import control_pb2 as messages
from autoscout.core.config import Config, Value

_FLOATS = ("predicted", "low", "high", "measured")


def value_message(value: Value) -> Any:
    """A scalar as a message."""
    if isinstance(value, bool):
        return messages.Value(flag=value)
    if isinstance(value, int):
        return messages.Value(whole=value)
    if isinstance(value, float):
        return messages.Value(number=value)
    return messages.Value(text="" if value is None else value)


def value_of(message: Any) -> Value:
    """The scalar of a message; None where it holds none."""
    kind = message.WhichOneof("kind")
    value: Value = getattr(message, kind) if kind else None
    return value


def values_of(mapping: Mapping[str, Any]) -> dict[str, Value]:
    """The scalars of a map."""
    return {name: value_of(message) for name, message in mapping.items()}


def _values(config: Mapping[str, Value]) -> dict[str, Any]:
    return {name: value_message(value) for name, value in config.items() if value is not None}


def decision_message(entry: Entry) -> Any:
    """A decision as a message; numbers that are not there are left out."""
    numbers = {name: getattr(entry, name) for name in _FLOATS if math.isfinite(getattr(entry, name))}
    plain = {name: getattr(entry, name) for name in ("id", "at_s", "state", "kind", "words", "by", "of", "why", "diff")}
    return messages.Decision(
        **plain, **numbers, before=_values(entry.before), after=_values(entry.after), contributions=dict(entry.contributions)
    )


def entry_of(message: Any) -> Entry:
    """The decision of a message."""
    numbers: dict[str, Any] = {name: getattr(message, name) if message.HasField(name) else math.nan for name in _FLOATS}
    plain: dict[str, Any] = {name: getattr(message, name) for name in ("id", "at_s", "state", "kind", "words", "by", "of", "why", "diff")}
    before, after = Config(values_of(message.before)), Config(values_of(message.after))
    return Entry(**plain, **numbers, before=before, after=after, contributions=dict(message.contributions))


def line_message(line: tuple[int, float, int | None, str, str]) -> Any:
    """A line of the audit log as a message."""
    number, at_s, decision, event, words = line
    return messages.AuditLine(number=number, at_s=at_s, decision=decision or 0, event=event, words=words)


def event_message(event: JobEvent) -> Any:
    """A job event as a message."""
    attributes = {name: value_message(value) for name, value in event.attributes.items()}
    return messages.JobEvent(job=event.job, kind=event.kind, at_s=event.at_s, attributes=attributes)


def events_of(stream: Iterable[Any]) -> Iterable[JobEvent]:
    """The job events of a stream of messages."""
    for message in stream:
        attributes = {name: value for name, value in values_of(message.attributes).items() if value is not None}
        numbers = {name: float(value) if isinstance(value, int) else value for name, value in attributes.items()}
        yield JobEvent(job=message.job, kind=message.kind, at_s=message.at_s, attributes=numbers)

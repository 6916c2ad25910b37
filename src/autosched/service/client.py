"""A typed client of a controller's service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import grpc

from autosched.control.ledger import Entry
from autosched.control.repository import Added
from autosched.events import JobEvent
from autosched.service import convert
from autosched.service.calls import stubs
from autosched.service.v1 import control_pb2 as messages
from autoscout.core.config import Config, Value
from autoscout.core.errors import AutoScoutError, Fault


class ServiceError(AutoScoutError):
    """A controller's service refused a call or cannot be reached.

    Attributes:
        code: Name of gRPC's status, such as UNAUTHENTICATED.
    """

    def __init__(self, faults: Any, code: str = "") -> None:
        super().__init__(faults)
        self.code = code


@dataclass(frozen=True, kw_only=True)
class ControllerHealth:
    """How a controller is."""

    healthy: bool
    words: str
    cluster: str
    mode: str
    waiting: int
    running: int
    settings: Config


@dataclass(frozen=True, kw_only=True)
class AuditLine:
    """A line of the audit log."""

    number: int
    at_s: float
    decision: int
    event: str
    words: str


class ControlClient:
    """Calls the service of a controller.

        with ControlClient("127.0.0.1:7433") as control:
            print(control.health().words)

    Args:
        address: host:port.
        token: Shown with every call.
        certificate: PEM of who signed the server's certificate; None: no TLS.
        timeout_s: Of a call.
    """

    def __init__(self, address: str, token: str = "", certificate: bytes | None = None, timeout_s: float = 30.0) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._channel = (
            grpc.secure_channel(address, grpc.ssl_channel_credentials(certificate)) if certificate else grpc.insecure_channel(address)
        )
        self._stubs = stubs(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._channel.close()

    def _call(self, method: str, request: Any) -> Any:
        try:
            return self._stubs[method](request, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.RpcError as error:
            raise self._error(method, error) from error

    def _error(self, method: str, error: Any) -> ServiceError:
        return ServiceError(Fault(where=f"{self._address} {method}", rule=str(error.details() or error.code().name)), error.code().name)

    def health(self) -> ControllerHealth:
        """How it is."""
        answer = self._call("Health", messages.HealthRequest())
        plain = {name: getattr(answer, name) for name in ("healthy", "words", "cluster", "mode", "waiting", "running")}
        return ControllerHealth(**plain, settings=Config(convert.values_of(answer.settings)))

    def history(self, from_s: float | None = None, to_s: float | None = None, most: int = 100) -> list[Entry]:
        """Decisions, oldest first."""
        answer = self._call("History", messages.HistoryRequest(from_s=from_s, to_s=to_s, most=most))
        return [convert.entry_of(message) for message in answer.decisions]

    def explain(self, number: int) -> str:
        """Why a decision was made, and what became of it."""
        return str(self._call("Explain", messages.DecisionRequest(id=number)).text)

    def propose(self, settings: Mapping[str, Value]) -> Entry:
        """Ask for other settings; they wait for approval."""
        return convert.entry_of(self._call("Propose", _wanted(settings)))

    def apply(self, settings: Mapping[str, Value]) -> Entry:
        """Ask for other settings, approved."""
        return convert.entry_of(self._call("Apply", _wanted(settings)))

    def approve(self, number: int) -> Entry:
        """Approve a proposal."""
        return convert.entry_of(self._call("Approve", messages.DecisionRequest(id=number)))

    def roll_back(self, number: int) -> Entry:
        """Ask for the settings before a change."""
        return convert.entry_of(self._call("RollBack", messages.DecisionRequest(id=number)))

    def what_if(self, knob: str) -> list[tuple[Value, float]]:
        """Value -> predicted gain of one knob on the current queue."""
        return [(convert.value_of(row.value), row.gain) for row in self._call("WhatIf", messages.WhatIfRequest(knob=knob)).rows]

    def record(self, events: Iterable[JobEvent]) -> Added:
        """Send job events."""
        answer = self._call("Record", (convert.event_message(event) for event in events))
        return Added(new=answer.added, known=answer.known)

    def watch(self, after: int = 0, *, follow: bool = True) -> Iterator[AuditLine]:
        """Lines of the audit log; with `follow` as they come, until the connection ends."""
        try:
            request = messages.WatchRequest(after=after, follow=follow)
            for line in self._stubs["Watch"](request, metadata=self._metadata, timeout=None if follow else self._timeout_s):
                yield AuditLine(**{name: getattr(line, name) for name in ("number", "at_s", "decision", "event", "words")})
        except grpc.RpcError as error:
            raise self._error("Watch", error) from error


def _wanted(settings: Mapping[str, Value]) -> Any:
    return messages.ProposeRequest(settings={name: convert.value_message(value) for name, value in settings.items()})

"""The server: requests become rows of the ledger, answers are read from it."""

from __future__ import annotations

import math
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from autosched.control import actions
from autosched.control.controller import Controller
from autosched.control.explain import explanation
from autosched.control.ledger import Entry
from autosched.control.settings import ServiceBlock
from autosched.service import convert
from autosched.service.access import Caller, Rates, Tokens, check_exposure
from autosched.service.calls import NAME, handlers
from autosched.service.gate import TokenGate, token_in
from autosched.service.v1 import control_pb2 as messages
from autoscout.core.errors import AutoScoutError, ConfigError, Fault, StoreError
from autoscout.core.log import logger

log = logger(__name__)

THREADS = 16
WATCHERS = 6  # streams at once; each holds a thread, also when its client never reads
POLL_S = 0.5  # between two looks at the ledger for a watcher
MOST_HISTORY = 1_000
MOST_AGE_S = 3_600  # of a connection: one that is stuck ends then
_LOCAL = Caller(name="local", role="operator")


class Service:
    """Answers calls about one controller."""

    def __init__(self, controller: Controller, tokens: Tokens | None, rates: Rates) -> None:
        self._controller, self._tokens, self._rates = controller, tokens, rates
        self._watchers = threading.BoundedSemaphore(WATCHERS)
        self.stopping = threading.Event()

    # ---------------------------------------------------------------------------------------------------------------- who may call

    def _enter(self, context: Any, method: str) -> Caller:
        """Who calls; ends the call where they may not."""
        caller: Caller | None = _LOCAL
        if self._tokens is not None:
            caller = self._tokens.caller(token_in(context.invocation_metadata()))
        if not self._rates.admit(caller.name if caller else context.peer().rpartition(":")[0]):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls; wait a little")
        if caller is None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "needs a valid token: metadata authorization: Bearer TOKEN")
        assert caller is not None
        if not caller.may(method):
            context.abort(grpc.StatusCode.PERMISSION_DENIED, f"a {caller.role} may not call {method}")
        return caller

    def _answer(self, context: Any, method: str, work: Callable[[Caller], Any]) -> Any:
        caller = self._enter(context, method)
        try:
            return work(caller)
        except StoreError as error:
            log.warning("%s: %s", method, error)
            context.abort(grpc.StatusCode.UNAVAILABLE, "the store does not answer; try again later")
        except ConfigError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error)[:4_000])
        except AutoScoutError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error)[:4_000])
        raise AssertionError("abort raises")

    # --------------------------------------------------------------------------------------------------------------------- requests

    def Propose(self, request: Any, context: Any) -> Any:  # noqa: N802 - names of the protocol
        return self._answer(context, "Propose", lambda caller: self._propose(request, caller, approved=False))

    def Apply(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(context, "Apply", lambda caller: self._propose(request, caller, approved=True))

    def _propose(self, request: Any, caller: Caller, *, approved: bool) -> Any:
        self._may_change()
        changes = convert.values_of(request.settings)
        self._controller.check_values(changes)
        entry = actions.propose(self._controller.ledger, changes, caller.name, self._now_s(), approved=approved)
        return convert.decision_message(entry)

    def Approve(self, request: Any, context: Any) -> Any:  # noqa: N802
        def work(caller: Caller) -> Any:
            self._may_change()
            return convert.decision_message(actions.approve(self._controller.ledger, request.id, caller.name, self._now_s()))

        return self._answer(context, "Approve", work)

    def RollBack(self, request: Any, context: Any) -> Any:  # noqa: N802
        def work(caller: Caller) -> Any:
            self._may_change()
            words = f"asked for by {caller.name}"
            return convert.decision_message(actions.roll_back(self._controller.ledger, request.id, caller.name, words, self._now_s()))

        return self._answer(context, "RollBack", work)

    def _may_change(self) -> None:
        actions.require_changing(self._controller.settings.mode)

    def _now_s(self) -> float:
        return self._controller.live.clock.now_s()

    # ---------------------------------------------------------------------------------------------------------------------- answers

    def History(self, request: Any, context: Any) -> Any:  # noqa: N802
        def work(_: Caller) -> Any:
            from_s = request.from_s if request.HasField("from_s") else -math.inf
            to_s = request.to_s if request.HasField("to_s") else math.inf
            if request.most < 0 or request.most > MOST_HISTORY:
                raise ConfigError(Fault(where="History", field="most", value=str(request.most), rule=f"must be 0 to {MOST_HISTORY}"))
            entries = self._controller.ledger.history(from_s, to_s, request.most or 100)
            return messages.HistoryReply(decisions=[convert.decision_message(entry) for entry in entries])

        return self._answer(context, "History", work)

    def Explain(self, request: Any, context: Any) -> Any:  # noqa: N802
        def work(_: Caller) -> Any:
            entry: Entry = self._controller.ledger.entry(request.id)
            lines = self._controller.ledger.log(decision=entry.id)
            return messages.Explanation(
                decision=convert.decision_message(entry),
                text=explanation(entry, lines),
                lines=[convert.line_message(line) for line in lines],
            )

        return self._answer(context, "Explain", work)

    def Health(self, request: Any, context: Any) -> Any:  # noqa: N802, ARG002
        def work(_: Caller) -> Any:
            state, settings = self._controller.state, self._controller.settings
            numbers = {"at_s": state.at_s, "load": state.load}
            return messages.HealthReply(
                healthy=state.healthy,
                words=state.words,
                cluster=settings.cluster,
                mode=settings.mode,
                waiting=state.waiting,
                running=state.running,
                settings={name: convert.value_message(value) for name, value in state.settings.items()},
                **{name: value for name, value in numbers.items() if math.isfinite(value)},
            )

        return self._answer(context, "Health", work)

    def WhatIf(self, request: Any, context: Any) -> Any:  # noqa: N802
        def work(_: Caller) -> Any:
            rows = self._controller.what_if(request.knob)
            return messages.WhatIfReply(
                rows=[messages.WhatIfReply.Row(value=convert.value_message(value), gain=gain) for value, gain in rows]
            )

        return self._answer(context, "WhatIf", work)

    def Record(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        def work(_: Caller) -> Any:
            added = self._controller.repository.add(self._controller.settings.cluster, convert.events_of(request_iterator))
            return messages.RecordReply(added=added.new, known=added.known)

        return self._answer(context, "Record", work)

    def Watch(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802
        self._enter(context, "Watch")
        if not self._watchers.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{WATCHERS} watchers are there already")
        try:
            after = request.after
            while context.is_active() and not self.stopping.is_set():
                for line in self._controller.ledger.log(after=after):
                    after = line[0]
                    yield convert.line_message(line)
                if not request.follow:
                    return
                self.stopping.wait(POLL_S)
        finally:
            self._watchers.release()


class ControlServer:
    """A running service.

    Args:
        controller: What it answers about.
        about: Address, tokens, certificates and limits.

    Raises:
        ConfigError: it would be open to other machines without tokens and TLS, or cannot use the address; all faults at once.
    """

    def __init__(self, controller: Controller, about: ServiceBlock) -> None:
        tokens = Tokens.read(Path(about.tokens)) if about.tokens else None
        credentials = _credentials(about)
        check_exposure(about.address, credentials is not None, tokens is not None, "service")
        self._service = Service(controller, tokens, Rates(per_second=about.per_second))
        self._server = grpc.server(
            ThreadPoolExecutor(THREADS, thread_name_prefix="control"),
            interceptors=[TokenGate(tokens)] if tokens is not None else [],
            options=[
                ("grpc.max_receive_message_length", about.most_bytes),
                ("grpc.max_send_message_length", 16 * 2**20),
                ("grpc.max_metadata_size", 8_192),
                ("grpc.max_concurrent_streams", THREADS),
                ("grpc.max_connection_age_ms", MOST_AGE_S * 1_000),
                ("grpc.max_connection_age_grace_ms", 10_000),
                ("grpc.so_reuseport", 0),
            ],
            maximum_concurrent_rpcs=2 * THREADS,
        )
        self._server.add_generic_rpc_handlers((handlers(self._service),))
        self._health = health.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        try:
            add = self._server.add_secure_port if credentials else self._server.add_insecure_port
            self.port = add(about.address, credentials) if credentials else add(about.address)
        except RuntimeError as error:
            self.port = 0
            log.debug("%s", error)
        if not self.port:
            fix = "Is another controller running?"
            raise ConfigError(Fault(where="service", field="address", value=about.address, rule="cannot be used", fix=fix))
        self._controller = controller

    def start(self) -> None:
        """Answer calls from now on."""
        self._server.start()
        self.tell_health()

    def tell_health(self) -> None:
        """Bring the standard health service up to date."""
        status = health_pb2.HealthCheckResponse.SERVING if self._controller.state.healthy else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in ("", NAME):
            self._health.set(name, status)

    def stop(self) -> None:
        """End all calls and let go of the address."""
        self._service.stopping.set()
        with suppress(Exception):
            self._health.enter_graceful_shutdown()
        self._server.stop(1.0).wait(5.0)


def _credentials(about: ServiceBlock) -> Any:
    if not about.certificate and not about.key:
        return None
    faults = [Fault(where="service", field=name, rule="TLS needs certificate and key") for name in ("certificate", "key")
              if not getattr(about, name)]  # fmt: skip
    pairs = {}
    for name in ("certificate", "key"):
        path = getattr(about, name)
        try:
            pairs[name] = Path(path).read_bytes() if path else b""
        except OSError as error:
            faults.append(Fault(where="service", field=name, value=str(path), rule=f"cannot be read: {error.strerror}"))
    if faults:
        raise ConfigError(faults)
    try:  # gRPC would only say that the address cannot be used
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(str(about.certificate), about.key, password="")
    except ssl.SSLError as error:
        rule = f"does not go with the key, or one of them is not PEM: {error.reason or error}"
        raise ConfigError(Fault(where="service", field="certificate", value=str(about.certificate), rule=rule)) from error
    return grpc.ssl_server_credentials([(pairs["key"], pairs["certificate"])])

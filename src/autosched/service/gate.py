"""What is decided about a call as soon as its headers are there: without a token it takes no place that others need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from autosched.service.access import Tokens

STRANGERS = 4  # calls without a token that may ask at once whether the service is healthy, as probes do
PATIENCE_S = 5.0  # for the message of such a call
HEALTH = "/grpc.health.v1.Health/"


def token_in(metadata: Any) -> str:
    """The token that a call shows; empty without one."""
    credentials = next((value for name, value in metadata or () if name == "authorization"), "")
    return credentials.removeprefix("Bearer ") if isinstance(credentials, str) else ""


class TokenGate(grpc.ServerInterceptor):  # type: ignore[misc]  # untyped in its package
    """Ends calls without a valid token before their message is there.

    gRPC gives a call its place among the few that may run at once when its headers have come, and a handler only when its message has
    come, too. So callers who send headers alone would keep everybody else out.

    Args:
        tokens: Whose calls are answered.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._strangers = threading.BoundedSemaphore(STRANGERS)

    def intercept_service(self, continuation: Callable[[Any], Any], call: Any) -> Any:
        handler = continuation(call)
        if handler is None or self._tokens.caller(token_in(call.invocation_metadata)) is not None:
            return handler
        if call.method == f"{HEALTH}Check":
            return grpc.stream_unary_rpc_method_handler(
                self._patient(handler.unary_unary),
                request_deserializer=health_pb2.HealthCheckRequest.FromString,
                response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
            )
        return grpc.stream_stream_rpc_method_handler(_refuse)  # a stream: its handler does not wait for a message

    def _patient(self, check: Callable[[Any, Any], Any]) -> Callable[[Iterator[Any], Any], Any]:
        """The standard question for health, from few strangers at once and with little time for each."""

        def answer(requests: Iterator[Any], context: Any) -> Any:
            if not self._strangers.acquire(blocking=False):
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many calls without a token; wait a little")
            end = threading.Timer(PATIENCE_S, context.cancel)
            end.daemon = True
            end.start()
            try:
                return check(next(requests), context)
            finally:
                end.cancel()
                self._strangers.release()

        return answer


def _refuse(_: Any, context: Any) -> Iterator[Any]:
    context.abort(grpc.StatusCode.UNAUTHENTICATED, "needs a valid token: metadata authorization: Bearer TOKEN")
    yield  # never reached: gRPC wants a stream


__all__ = ["TokenGate", "token_in"]

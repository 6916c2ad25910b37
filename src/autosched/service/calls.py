"""The calls of the service, as its .proto file declares them; both ends are made from that one description."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass

from autosched.service.v1 import control_pb2

_SERVICE: Any = control_pb2.DESCRIPTOR.services_by_name["Control"]
NAME: str = _SERVICE.full_name
_KINDS = {
    (False, False): "unary_unary",
    (False, True): "unary_stream",
    (True, False): "stream_unary",
    (True, True): "stream_stream",
}
"""Whether request and answer are streams -> the word that gRPC has for it."""


def _kind(method: Any) -> str:
    return _KINDS[method.client_streaming, method.server_streaming]


def handlers(service: object) -> Any:
    """What a server needs to answer calls with the methods of `service` that have their names."""
    methods = {
        method.name: getattr(grpc, f"{_kind(method)}_rpc_method_handler")(
            getattr(service, method.name),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for method in _SERVICE.methods
    }
    return grpc.method_handlers_generic_handler(NAME, methods)


def stubs(channel: Any) -> dict[str, Callable[..., Any]]:
    """Name of a call -> the function that makes it over a channel."""
    return {
        method.name: getattr(channel, _kind(method))(
            f"/{NAME}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        for method in _SERVICE.methods
    }


__all__ = ["NAME", "handlers", "stubs"]

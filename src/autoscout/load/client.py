"""A client of the OpenAI API that is no bottleneck: asyncio, HTTP/1.1 with keep-alive, server-sent events, nothing else needed.

A piece of a stream is dated when it arrives and looked at as little as possible; JSON is read only where it says more than "one more
token". Thousands of requests can be under way on one core.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.core.clock import RealClock
from autoscout.load.answers import Reply

HOST = "127.0.0.1"
IDLE_S = 2.0  # a connection that was not used for longer is not used again: servers close theirs after five seconds or so
PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
GIVEN_UP = "given up"  # the error of a request that was under way when the load was stopped
CLOCK = RealClock()

_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding: *chunked", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
_TOKEN = re.compile(rb'"choices": ?\[ ?\{')  # the last event of a stream has no choices but the usage
_TEXT = re.compile(rb'"(?:text|content)": ?"(?:\xef\xbf\xbd|\\ufffd|\\n| )*(?!\xef\xbf\xbd|\\ufffd|\\n|[ "])')  # one that can be read
_TELLS = re.compile(rb'"finish_reason": ?"|"usage": ?\{|"error"|"role"')  # an event that says more than a token


class RequestFailed(Exception):  # noqa: N818 - a result
    """The connection broke, or the server answered with an error; says why."""


class _Exchange(asyncio.Protocol):
    """One connection: a request at a time, its answer as bytes to `_receive`."""

    def __init__(self) -> None:
        self.usable = True
        self.idle_since_s = 0.0
        self._received = b""
        self._answer: Reply | None = None
        self._chat = False
        self._done: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._done is not None and not self._done.done():
            if self._in_body and self._left is None and not self._chunked:  # a body without a length ends with the connection
                self._finish()
            else:
                self._done.set_exception(RequestFailed(f"the connection broke: {exc or 'closed by the server'}"))

    def send(self, data: bytes, answer: Reply | None, *, chat: bool = False) -> asyncio.Future[bytes]:
        """Send a request; the future gives the body of an answer that is no stream.

        Args:
            data: The whole request.
            answer: Gets the times and counts of a stream.
            chat: Whether the answer is one of the chat endpoint.
        """
        self._answer, self._chat, self.idle_since_s = answer, chat, 0.0
        self._in_body = self._chunked = self._stream = False
        self._left: int | None = None
        self._body: list[bytes] = []
        self._events = b""
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        return self._done

    def close(self) -> None:
        """Break the connection; an engine then stops working on the request."""
        self.usable = False
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        now_s = CLOCK.span_s()
        if self._done is None or self._done.done():
            self.close()  # nobody asked
            return
        self._received = self._received + data if self._received else data
        if not self._in_body:
            head, blank_line, rest = self._received.partition(b"\r\n\r\n")
            if not blank_line:
                return
            self._received = rest
            self._head(head)
        if self._chunked:
            self._dechunk(now_s)
        else:
            self._pass(self._received, now_s)
            self._left = None if self._left is None else self._left - len(self._received)
            self._received = b""
            if self._left is not None and self._left <= 0:
                self._finish()

    def _head(self, head: bytes) -> None:
        status = _STATUS.match(head)
        self._code = int(status[1]) if status else 0
        self._in_body = True
        self._chunked = _CHUNKED.search(head) is not None
        self._left = int(match[1]) if (match := _LENGTH.search(head)) else None
        self._stream = self._code == 200 and b"text/event-stream" in head
        self.usable = self.usable and _CLOSE.search(head) is None

    def _dechunk(self, now_s: float) -> None:
        data, at = self._received, 0
        while (end := data.find(b"\r\n", at)) >= 0:
            try:
                size = int(data[at:end].partition(b";")[0] or b"z", 16)
            except ValueError:
                self._fail("the server's answer is no HTTP")
                return
            after = end + 2 + size
            if len(data) < after + 2:
                break
            if size == 0:
                self._received = b""
                self._finish()
                return
            self._pass(data[end + 2 : after], now_s)
            at = after + 2
        self._received = data[at:]

    def _pass(self, data: bytes, now_s: float) -> None:
        if not self._stream or self._answer is None:
            self._body.append(data)
            return
        self._events = self._events + data if self._events else data
        if b"\r" in self._events:
            self._events = self._events.replace(b"\r\n", b"\n")
        *events, self._events = self._events.split(b"\n\n")
        for event in events:
            self._event(event, now_s)

    def _event(self, event: bytes, now_s: float) -> None:
        answer = self._answer
        assert answer is not None
        if not event.startswith((b"data:", b"error:")) or event.endswith(b"[DONE]"):
            return
        if not answer.readable:
            answer.readable = _TEXT.search(event) is not None
        if not event.startswith(b"error:") and not _TELLS.search(event):
            if _TOKEN.search(event):
                answer.times_s.append(now_s)
            return
        try:
            kind, _, text = event.partition(b":")
            data = json.loads(text)
            self._read(answer, {"error": data} if kind == b"error" else data, now_s)
        except (ValueError, TypeError, AttributeError, KeyError, IndexError) as fault:
            self._fail(f"the server sent an event that cannot be read: {fault}")

    def _read(self, answer: Reply, data: Mapping[str, Any], now_s: float) -> None:
        if error := data.get("error"):
            code = error.get("code") if isinstance(error, Mapping) else None
            answer.error = answer.error or (f"status {code}: " if isinstance(code, int) else "") + _message(error)
        for choice in (data.get("choices") or ())[:1]:
            delta = (choice.get("delta") or {}) if self._chat else choice
            text = delta.get("content" if self._chat else "text") or delta.get("reasoning_content") or delta.get("reasoning")
            # A chat begins with an event that only names the role, and some servers end with one that only gives the reason. A token
            # need not have text.
            only_role = self._chat and "role" in delta and not choice.get("finish_reason")
            only_reason = choice.get("finish_reason") and len(answer.times_s) >= answer.requested_tokens
            if text or not (only_role or only_reason):
                answer.times_s.append(now_s)
        if usage := data.get("usage"):
            answer.output_tokens = int(usage.get("completion_tokens") or 0)
            answer.input_tokens = int(usage.get("prompt_tokens") or answer.input_tokens)
            answer.cached_tokens = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)

    def _finish(self) -> None:
        assert self._done is not None
        self.idle_since_s = CLOCK.span_s()
        if self._done.done():
            return
        body = b"".join(self._body)
        if self._code == 200:
            self._done.set_result(body)
        else:
            try:
                data = json.loads(body)
                message = _message(data.get("error") or data.get("detail") or data.get("message") or data)
            except (ValueError, AttributeError):
                message = body.decode("utf-8", errors="replace")
            self._done.set_exception(RequestFailed(f"status {self._code}: {message[:300]}"))

    def _fail(self, why: str) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(RequestFailed(why))
        self.close()


class Client:
    """Asks one server; to be used inside one event loop.

    Args:
        port: Of the server, on this machine.
        model: The name under which it offers the model.
        endpoint: `completions` or `chat`.
        limit_s: A request without its last token after this long is given up.
        fields: More fields of every request.
        keep_alive: Use a connection for several requests.
    """

    def __init__(
        self,
        port: int,
        model: str,
        *,
        endpoint: str = "completions",
        limit_s: float = 300.0,
        fields: Mapping[str, Any] | None = None,
        keep_alive: bool = True,
    ) -> None:
        self._port = port
        self._chat = endpoint == "chat"
        self._path = PATHS[endpoint]
        self._limit_s = limit_s
        self._fields = {"model": model, **(fields or {})}
        self._headers = f"Host: {HOST}:{port}\r\n" + ("" if keep_alive else "Connection: close\r\n")
        self._idle: list[_Exchange] = []

    def body(self, prompt: Sequence[int] | str, output_tokens: int) -> bytes:
        """The whole request for an answer of exactly this length, as a stream; made before it is due."""
        request: dict[str, Any] = {"messages": [{"role": "user", "content": prompt}]} if self._chat else {"prompt": prompt}
        request |= {
            "max_tokens": output_tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return self._post(self._path, request)

    async def ask(self, body: bytes, answer: Reply) -> None:
        """Send a request and wait for its last token. Never raises for what the server does: `answer.error` says it."""
        answer.sent_s = CLOCK.span_s()
        exchange = None
        try:
            async with asyncio.timeout(self._limit_s):
                exchange = await self._connect()
                await exchange.send(body, answer, chat=self._chat)
            if not answer.error and not answer.times_s:
                answer.error = "no tokens"
            elif not answer.error and answer.output_tokens and answer.output_tokens != answer.requested_tokens:
                answer.error = f"asked for {answer.requested_tokens} tokens, got {answer.output_tokens}"
        except TimeoutError:
            answer.error = f"not answered within {self._limit_s:g} s"
        except (RequestFailed, OSError) as error:
            answer.error = answer.error or str(error)
        except asyncio.CancelledError:
            answer.error = answer.error or GIVEN_UP
            raise
        finally:
            answer.ended_s = CLOCK.span_s()
            if exchange is not None:
                self._give_back(exchange)

    async def post(self, request: Mapping[str, Any], path: str = "") -> Any:
        """The whole answer to a request that is no stream, by the endpoint or another path.

        Raises:
            RequestFailed: there was none.
        """
        data = await self._whole(self._post(path or self._path, request))
        try:
            return json.loads(data)
        except ValueError as error:
            raise RequestFailed(f"the server's answer is no JSON: {data[:200]!r}") from error

    async def get(self, path: str) -> bytes:
        """The body of a page.

        Raises:
            RequestFailed: there was none, or its status is not 200.
        """
        return await self._whole(f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode())

    def close(self) -> None:
        for exchange in self._idle:
            exchange.close()
        self._idle.clear()

    async def _whole(self, data: bytes) -> bytes:
        exchange = None
        try:
            async with asyncio.timeout(self._limit_s):
                exchange = await self._connect()
                return await exchange.send(data, None)
        except OSError as error:  # also a timeout
            raise RequestFailed(str(error) or f"not answered within {self._limit_s:g} s") from error
        finally:
            if exchange is not None:
                self._give_back(exchange)

    def _post(self, path: str, request: Mapping[str, Any]) -> bytes:
        data = json.dumps({**request, **self._fields}, separators=(",", ":")).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        return head.encode() + data

    async def _connect(self) -> _Exchange:
        while self._idle:
            exchange = self._idle.pop()
            if exchange.usable and CLOCK.span_s() - exchange.idle_since_s < IDLE_S:
                return exchange
            exchange.close()
        _, exchange = await asyncio.get_running_loop().create_connection(_Exchange, HOST, self._port)
        return exchange

    def _give_back(self, exchange: _Exchange) -> None:
        if exchange.usable and exchange.idle_since_s:
            self._idle.append(exchange)
        else:
            exchange.close()


def _message(error: object) -> str:
    return str(error.get("message", error)) if isinstance(error, Mapping) else str(error)

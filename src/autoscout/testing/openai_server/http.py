"""The HTTP side of the fake server: as much of HTTP/1.1 and of the OpenAI API as engines' clients use."""

from __future__ import annotations

import asyncio
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from autoscout.testing.openai_server.engine import TOP, Request, StandInEngine

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)
REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error", 503: "Service Unavailable"}


class Connection(asyncio.Protocol):
    """One client; requests on a connection are answered one after the other."""

    def __init__(self, engine: StandInEngine, is_healthy: Callable[[], bool]) -> None:
        self._engine = engine
        self._is_healthy = is_healthy
        self._received = b""
        self._busy: Request | None = None
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._busy is not None:
            self._busy.gone = True

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, separator, rest = self._received.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(match[1]) if (match := _LENGTH.search(head)) else 0
        if len(rest) < length:
            return
        self._received = rest[length:]
        self._closing = _CLOSE.search(head) is not None
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        self._route(method, path.partition("?")[0], rest[:length])

    def _route(self, method: str, path: str, body: bytes) -> None:
        engine = self._engine
        if path in ("/health", "/ping"):
            self._answer(200 if self._is_healthy() else 503, "")
        elif not self._is_healthy():
            self._answer(503, "starting")
        elif path == "/v1/models":
            self._answer(200, json.dumps({"object": "list", "data": [{"id": engine.settings.model, "object": "model"}]}))
        elif path == "/metrics":
            self._answer(200, metrics(engine), "text/plain; version=0.0.4")
        elif method == "POST" and path in ("/tokenize", "/v1/tokenize"):
            self._tokenize(body)
        elif method == "POST" and path in ("/v1/completions", "/v1/chat/completions"):
            self._generate(body, chat="chat" in path)
        else:
            self._error(404, "Not Found")

    def _tokenize(self, body: bytes) -> None:
        try:
            tokens = _tokens(str(json.loads(body)["prompt"]), self._engine.settings.vocab_size)
        except (ValueError, KeyError, TypeError) as error:
            self._error(400, f"bad request: {error!r}")
            return
        self._engine.speculation.words.update(tokens)
        self._answer(200, json.dumps({"tokens": tokens, "count": len(tokens), "max_model_len": self._engine.settings.max_model_len}))

    def _generate(self, body: bytes, *, chat: bool) -> None:
        settings = self._engine.settings
        try:
            asked = json.loads(body)
            prompt = _tokens(asked["messages"] if chat else asked["prompt"], settings.vocab_size)
            if chat or isinstance(asked["prompt"], str):
                self._engine.speculation.words.update(prompt)
            max_tokens = int(asked.get("max_tokens") or asked.get("max_completion_tokens") or 16)
        except (ValueError, KeyError, TypeError) as error:
            self._error(400, f"bad request: {error!r}")
            return
        if asked.get("model") not in (settings.model, None):
            self._error(404, f"The model `{asked.get('model')}` does not exist.")
        elif len(prompt) + max_tokens > settings.max_model_len:
            self._error(400, f"This model's maximum context length is {settings.max_model_len} tokens.")
        elif any(not 0 <= token < settings.vocab_size for token in prompt):
            self._error(400, f"Token id {max(prompt)} is out of vocabulary")
        elif settings.is_failing("error", self._engine.counters.requests):
            self._error(500, "internal error")
        else:
            answer = _Streamed(self, asked, chat=chat) if asked.get("stream") else _Whole(self, asked, chat=chat)
            self._busy = answer.request = self._engine.submit(prompt, max_tokens, answer.token)

    def logprobs(self, asked: dict[str, Any], numbers: list[tuple[int, int]]) -> dict[str, Any] | None:
        """The block of a completion for these tokens, given by number; None when it was not asked for."""
        if asked.get("logprobs") in (None, False):
            return None
        engine, names = self._engine, bool(asked.get("return_tokens_as_token_ids"))
        count = min(TOP, int(asked["logprobs"]))
        labels, values, top = [], [], []
        for number, token in numbers:
            value = engine.logprob(token, number)
            labels.append(f"token_id:{token}" if names else _text(token))
            values.append(value)
            others = {f"token_id:{token + other}" if names else _text(token + other): value - other for other in range(1, count)}
            top.append({labels[-1]: value, **others})
        return {"tokens": labels, "token_logprobs": values, "top_logprobs": top, "text_offset": [0] * len(labels)}

    def write(self, data: bytes) -> None:
        """Send to the client, if it is still there."""
        if not self._transport.is_closing():
            self._transport.write(data)

    def done(self) -> None:
        """The answer is complete."""
        self._busy = None
        if self._closing:
            self._transport.close()

    def _answer(self, code: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        head = f"HTTP/1.1 {code} {REASONS[code]}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.write(head.encode() + data)
        self.done()

    def _error(self, code: int, message: str) -> None:
        self._answer(code, json.dumps({"error": {"message": message, "type": REASONS[code], "code": code}}))

    answer = _answer


class _Answer(ABC):
    """How tokens reach the client."""

    def __init__(self, connection: Connection, asked: dict[str, Any], *, chat: bool) -> None:
        self.connection = connection
        self.asked = asked
        self.chat = chat
        self.request: Request | None = None

    def usage(self, tokens: int) -> dict[str, Any]:
        assert self.request is not None
        length = len(self.request.prompt)
        details = {"cached_tokens": self.request.cached}
        return {"prompt_tokens": length, "completion_tokens": tokens, "total_tokens": length + tokens, "prompt_tokens_details": details}

    def choice(self, text: str, *, last: bool, whole: bool) -> dict[str, Any]:
        body: dict[str, Any] = {"text": text}
        if self.chat:
            body = {"message" if whole else "delta": {"role": "assistant", "content": text}}
        return {"index": 0, **body, "finish_reason": "length" if last else None}

    @abstractmethod
    def token(self, number: int, token: int, last: bool) -> None:
        """One more token of the answer."""


class _Streamed(_Answer):
    """Server-sent events, a token each, in chunks."""

    def token(self, number: int, token: int, last: bool) -> None:
        assert self.request is not None
        if number == 0:
            self.connection.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
        if token >= 0:
            choice = self.choice(_text(token), last=last, whole=False)
            if not self.chat:
                choice["logprobs"] = self.connection.logprobs(self.asked, [(number, token)])
            self._event({"id": "cmpl-0", "object": "text_completion", "choices": [choice]})
        if last:
            tokens = 0 if token < 0 else number + 1
            if (self.asked.get("stream_options") or {}).get("include_usage"):
                self._event({"id": "cmpl-0", "object": "text_completion", "choices": [], "usage": self.usage(tokens)})
            self.connection.write(_chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
            self.connection.done()

    def _event(self, data: dict[str, Any]) -> None:
        self.connection.write(_chunk(b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"))


class _Whole(_Answer):
    """One answer when the last token is there."""

    def __init__(self, connection: Connection, asked: dict[str, Any], *, chat: bool) -> None:
        super().__init__(connection, asked, chat=chat)
        self.tokens: list[tuple[int, int]] = []

    def token(self, number: int, token: int, last: bool) -> None:
        assert self.request is not None
        if token >= 0:
            self.tokens.append((number, token))
        if last:
            choice = self.choice("".join(_text(token) for _, token in self.tokens), last=True, whole=True)
            if not self.chat:
                choice["logprobs"] = self.connection.logprobs(self.asked, self.tokens)
            if self.asked.get("return_token_ids"):
                choice["token_ids"] = [token for _, token in self.tokens]
            data = {"id": "cmpl-0", "object": "text_completion", "choices": [choice], "usage": self.usage(len(self.tokens))}
            self.connection.answer(200, json.dumps(data))


def metrics(engine: StandInEngine) -> str:
    """What the engines tell under /metrics, under vLLM's and SGLang's names."""
    counters, name = engine.counters, engine.settings.model
    usage = engine.held / max(1, engine.settings.kv_tokens)
    values = {
        "vllm:num_requests_running": len(engine.running),
        "vllm:num_requests_waiting": len(engine.waiting),
        "vllm:kv_cache_usage_perc": usage,
        "vllm:num_preemptions_total": 0,
        "vllm:prompt_tokens_total": counters.input_tokens,
        "vllm:generation_tokens_total": counters.output_tokens,
        "vllm:prefix_cache_queries_total": counters.input_tokens,
        "vllm:prefix_cache_hits_total": counters.cached_tokens,
        "vllm:time_to_first_token_seconds_sum": counters.ttft_s,
        "vllm:time_to_first_token_seconds_count": counters.finished,
        "vllm:e2e_request_latency_seconds_sum": counters.e2el_s,
        "vllm:e2e_request_latency_seconds_count": counters.finished,
        "sglang:num_running_reqs": len(engine.running),
        "sglang:num_queue_reqs": len(engine.waiting),
        "sglang:token_usage": usage,
        "sglang:prompt_tokens_total": counters.input_tokens,
        "sglang:generation_tokens_total": counters.output_tokens,
        "sglang:num_requests_total": counters.finished,
        **engine.speculation.metrics(),
    }
    return "".join(f'{metric}{{model_name="{name}"}} {float(value)}\n' for metric, value in values.items())


def _tokens(prompt: Any, vocab_size: int) -> list[int]:
    """The numbers of a prompt's tokens; a word of text is a token."""
    if isinstance(prompt, list) and all(type(token) is int for token in prompt):
        return prompt
    words = prompt if isinstance(prompt, str) else " ".join(str(message["content"]) for message in prompt)
    return [sum(word.encode()) * 7919 % vocab_size for word in words.split()] or [0]


def _text(token: int) -> str:
    return f" t{token}"


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


__all__ = ["Connection", "metrics"]

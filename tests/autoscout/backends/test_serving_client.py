"""The client: what servers send, cut anywhere, gives the same times and counts."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from itertools import count

import pytest

from autoscout.core.task import Limit
from autoscout.load import load
from autoscout.load.answers import Reply, summary
from autoscout.load.client import Client, RequestFailed
from autoscout.load.workload import PlannedRequest


def event(**data: object) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}}
VLLM = [
    event(choices=[{"index": 0, "text": " a", "finish_reason": None}], usage=None),
    event(choices=[{"index": 0, "text": "", "finish_reason": None}]),  # a token without text
    event(choices=[{"index": 0, "text": "", "finish_reason": "length"}]),  # the last token, without text
    event(choices=[], usage=USAGE),
    b"data: [DONE]\n\n",
]
SGLANG = [
    *(event(choices=[{"index": 0, "text": text, "finish_reason": None}]) for text in (" a", " b", " c")),
    event(choices=[{"index": 0, "text": "", "finish_reason": "length"}]),  # only the reason
    event(choices=[], usage=USAGE),
    b"data: [DONE]\n\n",
]
CHAT = [
    event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]),
    *(event(choices=[{"index": 0, "delta": {"content": text}, "finish_reason": None}]) for text in (" a", " b")),
    event(choices=[{"index": 0, "delta": {"content": " c"}, "finish_reason": "stop"}]),
    b": a comment\n\n",
    event(choices=[], usage=USAGE),
    b"data: [DONE]\n\n",
]


def chunked(parts: Sequence[bytes]) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


def streamed(parts: Sequence[bytes]) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n" + chunked(parts)


async def asked(reply: bytes, step: int, endpoint: str = "completions", requests: int = 1) -> list[Reply]:
    """Answers of a server that sends `reply` in pieces of `step` bytes to every request."""

    handlers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]))
                for at in range(0, len(reply), step):
                    writer.write(reply[at : at + step])
                    await writer.drain()
                    await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = Client(server.sockets[0].getsockname()[1], "m", endpoint=endpoint, limit_s=5.0)
    answers = []
    for _ in range(requests):
        answers.append(Reply(3, 9))
        await client.ask(client.body([1, 2], 3), answers[-1])
    client.close()
    await asyncio.gather(*handlers)
    server.close()
    await server.wait_closed()
    return answers


@pytest.mark.parametrize("step", [1, 7, 50, 10**6])
@pytest.mark.parametrize(("parts", "endpoint"), [(VLLM, "completions"), (SGLANG, "completions"), (CHAT, "chat")])
def test_streams_of_the_engines(parts: list[bytes], endpoint: str, step: int) -> None:
    for answer in asyncio.run(asked(streamed(parts), step, endpoint, requests=2)):
        assert answer.error == ""
        assert len(answer.times_s) == 3
        assert (answer.output_tokens, answer.input_tokens, answer.cached_tokens) == (3, 5, 2)
        assert answer.sent_s <= answer.times_s[0] <= answer.times_s[-1] <= answer.ended_s


LLAMA_CPP = [
    *(event(choices=[{"text": text, "index": 0, "logprobs": None, "finish_reason": None}]) for text in (" a", " b", " c")),
    event(choices=[{"text": "", "index": 0, "finish_reason": "length"}], usage=USAGE, timings={"prompt_n": 3}),
    b"data: [DONE]\n\n",
]


def test_the_stream_of_llama_cpp_ends_with_reason_and_usage_in_one_event() -> None:
    (answer,) = asyncio.run(asked(streamed(LLAMA_CPP), 10**6))
    assert (answer.error, len(answer.times_s), answer.output_tokens) == ("", 3, 3)


@pytest.mark.parametrize(
    ("texts", "readable"),
    [([" a"], True), (["\ufffd", " b"], True), (["\u4e2d"], True), (["\t"], True), (["\ufffd \ufffd", " \n", ""], False), ([], False)],
)
@pytest.mark.parametrize("ascii", [True, False])
def test_text_that_can_be_read(texts: list[str], readable: bool, ascii: bool) -> None:
    parts = [
        b"data: " + json.dumps({"choices": [{"text": text, "finish_reason": None}]}, ensure_ascii=ascii).encode() + b"\n\n"
        for text in texts
    ]
    (answer,) = asyncio.run(asked(streamed([*parts, event(choices=[], usage=USAGE)]), 10**6))
    assert answer.readable == readable


def test_an_error_in_the_middle_of_a_stream_keeps_its_code() -> None:
    for failure in (b'error: {"code": 400, "message": "too long"}\n\n', event(error={"code": 400, "message": "too long"})):
        (answer,) = asyncio.run(asked(streamed([VLLM[0], failure]), 10**6))
        assert answer.error == "status 400: too long"


def test_fields_of_every_request_and_connections_that_close() -> None:
    client = Client(1, "m", fields={"cache_prompt": False}, keep_alive=False)
    head, _, body = client.body([1, 2], 3).partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    assert json.loads(body)["cache_prompt"] is False
    assert b"Connection" not in Client(1, "m").body([1], 1)


REFUSED = b'{"error": {"message": "too long", "code": 400}}'


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\ncontent-length: %d\r\n\r\n" % len(REFUSED) + REFUSED, "status 400: too long"),
        (b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\noops", "status 500: oops"),
        (streamed([event(error={"message": "engine dead", "code": 500})]), "engine dead"),
        (streamed([b"data: {choices\n\n", b'data: {"usage": {x}\n\n']), "cannot be read"),
        (streamed([event(choices=[], usage={**USAGE, "completion_tokens": 0})]), "no tokens"),
        (streamed([VLLM[0], event(choices=[], usage={**USAGE, "completion_tokens": 1})]), "asked for 3 tokens, got 1"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n", "no HTTP"),
    ],
)
def test_what_servers_answer_when_something_is_wrong(reply: bytes, why: str) -> None:
    (answer,) = asyncio.run(asked(reply, 1000))
    assert why in answer.error
    assert not answer.is_complete


def test_a_load_longer_than_what_is_made_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "AHEAD", 2)

    async def go() -> load.LoadRecord:
        client = Client(1, "m", limit_s=2.0)  # nobody listens: every request fails at once
        sessions = ([PlannedRequest([1, 2], 3)] for _ in count())
        return await load.Loader(client).arriving(sessions, [(0.0,), (0.01,), (0.02,), (0.03,), (0.04,)])

    seen = asyncio.run(go())
    assert len(seen.answers) == 5
    assert all(answer.error for answer in seen.answers)
    assert seen.planned_requests == 0


def test_nobody_listens() -> None:
    async def go() -> Reply:
        client, answer = Client(1, "m", limit_s=2.0), Reply(1)
        await client.ask(client.body([1], 1), answer)
        with pytest.raises(RequestFailed):
            await client.get("/health")
        return answer

    assert asyncio.run(go()).error


def test_metrics_follow_the_definitions() -> None:
    answers = []
    for first_s in (0.1, 0.2):
        answer = Reply(3, 10, 1.0)
        answer.times_s = [1 + first_s, 1 + first_s + 0.01, 1 + first_s + 0.04]
        answer.output_tokens, answer.ended_s = 3, answer.times_s[-1]
        answers.append(answer)
    failed = Reply(3, 10, 1.0)
    failed.error, failed.ended_s = "broken", 2.0
    found = summary([*answers, failed], 2.0, [Limit.parse("p95_ttft_ms<=150")])
    assert found["completed"] == 2
    assert found["failed"] == 1
    assert found["output_throughput"] == 3
    assert found["total_token_throughput"] == 13
    assert found["mean_ttft_ms"] == pytest.approx(150)
    assert found["mean_tpot_ms"] == pytest.approx(20)
    assert found["mean_e2el_ms"] == pytest.approx(190)
    assert found["p99_itl_ms"] == pytest.approx(30, rel=0.05)
    assert found["goodput"] == 0.5


def test_goodput_with_a_limit_on_gaps() -> None:
    answer = Reply(4, 1, 0.0)
    answer.times_s, answer.ended_s = [0.1, 0.11, 0.12, 0.2], 0.2
    assert answer.is_within([Limit.parse("p50_itl_ms<=20")])
    assert not answer.is_within([Limit.parse("p99_itl_ms<=20")])

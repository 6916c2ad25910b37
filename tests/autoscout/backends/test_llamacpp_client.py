"""The client's side of HTTP, against a server whose answers are known."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from autoscout.backends.llamacpp.client import ServerProcess

PATIENCE_S = 60.0


class Handler(BaseHTTPRequestHandler):
    """Answers as the request says; between the pieces of a stream it waits until the client has seen the last one."""

    protocol_version = "HTTP/1.1"
    seen = threading.Semaphore(0)

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(request["status"])
        self.send_header("Content-Type", request["type"])
        if not request.get("lines"):
            body = json.dumps(request["body"]).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in request["lines"]:
            for part in (line[:5], line[5:]):  # a piece may come in several chunks
                data = part.encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if request.get("wait"):
                assert self.seen.acquire(timeout=PATIENCE_S), "the client held a piece back"
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ServerProcess]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    client = object.__new__(ServerProcess)  # nothing has to be started
    client.port = made.server_port
    yield client
    made.shutdown()
    made.server_close()


def test_every_piece_is_handed_on_as_it_comes(server: ServerProcess) -> None:
    lines = ['data: {"n": 1}\n\n', ": ping\n\n", 'data: {"n": "é"}\n\n', "data: [DONE]\n\n"]
    pieces: list[Any] = []

    def take(piece: str) -> None:
        pieces.append(json.loads(piece))
        Handler.seen.release()

    for _ in range(2):
        Handler.seen.release()  # for the two lines that are no pieces
    server.stream({"status": 200, "type": "text/event-stream; charset=utf-8", "lines": lines, "wait": True}, take)
    assert pieces == [{"n": 1}, {"n": "é"}]


def test_errors_keep_their_form(server: ServerProcess) -> None:
    error = {"code": 400, "message": "too long"}
    pieces: list[str] = []
    server.stream({"status": 400, "type": "application/json", "body": {"error": error}}, pieces.append)
    server.stream({"status": 200, "type": "text/event-stream", "lines": [f"error: {json.dumps(error)}\n\n"]}, pieces.append)
    assert [json.loads(piece) for piece in pieces] == [{"error": error}, {"error": error}]


def test_a_whole_answer(server: ServerProcess) -> None:
    assert server.complete({"status": 200, "type": "application/json", "body": {"choices": [1]}}) == {"choices": [1]}

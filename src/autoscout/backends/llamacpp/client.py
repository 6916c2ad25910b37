"""The server as its clients see it: a process of its own, asked over HTTP.

It is the program that is handed over, `serve.py` with a file of settings, on a free port of this machine.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoscout.backends.llamacpp import serve
from autoscout.common.processes import die_with_parent
from autoscout.load.server import HOST, ServerEnded

ENDING_S = 5.0  # what the server gets for ending after its connections broke, and for stopping when told to
COMPLETIONS = "/v1/completions"


class ServerProcess:
    """A running server; its log goes to our standard error.

    Args:
        settings: What `serve.py` reads, the model's path included.
        folder: Where the file of settings is written.

    Raises:
        ServerEnded: it did not start.
    """

    def __init__(self, settings: Mapping[str, Any], folder: Path) -> None:
        path = folder / "server.json"
        path.write_text(json.dumps(settings, indent=2) + "\n")
        parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, serve.__file__, str(path), "--host", HOST, "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "LLAMA_API_KEY"},
            preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509 - one system call, and no threads are running yet
        )
        assert self._process.stdout is not None
        listening = next((match for line in self._process.stdout if (match := re.search(r" on http://[^:/]+:(\d+)", line))), None)
        if listening is None:
            raise ServerEnded(self._process.wait())
        self.port = int(listening[1])

    def stream(self, request: Mapping[str, Any], callback: Callable[[str], object]) -> None:
        """Send a request; `callback` gets every piece of the answer as it comes.

        Raises:
            ServerEnded: the server ended meanwhile.
            OSError: the connection broke, and the server is still there.
        """
        try:
            self._stream(request, callback)
        except (OSError, http.client.HTTPException) as error:
            self._explain(error)

    def complete(self, request: Mapping[str, Any]) -> Any:
        """The whole answer to a request.

        Raises:
            ServerEnded, OSError: as for `stream`.
        """
        pieces: list[str] = []
        self.stream(request, pieces.append)
        return json.loads("".join(pieces))

    def stop(self) -> float:
        """End the server; the most memory it held, in GiB."""
        peak_gib = _peak_gib(self._process.pid)
        self._process.terminate()
        try:
            self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return peak_gib or resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024 ** (3 if sys.platform == "darwin" else 2)

    def _stream(self, request: Mapping[str, Any], callback: Callable[[str], object]) -> None:
        connection = http.client.HTTPConnection(HOST, self.port)
        try:
            connection.request("POST", COMPLETIONS, json.dumps(request), {"Content-Type": "application/json", "Connection": "close"})
            response = connection.getresponse()
            if response.getheader("Content-Type", "").startswith("text/event-stream"):
                while line := response.readline():
                    kind, _, data = line.decode("utf-8", errors="replace").partition(":")
                    if kind in ("data", "error") and data.strip() not in ("", "[DONE]"):
                        callback(data if kind == "data" else json.dumps({"error": json.loads(data)}))
            else:
                callback(response.read().decode("utf-8", errors="replace"))
        finally:
            connection.close()

    def _explain(self, error: Exception) -> None:
        try:
            raise ServerEnded(self._process.wait(ENDING_S)) from error
        except subprocess.TimeoutExpired:
            raise OSError(f"the connection to the server broke: {error!r}") from error


def _peak_gib(pid: int) -> float:
    """The most memory that a process has held; 0 where the system does not say."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1024**2 if found else 0.0


__all__ = ["ServerProcess"]

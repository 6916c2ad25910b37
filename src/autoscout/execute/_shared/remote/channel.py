"""The near end of a channel: a program of ours (ssh, srun) whose standard streams lead to an agent on another machine."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from autoscout.core.launch import Completed
from autoscout.execute._shared.call import unpacked
from autoscout.execute._shared.remote.agent import Hello
from autoscout.execute._shared.remote.messages import BEAT, BEAT_S, DONE, HELLO, LOST, RUN, STOP, Reader, encode
from autoscout.execute._shared.remote.order import LaunchOrder
from autoscout.execute._shared.supervisor.client import PACKAGE, STUCK_S

LOOK_S = 0.2  # how often somebody who waits looks whether the launch was cancelled
LEAVING_S = 2.0  # how long a client may take to end by itself
ENDING_S = 10.0  # and when it was asked to

# Starts the agent from the folder that we run from, where the machine has it, and else from what is installed there.
_AGENT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from autoscout.execute._shared.remote.agent import main; main()"


class Lost(Exception):  # noqa: N818 - no error of ours: a machine went away
    """A machine or the way to it was lost: says nothing about the launch."""


def agent_command(python: str, silence_s: float, token: str = "") -> list[str]:
    """What to start on a machine."""
    return [python, "-P", "-c", _AGENT, str(PACKAGE.parent), f"{silence_s:g}", token]


def start_client(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own: Ctrl-C is for AutoScout, which then decides. It ends when its standard input does."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=dict(environment), start_new_session=True, stdin=pipe, stdout=pipe, stderr=pipe)


def end_client(process: subprocess.Popen[bytes]) -> None:
    """Have it end by itself, else ask it to, else kill it."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(LEAVING_S)
    if process.poll() is None:
        process.terminate()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()
    try:
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Channel:
    """One launch on one other machine. Used by one thread.

    Args:
        client: The command whose standard streams lead to an agent.
        environment: Of the client.
        where: The machine, for messages.
        silence_s: How long to hear nothing before the machine is taken for lost.
    """

    def __init__(self, client: Sequence[str], environment: Mapping[str, str], where: str, silence_s: float) -> None:
        self.where = where
        self._silence_s = silence_s
        self._reader = Reader()
        self._said = b""
        self._messages: list[tuple[str, Any]] = []
        self._process = start_client(client, environment)
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._selector = selectors.DefaultSelector()
        for stream in (self._process.stdout, self._process.stderr):
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ)
        self._stdout, self._stderr = self._process.stdout, self._process.stderr
        self._heard_s = self._beat_s = time.monotonic()
        self._send(encode(BEAT))

    def hello(self, stopped: threading.Event, patience_s: float | None = None) -> Hello | None:
        """What the agent says first; None when the launch was cancelled meanwhile."""
        deadline_s = None if patience_s is None else time.monotonic() + patience_s
        while not stopped.is_set():
            message = self._next(silent=False)
            if message is not None and message[0] == HELLO:
                hello: Hello = message[1]
                return hello
            if deadline_s is not None and time.monotonic() > deadline_s:
                raise Lost(f"{self.where} did not answer within {patience_s:g} s. {self._complaints()}")
        return None

    def linger(self) -> None:
        """Let the agent know, for a moment, that somebody is here: the launch begins later."""
        self._next(silent=True)

    def begin(self, order: LaunchOrder) -> None:
        """Have the agent start a launch."""
        self._heard_s = time.monotonic()
        self._send(encode(RUN, order))

    def result(self, stopped: threading.Event, grace_s: float, packed: bool) -> Completed:
        """What came of it; the launch is ended when `stopped` is set."""
        give_up_s: float | None = None
        while True:
            if stopped.is_set() and give_up_s is None:
                self._send(encode(STOP))
                give_up_s = time.monotonic() + grace_s + STUCK_S
            if give_up_s is not None and time.monotonic() > give_up_s:
                return Completed(returncode=None, cancelled=True)
            message = self._next(silent=True)
            if message is None:
                continue
            kind, body = message
            if kind == LOST:
                raise Lost(f"{self.where}: {body}")
            if kind == DONE:
                completed: Completed = body
                return unpacked(completed) if packed else completed

    def close(self) -> None:
        """End the client, and with it the agent and what it runs."""
        self._selector.close()
        end_client(self._process)

    def _next(self, silent: bool) -> tuple[str, Any] | None:
        """The next message, or None after a moment; `silent` whether silence counts."""
        if not self._messages:
            self._listen(LOOK_S)
        while self._messages:
            message = self._messages.pop(0)
            if message[0] != BEAT:
                return message
        now_s = time.monotonic()
        if silent and now_s - self._heard_s > self._silence_s:
            raise Lost(f"{self.where} has not been heard of for {self._silence_s:g} s")
        if now_s - self._beat_s >= BEAT_S:
            self._beat_s = now_s
            self._send(encode(BEAT))
        return None

    def _listen(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
            elif key.fileobj is self._stderr:
                self._said = (self._said + data)[-4000:]
            else:
                self._heard_s = time.monotonic()
                self._messages += self._reader.feed(data)
        if self._stdout not in self._selector.get_map() and not self._messages:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(ENDING_S)  # for its last words
            raise Lost(f"the connection to {self.where} ended. {self._complaints()}")

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            return  # its end is told by the other stream

    def _complaints(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            self._said = (self._said + (os.read(self._stderr.fileno(), 1 << 16) or b""))[-4000:]
        said = "\n".join(filter(None, [self._said.decode(errors="replace").strip(), self._reader.noise]))
        return f"It said: {said[-1500:]}" if said else ""

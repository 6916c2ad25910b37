"""A server as a trial sees it: started on a free port, asked whether it is up, ended with everything it started."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from autoscout.common.gpus import present_gpus, read_gpus, reading_is_cheap
from autoscout.common.processes import descendants, running
from autoscout.core.clock import RealClock

HOST = "127.0.0.1"
POLL_S = 0.1
LOG_CHARS = 100_000  # of a log that is kept
GPU_WAIT_S = 15.0  # for memory that drivers free after a process has ended
GPU_SLACK_GB = 0.5  # more than this above what was in use before is not free again
CLOCK = RealClock()


class ServerEnded(Exception):  # noqa: N818 - a result
    """The server ended although nobody told it to."""

    def __init__(self, returncode: int) -> None:
        super().__init__(f"the server ended with exit code {returncode}")
        self.returncode = returncode


class NotUp(Exception):  # noqa: N818 - a result
    """The server was not up in time."""


class Server:
    """A server process in our own process group; its log goes to a file.

    Args:
        argv: Its command line; `{port}` and `{folder}` are replaced.
        env: Added to the environment, with the same two words replaced.
        folder: Of the trial.
        log: Name of the log in that folder.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], folder: Path, log: str = "server.log") -> None:
        self.port = free_port()
        self.log = folder / log
        self._gpu_gb = _gpu_memory_gb()
        words = {"{port}": str(self.port), "{folder}": str(folder)}
        with self.log.open("wb") as out:
            command, own = [_with_words(word, words) for word in argv], {name: _with_words(value, words) for name, value in env.items()}
            try:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **own}, cwd=folder
                )
            except OSError as error:
                out.write(f"{error}\n".encode())
                raise ServerEnded(127) from error  # as a shell says it

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code, or None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise `ServerEnded` unless it runs."""
        if (code := self._process.poll()) is not None:
            raise ServerEnded(code)

    def peak_gib(self) -> float:
        """The most memory it held, in GiB; 0 where it is several processes, or the system does not say."""
        if descendants(self.pid):
            return 0.0
        with contextlib.suppress(OSError):
            peak = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
            return int(peak[1]) / 1024**2 if peak else 0.0
        return 0.0

    def wait_until_up(self, path: str, limit_s: float) -> None:
        """Wait until it answers.

        Raises:
            ServerEnded: it ended first.
            NotUp: it did not answer in time.
        """
        deadline_s = CLOCK.span_s() + limit_s
        while not is_up(f"http://{HOST}:{self.port}{path}"):
            self.check()
            if CLOCK.span_s() > deadline_s:
                raise NotUp(f"the server was not up after {limit_s:g} s")
            CLOCK.sleep(POLL_S)
        self.check()  # somebody else may have taken the port and answered

    def stop(self, grace_s: float) -> None:
        """End it and what it started, and wait until its port and its GPU memory are free again."""
        end(descendants(os.getpid()), grace_s)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        deadline_s = CLOCK.span_s() + GPU_WAIT_S
        while self._gpu_gb is not None and (now_gb := _gpu_memory_gb()) is not None and CLOCK.span_s() < deadline_s:
            if now_gb <= self._gpu_gb + GPU_SLACK_GB and not is_listening(self.port):
                break
            CLOCK.sleep(POLL_S)


def end(pids: Iterable[int], grace_s: float) -> None:
    """Ask processes to stop, then kill what is left of them and of what they started meanwhile."""
    pids = list(pids)
    for kind in (signal.SIGTERM, signal.SIGKILL):
        deadline_s = CLOCK.span_s() + grace_s
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, kind)
        while running(pids) and CLOCK.span_s() < deadline_s:
            CLOCK.sleep(POLL_S / 5)
        pids = running({*pids, *(child for pid in pids for child in descendants(pid))})


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def is_up(url: str) -> bool:
    """Whether a page is there."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the server is local, whatever proxies the user has
    try:
        with opener.open(url, timeout=2.0) as reply:
            return bool(reply.status < 400)
    except (urllib.error.URLError, OSError, ValueError):
        return False


def is_listening(port: int) -> bool:
    """Whether anybody takes connections on a port of this machine."""
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def log_text(path: Path) -> str:
    """The end of a log, and its beginning when it is too long to keep whole."""
    text = path.read_bytes().decode("utf-8", errors="replace") if path.exists() else ""
    return text if len(text) <= LOG_CHARS else f"{text[: LOG_CHARS // 4]}\n[...]\n{text[-LOG_CHARS * 3 // 4 :]}"


def _with_words(word: str, words: Mapping[str, str]) -> str:
    for name, value in words.items():
        word = word.replace(name, value)
    return word


def _gpu_memory_gb() -> float | None:
    """Memory in use on the GPUs that this process may use; None where asking is slow or there are none."""
    if not reading_is_cheap():
        return None
    mine = set(present_gpus())
    used = [gpu.used_gb for gpu in read_gpus() if gpu.index in mine or gpu.uuid in mine]
    return sum(used) if used else None

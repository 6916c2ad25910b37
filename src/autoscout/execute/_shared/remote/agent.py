"""The far end of a channel: a program that ssh or srun starts on a machine, and that runs one launch there.

It ends its launch when it is told to, when its standard input ends, when a batch system ends it, and when it hears nothing: then the
other end has started the launch elsewhere, and it must not run twice.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

from autoscout.common.gpus import present_gpus, read_gpus
from autoscout.common.machine import machine_cores, machine_memory_gb
from autoscout.core.launch import Completed
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.remote.messages import BEAT, BEAT_S, DONE, HELLO, LOST, RUN, STOP, Reader, encode
from autoscout.execute._shared.remote.speed import probe_s
from autoscout.execute._shared.supervisor.client import STUCK_S


@dataclass(frozen=True, kw_only=True)
class Hello:
    """What an agent says of its machine.

    Attributes:
        host: Its own name.
        address: By which its neighbours reach it.
        cores: How many the agent may use.
        gpus: Names of its GPUs, as far as they can be seen.
        memory_gb: Memory of the machine.
        kind: Equal for machines with the same processor, memory and GPUs.
        port: One that was free a moment ago, for the processes of a launch to meet at.
        sees: Whether a file that the other end named is there: whether the two share a file system.
        probe_s: Seconds that a fixed piece of work took.
    """

    host: str
    address: str
    cores: int
    gpus: tuple[str, ...]
    memory_gb: float
    kind: str
    port: int
    sees: bool
    probe_s: float


class Agent:
    """Serves one launch.

    Args:
        silence_s: How long to hear nothing before the other end is taken for gone.
        token: A file of the other end.
    """

    def __init__(self, silence_s: float, token: str = "") -> None:
        self._silence_s = silence_s
        self._token = token
        self._voice = threading.Lock()
        self._mouth = os.dup(1)
        os.dup2(2, 1)  # whatever else this process prints is no message
        self._run: LaunchRun | None = None
        self._worker: threading.Thread | None = None
        self._stopped = False
        self._why_lost = ""
        self._over = threading.Event()
        self._wake_read, self._wake_write = os.pipe()

    def serve(self) -> int:
        """Until the launch has ended, or the other end has."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told_to_end)
        reader, greeted = Reader(), False
        heard_s = time.monotonic()
        beat_s = heard_s + BEAT_S
        while not self._over.is_set():
            ready, _, _ = select.select([0, self._wake_read], [], [], BEAT_S / 2)
            now_s = time.monotonic()
            if 0 in ready:
                data = os.read(0, 1 << 16)
                if not data:
                    return self._abandon()
                heard_s = now_s
                if not greeted:  # the other end speaks first: whoever attaches to a running program misses what it said before
                    self._say(HELLO, hello(self._token))
                    greeted = True
                for kind, body in reader.feed(data):
                    self._obey(kind, body)
            if now_s - heard_s > self._silence_s:
                return self._abandon()
            if greeted and now_s >= beat_s:
                self._say(BEAT, None, wait=False)
                beat_s = now_s + BEAT_S
        return 0

    def _obey(self, kind: str, body: Any) -> None:
        if kind == RUN and self._worker is None:
            self._run = body.run()
            self._worker = threading.Thread(target=self._work, args=(self._run,), daemon=True)
            self._worker.start()
        elif kind == STOP:
            self._stopped = True
            if self._run is None:
                self._end()
            else:
                self._run.stop()

    def _work(self, run: LaunchRun) -> None:
        try:
            completed = run.run()
        except Exception:  # the other end would wait for an answer that never comes
            completed = Completed(returncode=None, error=traceback.format_exc())
        if completed.cancelled and not self._stopped:
            # A batch system asks all processes of a job to end, ours and the trial's, in any order.
            self._say(LOST, self._why_lost or "the launch was ended by somebody else on its machine")
        else:
            self._say(DONE, completed)
        self._end()

    def _end(self) -> None:
        self._over.set()
        os.write(self._wake_write, b"x")

    def _told_to_end(self, number: int, _: object) -> None:
        self._why_lost = f"its machine was told to end it ({signal.Signals(number).name})"
        if self._run is None:
            self._end()
        else:
            self._run.stop()

    def _abandon(self) -> int:
        if self._run is not None and self._worker is not None:
            self._stopped = True
            self._run.stop()
            self._worker.join(STUCK_S)
        return 1

    def _say(self, kind: str, body: object, wait: bool = True) -> None:
        if self._voice.acquire(blocking=wait):  # a beat does not wait for a long answer that is on its way
            try:
                view = memoryview(encode(kind, body))
                while view:
                    view = view[os.write(self._mouth, view) :]
            except OSError:
                return  # nobody listens any more, which standard input tells too
            finally:
                self._voice.release()


def hello(token: str = "") -> Hello:
    """This machine."""
    cores, gpus, memory_gb = machine_cores(), present_gpus(), machine_memory_gb()
    names = sorted(gpu.name for gpu in read_gpus())
    with socket.socket() as probe:
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    return Hello(
        host=socket.gethostname(),
        address=_address(),
        cores=len(cores),
        gpus=gpus,
        memory_gb=memory_gb,
        kind=f"{_processor()}, {len(cores)} cores, {round(memory_gb)} GB" + "".join(f", {name}" for name in names),
        port=port,
        sees=bool(token) and os.path.exists(token),  # noqa: PTH110 - a path of another machine
        probe_s=probe_s(),
    )


def _address() -> str:
    """The address of the interface that leads out of this machine; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # reserved for documentation: any address outside will do
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - read to the first match only
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "processor")
    except OSError:
        return "processor"


def main() -> None:
    """`agent SILENCE_S TOKEN`."""
    code = Agent(float(sys.argv[1]), sys.argv[2]).serve()
    sys.stdout.flush()
    os._exit(code)  # a stuck worker thread must not keep the machine


__all__ = ["Agent", "Hello", "hello", "main"]

"""Calls in this process: for functions, tests and examples."""

from __future__ import annotations

import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from autoscout.core.errors import require
from autoscout.core.launch import Completed, Launch
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Pool, Share
from autoscout.execute._shared.executor import LaunchOptions, QueuedExecutor, check_launch
from autoscout.execute._shared.queue import Run
from autoscout.execute._shared.supervisor.client import Supervised
from autoscout.execute._shared.supervisor.contention import Counters, conditions


@dataclass(frozen=True, kw_only=True)
class InlineOptions:
    """How the inline executor runs things.

    Attributes:
        slots: Calls at once, on threads.
        folder: Commands get `<folder>/trials/<name>/`; a temporary folder that `close` removes when None.
        grace_s: Seconds between asking a command to end and killing it.
    """

    slots: int = 1
    folder: str | Path | None = None
    grace_s: float = 5.0

    def __post_init__(self) -> None:
        checks = {"slots": (self.slots >= 1, "must be at least 1"), "grace_s": (self.grace_s >= 0, "must not be negative")}
        require("executor inline", self, checks)


class InlineExecutor(QueuedExecutor):
    """Runs calls on threads of this process, and commands as processes without pinning.

    A call cannot be killed: one that is cancelled or passes its limit is left to itself while its job and its slot are free
    again, and one that crashes the interpreter takes AutoScout along. Functions that may hang, crash or eat memory belong on the local
    executor. Nothing is handed out but slots: any request for cores and GPUs is taken as met.
    """

    calls_in_process: ClassVar[bool] = True
    hands_out_slots_only: ClassVar[bool] = True

    def __init__(self, options: InlineOptions | None = None) -> None:
        self.options = options or InlineOptions()
        chosen = LaunchOptions(slots=self.options.slots, folder=self.options.folder, grace_s=self.options.grace_s)
        super().__init__(chosen, Pool(self.options.slots), "inline")

    def submit(self, launch: Launch) -> Job:
        check_launch(launch)
        return self._queue.submit(launch, lambda share: self._prepare(launch, share))

    def _prepare(self, launch: Launch, share: Share) -> Run:
        if launch.call is not None:
            return _Call(launch, alone=self.options.slots == 1)
        return Supervised(launch, share, self._settings, {})


class _Call:
    """One call on a thread of its own, which is left behind when it overstays."""

    def __init__(self, launch: Launch, alone: bool) -> None:
        self._launch = launch
        self._cpu_s = time.process_time if alone else time.thread_time  # threads of the call are counted only when no other call runs
        self._over = threading.Event()
        self._stopped = False
        self._ended: tuple[Any, str, float] | None = None

    def stop(self) -> None:
        self._stopped = True
        self._over.set()

    def run(self) -> Completed:
        started_s = time.monotonic()
        before = Counters.read(None)
        if not self._over.is_set():
            threading.Thread(target=self._work, name=f"call-{self._launch.name}", daemon=True).start()
        self._over.wait(self._launch.limit_s)
        wall_s, ended = time.monotonic() - started_s, self._ended
        if ended is None:
            return Completed(returncode=None, wall_s=wall_s, cancelled=self._stopped, timed_out=not self._stopped)
        value, error, cpu_s = ended
        seen = conditions(before, Counters.read(None), wall_s, cpu_s)
        return Completed(returncode=1 if error else 0, value=value, error=error, wall_s=wall_s, cpu_s=cpu_s, conditions=seen)

    def _work(self) -> None:
        assert self._launch.call is not None
        value: Any = None
        error = ""
        started_s = self._cpu_s()
        try:
            value = self._launch.call()
        except BaseException:  # SystemExit and KeyboardInterrupt of a user's function are an end like any other
            error = traceback.format_exc()
        self._ended = (value, error, self._cpu_s() - started_s)
        self._over.set()


__all__ = ["InlineExecutor"]

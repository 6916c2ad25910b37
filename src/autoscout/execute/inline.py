"""Calls in this process: for functions, tests and examples."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from autoscout.common.gpus import VISIBLE_GPUS, gpu_environment, present_gpus
from autoscout.core.errors import require
from autoscout.core.launch import Completed, Launch
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Pool, Share
from autoscout.execute._shared.executor import LaunchOptions, QueuedExecutor, check_launch
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.sharing import GpuSharing, OnGpus, gpu_user
from autoscout.execute._shared.supervisor.client import Supervised
from autoscout.execute._shared.supervisor.contention import MachineCounters, conditions


@dataclass(frozen=True, kw_only=True)
class InlineOptions:
    """How the inline executor runs things.

    Attributes:
        slots: Calls at once, on threads.
        folder: Commands get `<folder>/trials/<name>/`; a temporary folder that `close` removes when None.
        grace_s: Seconds between asking a command to end and killing it.
        gpu_wait_s: How long to wait for other people's processes on the GPUs of a launch.
        gpu_shared: Run next to them after that, instead of ending the study with their names.
    """

    slots: int = 1
    folder: str | Path | None = None
    grace_s: float = 5.0
    gpu_wait_s: float = 300.0
    gpu_shared: bool = False

    def __post_init__(self) -> None:
        checks = {"slots": (self.slots >= 1, "must be at least 1"), "grace_s": (self.grace_s >= 0, "must not be negative")}
        checks["gpu_wait_s"] = (self.gpu_wait_s >= 0, "must not be negative")
        require("executor inline", self, checks)


class InlineExecutor(QueuedExecutor):
    """Runs calls on threads of this process, and commands as processes without pinning.

    A call cannot be killed: one that is cancelled or passes its limit is left to itself while its job and its slot are free
    again, and one that crashes the interpreter takes AutoScout along. Functions that may hang, crash or eat memory belong on the local
    executor. Nothing is handed out but slots and GPUs: any request for cores is taken as met. GPUs are leased as on the local executor, but
    a call is not kept to them: it gets the first ones, which is what it uses unless told otherwise.
    """

    calls_in_process: ClassVar[bool] = True
    hands_out_slots_only: ClassVar[bool] = True

    def __init__(self, options: InlineOptions | None = None) -> None:
        self.options = options or InlineOptions()
        chosen = LaunchOptions(slots=self.options.slots, folder=self.options.folder, grace_s=self.options.grace_s)
        gpus = present_gpus()
        super().__init__(chosen, Pool(self.options.slots, gpus=gpus), "inline")
        what, wait_s, shared = gpu_user(self.options.folder), self.options.gpu_wait_s, self.options.gpu_shared
        self._sharing = GpuSharing(gpus=gpus, what=what, wait_s=wait_s, shared=shared)

    def submit(self, launch: Launch) -> Job:
        check_launch(launch)
        return self._queue.submit(launch, lambda share: self._prepare(launch, share))

    def _prepare(self, launch: Launch, share: Share) -> LaunchRun:
        if not share.gpus:
            return self._run(launch, share)
        sharing = self._sharing if launch.call is None else replace(self._sharing, gpus=share.gpus)
        return OnGpus(launch, share, sharing, lambda share, held: self._run(launch, share, held))

    def _run(self, launch: Launch, share: Share, held: Sequence[int] = ()) -> LaunchRun:
        if launch.call is not None:
            return _Call(launch, alone=self.options.slots == 1)
        pinned = share.gpus and not any(name in launch.env for name in VISIBLE_GPUS)
        return Supervised(launch, share, self._settings, gpu_environment(share.gpus) if pinned else {}, held=held)


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
        before = MachineCounters.read(None)
        if not self._over.is_set():
            threading.Thread(target=self._work, name=f"call-{self._launch.name}", daemon=True).start()
        self._over.wait(self._launch.limit_s)
        wall_s, ended = time.monotonic() - started_s, self._ended
        if ended is None:
            return Completed(returncode=None, wall_s=wall_s, cancelled=self._stopped, timed_out=not self._stopped)
        value, error, cpu_s = ended
        circumstances = conditions(before, MachineCounters.read(None), wall_s, cpu_s)
        return Completed(returncode=1 if error else 0, value=value, error=error, wall_s=wall_s, cpu_s=cpu_s, conditions=circumstances)

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

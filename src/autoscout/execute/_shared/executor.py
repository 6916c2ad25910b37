"""What the executors share: options of every launch, and a queue with a folder that is closed at the end."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from autoscout.common.files import let_others_enter
from autoscout.core.errors import LaunchError
from autoscout.core.launch import Launch
from autoscout.core.protocols import Executor
from autoscout.execute._shared.allocation import Pool
from autoscout.execute._shared.folder import launch_faults
from autoscout.execute._shared.queue import JobQueue
from autoscout.execute._shared.supervisor.client import LaunchSettings

KEEP = ("all", "failed", "none")

Checks = dict[str, tuple[bool, str]]
"""Option -> whether it is valid, and the rule."""


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """Options that every executor of supervised launches has.

    Attributes:
        slots: Trials at once.
        folder: Trials get `<folder>/trials/<name>/` on the machine they run on; a temporary folder that `close` removes when None.
        memory_gb: Memory limit of trials that set none; no limit when None.
        grace_s: Seconds between asking a trial to end and killing it.
        keep_files: Which trial folders stay: all, failed, none.
        log_mb: How much of each log stays on disk; of a longer one the beginning and the end.
        tail_kb: How much of the end of each log is handed to the backend.
        output_mb: Largest output file that is brought back.
    """

    slots: int = 1
    folder: str | Path | None = None
    memory_gb: float | None = None
    grace_s: float = 5.0
    keep_files: str = "all"
    log_mb: float = 64.0
    tail_kb: float = 1024.0
    output_mb: float = 64.0

    def checks(self) -> Checks:
        """The rules for these options; an executor adds those for its own."""
        return {
            "slots": (self.slots >= 1, "must be at least 1"),
            "memory_gb": (self.memory_gb is None or self.memory_gb > 0, "must be above zero; leave it out for no limit"),
            "grace_s": (self.grace_s >= 0, "must not be negative"),
            "keep_files": (self.keep_files in KEEP, f"must be one of: {', '.join(KEEP)}"),
            "log_mb": (self.log_mb > 0, "must be above zero"),
            "tail_kb": (self.tail_kb > 0, "must be above zero"),
            "output_mb": (self.output_mb > 0, "must be above zero"),
        }


class QueuedExecutor(Executor):
    """Queues launches under `self._queue`; a subclass says in `submit` what runs them."""

    def __init__(self, options: LaunchOptions, pool: Pool, name: str) -> None:
        self._slots = options.slots
        self._temporary = tempfile.TemporaryDirectory(prefix="autoscout-") if options.folder is None else None
        root = Path(self._temporary.name if self._temporary else options.folder or "").absolute()
        if self._temporary is not None:
            let_others_enter(root)
        self._queue = JobQueue(pool, name)
        self._settings = LaunchSettings(
            folder=root / "trials",
            grace_s=options.grace_s,
            keep_files=options.keep_files,
            log_mb=options.log_mb,
            tail_kb=options.tail_kb,
            output_mb=options.output_mb,
            memory_gb=options.memory_gb,
        )

    @property
    def slots(self) -> int:
        return self._slots

    def close(self) -> None:
        self._queue.close()
        if self._temporary is not None:
            self._temporary.cleanup()


def check_launch(launch: Launch) -> None:
    """Raise `LaunchError` for a launch that can be started nowhere."""
    faults = launch_faults(launch)
    if faults:
        raise LaunchError(faults)


__all__ = ["Checks", "LaunchOptions", "QueuedExecutor", "check_launch"]

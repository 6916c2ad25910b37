"""Trials as processes on this machine, each on cores and GPUs of its own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from autoscout.core.errors import LaunchError, require
from autoscout.core.launch import Launch
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Pool, Share
from autoscout.execute._shared.call import pack_call
from autoscout.execute._shared.folder import launch_faults
from autoscout.execute._shared.gpus import VISIBLE_GPUS, gpu_environment, present_gpus
from autoscout.execute._shared.machine import cpu_quota, machine_cores, machine_memory_gb
from autoscout.execute._shared.queue import JobQueue
from autoscout.execute._shared.supervisor.client import LaunchSettings, Supervised

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
KEEP = ("all", "failed", "none")


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """How the local executor shares the machine and treats a trial.

    Attributes:
        slots: Trials at once. More than one disturbs measurements through memory and caches even on cores of their own.
        cores: Cores to use; all that this process may use when None.
        gpus: GPUs to use, as `CUDA_VISIBLE_DEVICES` names them; all that are found when None.
        folder: Trials get `<folder>/trials/<name>/`; a temporary folder that `close` removes when None.
        memory_gb: Memory limit of trials that set none; no limit when None.
        grace_s: Seconds between asking a trial to end and killing it.
        pin: Keep each trial on its cores.
        keep_files: Which trial folders stay: all, failed, none.
        log_mb: How much of each log stays on disk; of a longer one the beginning and the end.
        tail_kb: How much of the end of each log is handed to the backend.
        output_mb: Largest output file that is brought back.
        gpu_settle_s: How long to wait for a finished trial's GPU memory to come back before its GPUs are handed on.
    """

    slots: int = 1
    cores: Sequence[int] | None = None
    gpus: Sequence[str | int] | None = None
    folder: str | Path | None = None
    memory_gb: float | None = None
    grace_s: float = 5.0
    pin: bool = True
    keep_files: str = "all"
    log_mb: float = 64.0
    tail_kb: float = 1024.0
    output_mb: float = 64.0
    gpu_settle_s: float = 15.0

    def __post_init__(self) -> None:
        there = set(machine_cores())
        unknown = [core for core in self.cores or () if core not in there]
        checks = {
            "slots": (self.slots >= 1, "must be at least 1"),
            "cores": (not unknown and (self.cores is None or len(self.cores) > 0), f"must name cores among {sorted(there)}"),
            "memory_gb": (self.memory_gb is None or self.memory_gb > 0, "must be above zero; leave it out for no limit"),
            "grace_s": (self.grace_s >= 0, "must not be negative"),
            "keep_files": (self.keep_files in KEEP, f"must be one of: {', '.join(KEEP)}"),
            "log_mb": (self.log_mb > 0, "must be above zero"),
            "tail_kb": (self.tail_kb > 0, "must be above zero"),
            "output_mb": (self.output_mb > 0, "must be above zero"),
            "gpu_settle_s": (self.gpu_settle_s >= 0, "must not be negative"),
        }
        require("executor local", self, checks)


class LocalExecutor:
    """Runs trials as processes on this machine, each on its own cores and GPUs.

    Every launch has a supervisor process that holds its limits and ends all its descendants, also those that left its session;
    should AutoScout be killed, the trials go with it. Calls run in a fresh Python process and must pickle.
    """

    def __init__(self, options: LocalOptions | None = None) -> None:
        self.options = options or LocalOptions()
        self._temporary = tempfile.TemporaryDirectory(prefix="autoscout-") if self.options.folder is None else None
        root = Path(self._temporary.name if self._temporary else self.options.folder or "")
        cores, self._pinned = self._cores()
        gpus = present_gpus() if self.options.gpus is None else tuple(map(str, self.options.gpus))
        self._hide_gpus = bool(gpus) and self.options.slots > 1
        self._queue = JobQueue(Pool(self.options.slots, cores, gpus, machine_memory_gb()), "local")
        self._settings = LaunchSettings(
            folder=root / "trials",
            grace_s=self.options.grace_s,
            keep_files=self.options.keep_files,
            log_mb=self.options.log_mb,
            tail_kb=self.options.tail_kb,
            output_mb=self.options.output_mb,
            memory_gb=self.options.memory_gb,
            gpu_settle_s=self.options.gpu_settle_s,
        )

    @property
    def slots(self) -> int:
        return self.options.slots

    def submit(self, launch: Launch) -> Job:
        faults = launch_faults(launch)
        if faults:
            raise LaunchError(faults)
        packed = None if launch.call is None else pack_call(launch.call, launch.name)
        return self._queue.submit(launch, lambda share: self._prepare(launch, share, packed))

    def close(self) -> None:
        self._queue.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _cores(self) -> tuple[tuple[int, ...], bool]:
        """The cores to hand out, and whether trials can be pinned to them."""
        if self.options.cores is not None:
            return tuple(self.options.cores), self.options.pin
        cores, quota = machine_cores(), cpu_quota()
        if quota is not None and quota < len(cores):
            # Pinned to the first few cores, the container would compete with others there: its quota is of time, not of cores.
            return cores[: max(1, int(quota))], False
        return cores, self.options.pin

    def _prepare(self, launch: Launch, share: Share, packed: bytes | None) -> Supervised:
        extra: dict[str, str] = {}
        if len(share.cores) < len(machine_cores()) and not any(
            name in source for name in THREAD_VARIABLES for source in (launch.env, os.environ)
        ):
            extra |= dict.fromkeys(THREAD_VARIABLES, str(len(share.cores)))
        # A trial that runs alone may see GPUs it did not ask for; one that shares the machine must not.
        if (share.gpus or self._hide_gpus) and not any(name in launch.env for name in VISIBLE_GPUS):
            extra |= gpu_environment(share.gpus)
        used = share if self._pinned else Share(gpus=share.gpus, memory_gb=share.memory_gb)
        return Supervised(launch, used, self._settings, extra, packed)


__all__ = ["LocalExecutor"]

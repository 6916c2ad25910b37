"""Trials as processes on this machine, each on cores and GPUs of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscout.common.gpus import VISIBLE_GPUS, gpu_environment, present_gpus, reading_is_cheap
from autoscout.common.machine import cpu_quota, machine_cores, machine_memory_gb
from autoscout.core.errors import require
from autoscout.core.launch import Launch
from autoscout.core.protocols import Job
from autoscout.execute._shared.allocation import Pool, Share
from autoscout.execute._shared.call import pack_call
from autoscout.execute._shared.executor import QueuedExecutor, check_launch
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.sharing import GpuOptions, OnGpus
from autoscout.execute._shared.supervisor.client import Supervised
from autoscout.execute._shared.threads import thread_environment


@dataclass(frozen=True, kw_only=True)
class LocalOptions(GpuOptions):
    """How the local executor shares the machine and treats a trial; more than one slot disturbs measurements, even on separate cores.

    Attributes:
        cores: Cores to use; all that this process may use when None.
        gpus: GPUs to use, as `CUDA_VISIBLE_DEVICES` names them; all that are found when None.
        pin: Keep each trial on its cores.
    """

    cores: Sequence[int] | None = None
    gpus: Sequence[str | int] | None = None
    pin: bool = True

    def __post_init__(self) -> None:
        there = set(machine_cores())
        unknown = [core for core in self.cores or () if core not in there]
        cores = (not unknown and (self.cores is None or len(self.cores) > 0), f"must name cores among {sorted(there)}")
        require("executor local", self, self.checks() | {"cores": cores})


class LocalExecutor(QueuedExecutor):
    """Runs trials as processes on this machine, each on its own cores and GPUs.

    Every launch has a supervisor process that enforces its limits and ends all its descendants, also those that left its session;
    if AutoScout is killed, the trials end with it. Calls run in a fresh Python process and must pickle.
    """

    def __init__(self, options: LocalOptions | None = None) -> None:
        self.options = options or LocalOptions()
        cores, self._pinned = self._cores()
        gpus = present_gpus() if self.options.gpus is None else tuple(map(str, self.options.gpus))
        self._hide_gpus = bool(gpus) and self.options.slots > 1
        pool = Pool(self.options.slots, cores, gpus, machine_memory_gb())
        super().__init__(self.options, pool, "local")
        self._sharing = self.options.sharing(gpus)

    def submit(self, launch: Launch) -> Job:
        check_launch(launch)
        packed = None if launch.call is None else pack_call(launch.call, launch.name)
        return self._queue.submit(launch, lambda share: self._prepare(launch, share, packed))

    def _prepare(self, launch: Launch, share: Share, packed: bytes | None) -> LaunchRun:
        if share.gpus or (self._sharing.gpus and not self._hide_gpus and reading_is_cheap()):
            return OnGpus(launch, share, self._sharing, lambda share, held: self._supervised(launch, share, packed, held))
        return self._supervised(launch, share, packed)

    def _cores(self) -> tuple[tuple[int, ...], bool]:
        """The cores to hand out, and whether trials can be pinned to them."""
        if self.options.cores is not None:
            return tuple(self.options.cores), self.options.pin
        cores, quota = machine_cores(), cpu_quota()
        if quota is not None and quota < len(cores):
            # Pinned to the first few cores, the container would compete with others there: its quota is of time, not of cores.
            return cores[: max(1, int(quota))], False
        return cores, self.options.pin

    def _supervised(self, launch: Launch, share: Share, packed: bytes | None, held: Sequence[int] = ()) -> Supervised:
        extra = thread_environment(share.cores, launch.env)
        # A trial that runs alone may see GPUs it did not ask for; one that shares the machine must not.
        if (share.gpus or self._hide_gpus) and not any(name in launch.env for name in VISIBLE_GPUS):
            extra |= gpu_environment(share.gpus)
        used = share if self._pinned else Share(gpus=share.gpus, memory_gb=share.memory_gb)
        return Supervised(launch, used, self._settings, extra, packed, held=held)


__all__ = ["LocalExecutor"]

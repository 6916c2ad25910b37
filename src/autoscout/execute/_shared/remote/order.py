"""What a machine is asked to run, and how: travels to it and becomes a run there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscout.common.gpus import VISIBLE_GPUS, gpu_environment, present_gpus
from autoscout.common.leases import Lease, Ticket, lease_folder
from autoscout.common.machine import machine_cores
from autoscout.core.launch import Completed, Launch
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.sharing import GpuSharing, OnGpus
from autoscout.execute._shared.supervisor.client import LaunchSettings, Supervised
from autoscout.execute._shared.threads import thread_environment

GIVEN_GPUS = "AUTOSCOUT_GIVEN_GPUS"
"""Environment variable of an agent: the GPUs that a batch system gave it, for when it could not set CUDA's own variable."""


@dataclass(frozen=True, kw_only=True)
class LaunchOrder:
    """One launch for one machine.

    Attributes:
        launch: Without its call, which travels packed: only the process that runs it needs its code.
        settings: How launches are treated.
        packed: The call.
        cores: Which of the machine's cores to use, counted from 0; the launch's number of them is leased there when None.
        gpus: Which of its GPUs, counted from 0; those that its batch system handed out when None.
        sharing: How to get along with others on the GPUs; None where a batch system keeps others away.
        extra: Environment that comes from the rank of this machine among those of the launch.
    """

    launch: Launch
    settings: LaunchSettings
    packed: bytes | None = None
    cores: tuple[int, ...] | None = None
    gpus: tuple[int, ...] | None = None
    sharing: GpuSharing | None = None
    extra: Mapping[str, str] = field(default_factory=dict)

    def run(self) -> LaunchRun:
        """The launch, ready to run on this machine."""
        gpus = self._gpus()
        if self.sharing is None or not self.launch.resources.gpus:
            return _OnCores(self, Share(gpus=gpus))
        return OnGpus(self.launch, Share(gpus=gpus), replace(self.sharing, gpus=gpus), lambda share, held: _OnCores(self, share, held))

    def _gpus(self) -> tuple[str, ...]:
        count = self.launch.resources.gpus
        if not count:
            return ()
        there = present_gpus() or tuple(filter(None, os.environ.get(GIVEN_GPUS, "").split(",")))
        if self.gpus is None:
            return there[:count] if self.sharing is None else there
        return tuple(there[number] if number < len(there) else str(number) for number in self.gpus)

    def supervised(self, share: Share, held: Sequence[int]) -> Supervised:
        """The launch on this share of the machine."""
        extra = dict(self.extra) | thread_environment(share.cores, self.launch.env)
        if share.gpus and not any(name in self.launch.env for name in VISIBLE_GPUS):
            extra |= gpu_environment(share.gpus)  # those that are leased, whatever order CUDA counts in
        return Supervised(self.launch, share, self.settings, extra, self.packed, unpack=False, held=held, detached=True)


class _OnCores:
    """Finds the cores of a launch and runs it there, pinned; unpinned where the machine has fewer than the launch asks for."""

    def __init__(self, order: LaunchOrder, share: Share, held: Sequence[int] = ()) -> None:
        self._order = order
        self._share = share
        self._held = held
        self._stopped = False
        self._run: Supervised | None = None

    def stop(self) -> None:
        self._stopped = True
        if self._run is not None:
            self._run.stop()

    def run(self) -> Completed:
        lease = None if self._order.cores is not None else lease_cores(self._order.launch.resources.cpus)
        try:
            held = self._held if lease is None else (*self._held, *lease.descriptors)
            cores = tuple(map(int, lease.gpus)) if lease is not None else _numbered(self._order.cores or ())
            self._run = self._order.supervised(replace(self._share, cores=cores), held)
            if self._stopped:
                self._run.stop()
            return self._run.run()
        finally:
            if lease is not None:
                lease.release()


def lease_cores(count: int) -> Lease | None:
    """Lease `count` cores that no other launch has; None when the launch has all of them anyway, or too few are free."""
    there = machine_cores()
    if count >= len(there):
        return None
    with Ticket(count, {str(core): f"core-{core}" for core in there}, "cores of a launch", lease_folder()) as ticket:
        return ticket.take(lambda free: free[:count] if len(free) >= count else ())


def _numbered(numbers: Sequence[int]) -> tuple[int, ...]:
    there = machine_cores()
    return tuple(there[number] for number in numbers) if all(number < len(there) for number in numbers) else ()

"""A launch on GPUs of a machine that it shares with other studies and other people."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autoscout.common.gpus import VISIBLE_GPUS, Gpu, named, present_gpus, read_gpus, reading_is_cheap
from autoscout.common.leases import Holder, Lease, Ticket, lease_folder
from autoscout.core.launch import Completed, Launch, Tenant
from autoscout.core.log import NOTICES, logger
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.executor import Checks, LaunchOptions
from autoscout.execute._shared.queue import LaunchRun
from autoscout.execute._shared.supervisor.client import sweep_orphans
from autoscout.execute._shared.tenants import MOST_TENANTS, Watch, foreign, own_processes, tenants

LOOK_S = 0.25  # how often a launch that waits looks again
EXPENSIVE_LOOK_S = 5.0  # and where each look starts a program
SETTLED_GB = 1 / 16  # memory that may stay in use after a launch: drivers round

REMIND_S = 60.0  # how often at most the same reason for waiting is said

Reasons = frozenset[tuple[str, int]]
"""GPUs and the processes for which a launch waits."""

log = logger(__name__)
notices = logger(NOTICES)


@dataclass(frozen=True, kw_only=True)
class GpuSharing:
    """How an executor gets along with others on its GPUs."""

    gpus: tuple[str, ...]  # those it may use
    what: str  # for whom, in the messages of others
    wait_s: float  # how long to wait for other people's processes
    shared: bool  # whether to run next to them after that, instead of refusing
    settle_s: float = 0.0  # how long to wait for a finished launch's memory to come back
    notices_s: dict[Reasons, float] = field(default_factory=dict)  # what was said to the person who waits, and when


@dataclass(frozen=True, kw_only=True)
class GpuOptions(LaunchOptions):
    """Options of executors whose launches share GPUs with others.

    Attributes:
        gpu_wait_s: How long to wait for other people's processes on the GPUs of a launch.
        gpu_shared: Run next to them after that, instead of ending the study with their names.
        gpu_settle_s: How long to wait for a finished trial's GPU memory to come back before its GPUs are handed on.
    """

    gpu_wait_s: float = 300.0
    gpu_shared: bool = False
    gpu_settle_s: float = 15.0

    def checks(self) -> Checks:
        """The rules for these options and those of every launch."""
        rule = "must not be negative"
        return super().checks() | {"gpu_wait_s": (self.gpu_wait_s >= 0, rule), "gpu_settle_s": (self.gpu_settle_s >= 0, rule)}

    def sharing(self, gpus: tuple[str, ...]) -> GpuSharing:
        """How launches on these GPUs get along with others."""
        what = gpu_user(self.folder)
        return GpuSharing(gpus=gpus, what=what, wait_s=self.gpu_wait_s, shared=self.gpu_shared, settle_s=self.gpu_settle_s)


def gpu_user(folder: str | Path | None) -> str:
    """For whom an executor leases GPUs, in words for those who wait."""
    return f"study in {Path(folder).absolute()}" if folder is not None else Path(sys.argv[0]).name


class OnGpus:
    """Waits for GPUs, runs a launch on them, and tells who disturbed it.

    Args:
        launch: What to run. One that asks for no GPU waits for none, but the GPUs it may see are watched.
        share: Its share of the machine; its GPUs are taken first when they are free.
        sharing: How.
        make: Given the share with the GPUs it got, and descriptors that keep the lease while they are open, what runs the launch.
    """

    def __init__(self, launch: Launch, share: Share, sharing: GpuSharing, make: Callable[[Share, Sequence[int]], LaunchRun]) -> None:
        self._launch = launch
        self._share = share
        self._sharing = sharing
        self._make = make
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._run: LaunchRun | None = None
        own = present_gpus(launch.env) if any(name in launch.env for name in VISIBLE_GPUS) else sharing.gpus
        self._gpus = tuple(dict.fromkeys([*(gpu for gpu in share.gpus if gpu in own), *own]))
        self._count = min(launch.resources.gpus, len(self._gpus))

    def stop(self) -> None:
        with self._lock:
            self._stopped.set()
            run = self._run
        if run is not None:
            run.stop()

    def run(self) -> Completed:
        sweep_orphans()  # what a killed AutoScout left on the GPUs is nobody's tenant
        if not self._count:
            return self._watched(Lease(()), (), self._gpus)
        taken = self._take()
        if isinstance(taken, Completed):
            return taken
        lease, before = taken
        try:
            return self._watched(lease, before, lease.gpus)
        finally:
            lease.release()

    def _take(self) -> tuple[Lease, tuple[Tenant, ...]] | Completed:
        """Lease as many GPUs as the launch needs, those that nobody else uses; or how it ended instead."""
        readings = named(self._gpus, read_gpus())
        machine_names = {gpu: readings[gpu].uuid if gpu in readings else gpu for gpu in self._gpus}
        deadline_s: float | None = None  # for other tenants: waiting for a lease does not count
        with Ticket(self._count, machine_names, self._sharing.what, lease_folder()) as ticket:
            while not self._stopped.is_set():
                ours = own_processes()
                taken = {gpu: tenants(gpu, reading, ours) for gpu, reading in named(self._gpus, read_gpus()).items()}
                overdue = deadline_s is not None and time.monotonic() >= deadline_s
                choice = _Choice(self._count, taken, share=overdue and self._sharing.shared)
                lease = ticket.take(choice)
                if lease is not None:
                    return lease, tuple(each for gpu in lease.gpus for each in taken.get(gpu, ()))
                if choice.leasable is not None and choice.leasable < self._count:
                    deadline_s = None
                elif choice.leasable is not None:
                    if overdue:
                        return self._refused(taken)
                    deadline_s = deadline_s or time.monotonic() + self._sharing.wait_s
                self._tell(ticket.holders(), taken)
                self._stopped.wait(LOOK_S if reading_is_cheap() else EXPENSIVE_LOOK_S)
        return Completed(returncode=None, cancelled=True)

    def _tell(self, holders: dict[str, Holder], taken: dict[str, tuple[Tenant, ...]]) -> None:
        """Say for whom the launch waits: when that changes, and now and then."""
        reasons = {f"GPU {gpu}, held by {who}": (gpu, who.pid) for gpu, who in holders.items()}
        reasons |= {f"{each}": (gpu, each.pid) for gpu, there in taken.items() if gpu not in holders for each in there}
        key, now_s = frozenset(reasons.values()), time.monotonic()
        if reasons and now_s >= self._sharing.notices_s.get(key, -REMIND_S) + REMIND_S:
            self._sharing.notices_s[key] = now_s
            notices.warning("waiting for %s", "; ".join(list(reasons)[:MOST_TENANTS]))

    def _refused(self, taken: dict[str, tuple[Tenant, ...]]) -> Completed:
        blocking = tuple(sorted((each for there in taken.values() for each in there), key=lambda each: -each.memory_gb))[:MOST_TENANTS]
        said = "; ".join(map(str, blocking))
        return Completed(
            returncode=None, error=f"waited {self._sharing.wait_s:g} s for GPUs that others use: {said}", disturbed_by=blocking
        )

    def _watched(self, lease: Lease, before: tuple[Tenant, ...], gpus: Sequence[str]) -> Completed:
        run = self._make(replace(self._share, gpus=lease.gpus) if self._count else self._share, lease.descriptors)
        with self._lock:
            self._run = run
        if self._stopped.is_set():
            run.stop()
        first = named(gpus, read_gpus())
        if not first:
            return run.run()
        with Watch(gpus, before, first) as watch:
            completed = run.run()
        if not self._count:
            # It did not say that it uses GPUs: what others did there matters only if it was there.
            return completed if not watch.own_seen else _marked(completed, watch)
        self._settle(first)
        conditions = {"gpu_memory_before_gb": round(sum(gpu.used_gb for gpu in first.values()), 3), **completed.conditions}
        return _marked(replace(completed, conditions=conditions), watch)

    def _settle(self, before: dict[str, Gpu]) -> None:
        """Wait until the launch's GPU memory has come back, so that it does not fail the next one."""
        deadline_s = time.monotonic() + self._sharing.settle_s
        while self._sharing.settle_s and _ours_gb(named(tuple(before), read_gpus())) > _ours_gb(before) + SETTLED_GB:
            if time.monotonic() >= deadline_s:
                log.warning("GPU memory of %s has not come back after %g s", self._launch.name, self._sharing.settle_s)
                return
            time.sleep(LOOK_S)


class _Choice:
    """Picks from the GPUs that could be leased those that nobody uses; with `share` also others, the least used first."""

    def __init__(self, count: int, taken: dict[str, tuple[Tenant, ...]], share: bool) -> None:
        self._count = count
        self._taken = taken
        self._share = share
        self.leasable: int | None = None  # None until asked

    def __call__(self, free: Sequence[str]) -> Sequence[str]:
        self.leasable = len(free)
        ranked = sorted(free, key=lambda gpu: sum(each.memory_gb for each in self._taken.get(gpu, ())))
        good = [gpu for gpu in ranked if self._share or not self._taken.get(gpu)]
        return good[: self._count] if len(good) >= self._count else ()


def _ours_gb(gpus: dict[str, Gpu]) -> float:
    """Memory in use that no listed process of others holds."""
    ours = own_processes()
    return sum(gpu.used_gb - sum(process.memory_gb for process in foreign(gpu, ours)) for gpu in gpus.values())


def _marked(completed: Completed, watch: Watch) -> Completed:
    started = completed.wall_s > 0  # else it failed for reasons of its own
    return replace(
        completed,
        conditions={**completed.conditions, **watch.conditions()},
        disturbed_by=watch.disturbed_by() if started else (),
    )

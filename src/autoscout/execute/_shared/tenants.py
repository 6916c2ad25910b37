"""Other people's processes on the GPUs of a launch: who they are, and what they did while it ran."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from autoscout.common import processes
from autoscout.common.derived import ENERGY_CONDITION, POWER_CONDITION
from autoscout.common.gpus import Gpu, GpuProcess, named, read_gpus, reading_is_cheap
from autoscout.core.launch import Tenant

TENANT_MEMORY = 0.05
"""Share of a GPU's memory that others may hold before the GPU counts as taken; an idle CUDA context holds less."""

TENANT_LOAD = 0.2
"""Share of a GPU's time that others may use before the GPU counts as taken."""

PRESENT_MEMORY = 0.01
"""Share of a GPU's memory below which nobody computes there: its load is what is left of a program that has just ended."""

MOST_TENANTS = 8  # named in one message
HIDDEN = "that cannot be seen from here"  # in another container, say

LOOK_S = 1.0  # how often the GPUs of a running launch are read
EXPENSIVE_LOOK_S = 10.0  # and where each reading starts a program


def own_processes() -> set[int]:
    """This process and everything below it: supervisors keep the trials they started, also those that left their session."""
    return {os.getpid(), *processes.descendants(os.getpid())}


def foreign(gpu: Gpu, ours: Collection[int]) -> list[GpuProcess]:
    """Listed processes of others that compute."""
    return [process for process in gpu.processes if process.pid not in ours and not process.graphics]


def tenants(name: str, gpu: Gpu, ours: Collection[int]) -> tuple[Tenant, ...]:
    """Processes that occupy this GPU while nothing of ours runs on it; none when it is free enough."""
    listed = foreign(gpu, ours)
    listed_gb = sum(process.memory_gb for process in listed)
    own_gb = sum(process.memory_gb for process in gpu.processes) - listed_gb
    hidden_gb = max(0.0, gpu.used_gb - own_gb - listed_gb)
    present = bool(listed) or hidden_gb > PRESENT_MEMORY * gpu.total_gb
    loads = [process.utilisation for process in listed if process.utilisation is not None]
    load = sum(loads) if listed and len(loads) == len(listed) else gpu.utilisation
    if listed_gb + hidden_gb <= TENANT_MEMORY * gpu.total_gb and not (present and load > TENANT_LOAD):
        return ()
    others = [Tenant(pid=each.pid, name=each.name, gpu=name, memory_gb=round(each.memory_gb, 3)) for each in listed]
    if hidden_gb > PRESENT_MEMORY * gpu.total_gb:
        others.append(Tenant(pid=0, name=HIDDEN, gpu=name, memory_gb=round(hidden_gb, 3)))
    return tuple(sorted(others, key=lambda tenant: -tenant.memory_gb))


class Watch:
    """Reads the GPUs of one launch while it runs. A context manager.

    Whose a process is: those below AutoScout are ours. One that came with the launch and was gone with it may be a container that
    the launch started through a daemon; it counts as somebody else's only when the launch had processes of its own on the GPU.

    Args:
        gpus: As `CUDA_VISIBLE_DEVICES` names them.
        before: Those who were there before it started.
        first: The GPUs as they were read just before.
    """

    def __init__(self, gpus: Sequence[str], before: Sequence[Tenant] = (), first: Mapping[str, Gpu] | None = None) -> None:
        self._gpus = gpus
        self._first = first or {}
        self._before = before
        self._older = {int(path.name) for path in Path("/proc").glob("[0-9]*")}
        self._over = threading.Event()
        self._samples: list[Mapping[str, Gpu]] = []
        self._visible: set[int] = set()  # a number that is no process here is one of another container's numbers
        self._ours = own_processes()
        self.own_seen = False
        self._thread = threading.Thread(target=self._work, name="gpu-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._began_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._lasted_s = time.monotonic() - self._began_s
        self._over.set()
        self._thread.join()
        self._running = set(processes.running(self._visible - self._ours))

    def _work(self) -> None:
        period_s = LOOK_S if reading_is_cheap() else EXPENSIVE_LOOK_S
        ended = False
        while not ended:
            ended = self._over.wait(period_s)
            self._ours |= own_processes()
            sample = named(self._gpus, read_gpus())
            pids = {process.pid for gpu in sample.values() for process in gpu.processes}
            self.own_seen |= bool(pids & self._ours)
            self._visible |= {pid for pid in pids if Path(f"/proc/{pid}").exists()}
            self._samples.append(sample)

    def _is_foreign(self, process: GpuProcess) -> bool:
        if process.pid in self._ours or process.graphics:
            return False
        if any(tenant.pid == process.pid for tenant in self._before):
            return True
        return process.pid in self._visible and (self.own_seen or process.pid in self._older or process.pid in self._running)

    def conditions(self) -> dict[str, float]:
        """What it saw: load of the GPUs, and the largest memory and load of others (the latter where the driver tells)."""
        if not all(self._samples):
            return {}  # a GPU that can no longer be read
        hidden_gb = sum(tenant.memory_gb for tenant in self._before if not tenant.pid)
        during = self._samples[:-1] or self._samples  # the last one was taken after the end, to see who is still there
        values = {"gpu_utilisation": round(fmean(gpu.utilisation for sample in during for gpu in sample.values()), 4)}
        by_sample = [[each for gpu in sample.values() for each in gpu.processes if self._is_foreign(each)] for sample in self._samples]
        values["gpu_other_memory_gb"] = round(max(sum((each.memory_gb for each in one), 0.0) for one in by_sample) + hidden_gb, 3)
        if all(each.utilisation is not None for one in by_sample for each in one):
            values["gpu_other_share"] = round(min(1.0, max(sum((each.utilisation or 0.0 for each in one), 0.0) for one in by_sample)), 4)
        return values | self._energy(during)

    def _energy(self, during: Sequence[Mapping[str, Gpu]]) -> dict[str, float]:
        """Watts while the GPUs worked, and joules of the whole launch; nothing where the hardware does not report power.

        They worked where their load was at least half of the highest: starting up and waiting for files says nothing about the load.
        """
        readings = [list(sample.values()) for sample in during]
        if any(gpu.power_w is None for sample in readings for gpu in sample):
            return {}
        watts = [sum(gpu.power_w or 0.0 for gpu in sample) for sample in readings]
        loads = [sum(gpu.utilisation for gpu in sample) for sample in readings]
        working = fmean(power for power, load in zip(watts, loads, strict=True) if 2.0 * load >= max(loads))
        last = self._samples[-1]
        used = [self._since_first(name, gpu) for name, gpu in last.items()]
        energy_j = sum(each for each in used if each is not None) if used and None not in used else fmean(watts) * self._lasted_s
        return {POWER_CONDITION: round(working, 3), ENERGY_CONDITION: round(energy_j, 3)}

    def _since_first(self, name: str, gpu: Gpu) -> float | None:
        first = self._first[name].energy_j if name in self._first else None
        return None if first is None or gpu.energy_j is None else gpu.energy_j - first

    def disturbed_by(self) -> tuple[Tenant, ...]:
        """Tenants that held enough memory on a GPU to explain a failure, the largest first."""
        most: dict[tuple[str, int], Tenant] = {(tenant.gpu, tenant.pid): tenant for tenant in self._before}
        totals: dict[str, float] = {}
        for sample in self._samples:
            for name, gpu in sample.items():
                totals[name] = gpu.total_gb
                for each in gpu.processes:
                    largest = most.get((name, each.pid))
                    if self._is_foreign(each) and (largest is None or largest.memory_gb < each.memory_gb):
                        tenant = Tenant(pid=each.pid, name=each.name, gpu=name, memory_gb=round(each.memory_gb, 3))
                        most[name, each.pid] = tenant
        held: dict[str, float] = {}
        for tenant in most.values():
            held[tenant.gpu] = held.get(tenant.gpu, 0.0) + tenant.memory_gb
        much = [each for each in most.values() if held[each.gpu] > TENANT_MEMORY * totals.get(each.gpu, float("inf"))]
        return tuple(sorted(much, key=lambda tenant: -tenant.memory_gb)[:MOST_TENANTS])

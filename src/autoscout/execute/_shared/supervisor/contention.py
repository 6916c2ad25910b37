"""How busy the machine was with other things while a trial ran.

Standard library only: the supervisor loads this module in a bare interpreter.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class MachineCounters:
    """The machine's counters at one moment; what the system does not tell is None or absent.

    Attributes:
        cores: The cores whose use is counted.
        stall_us: Total time during which some task waited, by resource (pressure stall information).
        busy_ticks: Time the cores were not idle, for any process, stolen time included.
        load_1min: Load average of the machine.
    """

    cores: tuple[int, ...]
    stall_us: dict[str, float]
    busy_ticks: int | None
    load_1min: float | None

    @classmethod
    def read(cls, cores: Sequence[int] | None) -> MachineCounters:
        """Read them now; None counts all cores that this process may use."""
        used = tuple(cores) if cores else all_cores()
        stalls = {resource: total for resource in ("cpu", "memory") if (total := _stall_us(resource)) is not None}
        load: float | None = None
        with contextlib.suppress(OSError):  # not available in some sandboxes
            load = os.getloadavg()[0]
        return cls(cores=used, stall_us=stalls, busy_ticks=_busy_ticks(used), load_1min=load)


def conditions(before: MachineCounters, after: MachineCounters, wall_s: float, cpu_s: float) -> dict[str, float]:
    """What a trial's circumstances were between two readings; what could not be read is left out.

    - `cpu_pressure`, `memory_pressure`: share of the time in which something on the machine waited for it;
    - `cpu_share`: CPU time of the trial over what its cores could have given;
    - `other_cpu_share`: the same for all other processes on the trial's cores;
    - `load_1min`: load average of the machine at the end; `cores`: how many cores the trial had.
    """
    wall_s = max(wall_s, 1e-6)
    capacity_s = wall_s * len(before.cores)
    values = {"cores": float(len(before.cores)), "cpu_share": round(cpu_s / capacity_s, 4)}
    for resource in before.stall_us.keys() & after.stall_us.keys():
        values[f"{resource}_pressure"] = _share((after.stall_us[resource] - before.stall_us[resource]) / 1e6, wall_s)
    if before.busy_ticks is not None and after.busy_ticks is not None:
        busy_s = (after.busy_ticks - before.busy_ticks) / os.sysconf("SC_CLK_TCK")
        values["other_cpu_share"] = _share(busy_s - cpu_s, capacity_s)
    if after.load_1min is not None:
        values["load_1min"] = round(after.load_1min, 3)
    return values


def all_cores() -> tuple[int, ...]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), 4)


def _stall_us(resource: str) -> float | None:
    try:
        text = Path(f"/proc/pressure/{resource}").read_text()
        first = text.splitlines()[0]  # some avg10=0.00 avg60=0.00 avg300=0.00 total=12345
        return float(first.rpartition("total=")[2])
    except (OSError, ValueError, IndexError):
        return None


def _busy_ticks(cores: Sequence[int]) -> int | None:
    """Ticks in which these cores did anything: user, nice, system, irq, softirq, steal (guest time is part of user)."""
    names = {f"cpu{core}" for core in cores}
    total = 0
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, *fields = line.split()
        if name in names and len(fields) >= 8:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
            total += user + nice + system + irq + softirq + steal
            names.discard(name)
    return None if names else total

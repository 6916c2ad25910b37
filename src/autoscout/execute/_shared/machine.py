"""What this machine has: cores in the order in which to hand them out, a CPU quota, memory."""

from __future__ import annotations

import os
from pathlib import Path

from autoscout.execute._shared.supervisor.contention import all_cores

_CPU = Path("/sys/devices/system/cpu")


def machine_cores() -> tuple[int, ...]:
    """The cores this process may use; neighbours in the list share as much hardware as possible.

    Handed out in this order, the two threads of a physical core and the cores of a socket go to the same trial.
    """
    return tuple(sorted(all_cores(), key=lambda core: (_topology(core, "physical_package_id"), _topology(core, "core_id"), core)))


def cpu_quota(mount: Path = Path("/sys/fs/cgroup")) -> float | None:
    """CPU time that a container may use, in cores; None for no bound."""
    try:
        quota, period = (mount / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:
        quota_us = int((mount / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((mount / "cpu" / "cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError):
        return None


def machine_memory_gb() -> float:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3


def _topology(core: int, name: str) -> int:
    try:
        return int((_CPU / f"cpu{core}" / "topology" / name).read_text())
    except (OSError, ValueError):
        return 0

"""Facts of this machine, read from the system and never measured: its cores, what a container may use of them, its memory."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
from importlib import metadata
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
_CPU = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_CPU_INFO = Path("/proc/cpuinfo")
_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # flags of the processor (x86, Arm)


def machine_cores() -> tuple[int, ...]:
    """The cores this process may use; neighbours in the list share as much hardware as possible.

    Handed out in this order, the two threads of a physical core and the cores of a socket go to the same trial.
    """
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return tuple(sorted(allowed, key=lambda core: (_topology(core, "physical_package_id"), _topology(core, "core_id"), core)))


def cpu_quota(mount: Path | None = None) -> float | None:
    """CPU time that a container may use, in cores; None for no bound."""
    mount = mount or CGROUPS
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota, period = (mount / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota_us = int((mount / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((mount / "cpu" / "cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else None
    return None


def usable_cores() -> int:
    """Cores this process may keep busy: those it is allowed on, less what a container's quota forbids."""
    allowed, quota = len(machine_cores()), cpu_quota()
    return allowed if quota is None else min(allowed, max(1, int(quota)))


def physical_cores() -> int:
    """Cores of the machine, their hardware threads counted once."""
    siblings = set()
    for path in _CPU.glob("cpu[0-9]*/topology/thread_siblings"):
        with contextlib.suppress(OSError):
            siblings.add(path.read_text())
    return len(siblings) or os.cpu_count() or 1


def numa_nodes() -> int:
    """Parts of the machine that have memory of their own; at least one."""
    return max(1, len(list(_NODES.glob("node[0-9]*"))))


def machine_memory_gb() -> float:
    """Memory of the whole machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3


def lockable_gb() -> float:
    """Memory that may be locked; what cannot be bounded counts as all of it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return machine_memory_gb() if limit in (-1, resource.RLIM_INFINITY) else min(limit / 1024**3, machine_memory_gb())


def processor(path: Path = _CPU_INFO) -> str:
    """What the processor is called; its architecture where the system does not say."""
    with contextlib.suppress(OSError):
        fields = [line.partition(":") for line in path.read_text().splitlines()]
        names = {name.strip(): value.strip() for name, _, value in fields}
        if name := names.get("model name") or names.get("Model"):
            return name
    return platform.processor() or platform.machine()


def describe_machine() -> dict[str, str]:
    """This machine, and how busy it is, in words: without it nobody can judge a measurement later."""
    quota = cpu_quota()
    bound = "" if quota is None else f", a quota of {quota:g}"
    facts = {
        "processor": processor(),
        "cores": f"{len(machine_cores())} usable of {physical_cores()} physical{bound}",
        "memory": f"{machine_memory_gb():.1f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }
    with contextlib.suppress(metadata.PackageNotFoundError):
        facts["autoscout"] = metadata.version("autoscout")
    with contextlib.suppress(OSError):
        facts["load average"] = " ".join(f"{load:.2f}" for load in os.getloadavg()) + " (1, 5 and 15 minutes before the start)"
    return facts


def has_bf16(path: Path = _CPU_INFO) -> bool:
    """Whether the processor computes in bf16; without it a step in bf16 takes many times as long."""
    with contextlib.suppress(OSError):
        return any(_BF16 & set(line.split()) for line in path.read_text().splitlines() if line.startswith(("flags", "Features")))
    return False


def _topology(core: int, name: str) -> int:
    try:
        return int((_CPU / f"cpu{core}" / "topology" / name).read_text())
    except (OSError, ValueError):
        return 0

"""Facts of this machine that decide which settings make sense; read from the system, never measured."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import Any

from autoscout.catalog.machine import cores

_CPU = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")


def detect() -> dict[str, Any]:
    """The facts that a task holds when the caller gives none."""
    return {
        "cores": cores(),
        "physical_cores": physical_cores(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1),
        "lockable_gb": lockable_gb(),
        "pinnable": hasattr(os, "sched_getaffinity"),
        "numa_nodes": max(1, len(list(_NODES.glob("node[0-9]*")))),
    }


def physical_cores() -> int:
    """What llama.cpp takes for its number of threads: cores of the machine, their hardware threads counted once."""
    siblings = set()
    for path in _CPU.glob("cpu[0-9]*/topology/thread_siblings"):
        with contextlib.suppress(OSError):
            siblings.add(path.read_text())
    return len(siblings) or os.cpu_count() or 1


def lockable_gb() -> float:
    """Memory that may be locked; what cannot be bounded counts as all of it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return round((total if limit in (-1, resource.RLIM_INFINITY) else min(limit, total)) / 1024**3, 3)

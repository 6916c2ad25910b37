"""Facts of this machine that several backends need."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")


def cores() -> int:
    """Cores this process may keep busy: those it is allowed on, less what a container's quota forbids."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = (_GROUP / "cpu.max").read_text().split()
        return allowed if quota == "max" else min(allowed, max(1, int(quota) // int(period)))
    with contextlib.suppress(OSError, ValueError, ZeroDivisionError):
        quota_us = int((_GROUP / "cpu" / "cpu.cfs_quota_us").read_text())
        period_us = int((_GROUP / "cpu" / "cpu.cfs_period_us").read_text())
        return allowed if quota_us <= 0 else min(allowed, max(1, quota_us // period_us))
    return allowed

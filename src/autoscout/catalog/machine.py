"""Facts of this machine that several backends need."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscout.catalog.gpus import gpu
from autoscout.core.errors import ConfigError

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


def counted_gpus(given: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a machine with `gpus: 8xH100`, as `autoscout estimate` writes it, taken apart."""
    match = re.fullmatch(r"(\d{1,6})\s*[x×*]\s*([^+]+)", str(given.get("gpus", "")))
    return {**given, "gpus": int(match[1]), "gpu": match[2].strip()} if match else dict(given)


def known_gpu(name: str) -> str:
    """The catalogue's name of a GPU where it has one; `NVIDIA H100 80GB HBM3` is an H100."""
    words = name.removeprefix("NVIDIA ").split()
    for length in range(len(words), 0, -1):
        try:
            return gpu(" ".join(words[:length])).name
        except ConfigError:
            continue
    return name

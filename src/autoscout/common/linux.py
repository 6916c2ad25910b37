"""What only Linux offers for looking after processes; on other systems each function does nothing and says so.

Standard library only: the supervisor loads this module in a bare interpreter.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

OOM_SCORE = 500
"""Added to a trial's badness, so that a kernel short of memory ends the trial and not AutoScout or the desktop."""


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends, however it was detached; False where not possible."""
    if sys.platform != "linux":
        return False
    return bool(_libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; called between fork and exec."""
    if sys.platform != "linux":
        return
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the wish was heard
        os._exit(1)


def volunteer_for_oom() -> None:
    """Make this process and its children the kernel's first choice when memory runs out."""
    if sys.platform != "linux":
        return
    try:
        Path("/proc/self/oom_score_adj").write_text(str(OOM_SCORE))
    except OSError:
        return  # a stricter score is already set, or /proc is read-only: the trial runs all the same


def pin(cores: Sequence[int]) -> None:
    """Keep this process and its children on `cores`."""
    if sys.platform == "linux" and cores:
        os.sched_setaffinity(0, cores)


def oom_kills() -> int | None:
    """How many processes the kernel has killed for memory since it started, in all control groups; None if it does not say."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except (OSError, ValueError):
        pass
    return None


def marked(name: str) -> Iterator[tuple[int, str]]:
    """Processes of ours whose environment holds the variable `name`, with its value."""
    prefix = name.encode() + b"="
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # somebody else's, or gone already
        if prefix not in environment:
            continue
        for entry in environment.split(b"\0"):
            if entry.startswith(prefix):
                yield int(folder.name), entry[len(prefix) :].decode(errors="replace")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

"""Processes: who descends from one, how much memory they hold, and what Linux offers for looking after them.

Linux reads /proc; elsewhere `ps` answers the same questions, slower and without telling shared memory from private, and what only
Linux offers does nothing. Standard library only: the supervisor of a launch loads this module in a bare interpreter.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

OOM_SCORE = 500
"""Added to a trial's /proc/PID/oom_score_adj (-1000 to 1000), so that a kernel short of memory ends the trial and not AutoScout."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Memory of a tree of processes, in bytes."""

    own: int  # anonymous and shared memory: what the kernel cannot take back
    mapped: int  # files mapped by the process that maps most: several map the same weights and libraries

    @property
    def resident(self) -> int:
        """What the tree occupies."""
        return self.own + self.mapped


def descendants(root: int, group: int | None = None) -> list[int]:
    """All processes below `root`, itself excluded.

    Args:
        root: Where to start. On Linux with orphans adopted by `root`, nothing can leave its tree.
        group: Process group whose members count too; where orphans are not adopted it catches those that stayed in it.
    """
    if Path("/proc/self/stat").exists():
        return _below(root, _children_by_proc(root))
    return _below(root, _children_by_ps(root, group))


def running(pids: Iterable[int]) -> list[int]:
    """Those of `pids` that still run; a process that has ended and waits for its parent (a zombie) does not."""
    return [pid for pid in pids if _state(pid) not in ("", "Z", "X")]


def usage(pids: Iterable[int]) -> Usage:
    """Memory of these processes; shared memory counts once for each that maps it, so `own` is an upper bound."""
    if not Path("/proc/self/status").exists():
        return Usage(own=sum(_resident_by_ps(list(pids))), mapped=0)
    own = mapped = 0
    for pid in pids:
        fields = _kilobytes(Path(f"/proc/{pid}/status"))
        anonymous = fields.get("RssAnon", fields.get("VmRSS", 0))  # kernels before 4.5 do not split VmRSS
        own += (anonymous + fields.get("RssShmem", 0)) * 1024
        mapped = max(mapped, fields.get("RssFile", 0) * 1024)
    return Usage(own=own, mapped=mapped)


def own_exactly(pids: Iterable[int]) -> int:
    """Like `usage().own` but with memory that several processes share divided among them.

    The kernel walks the page tables for it, which would disturb a measurement: ask only when the cheap bound is passed.
    """
    total = 0
    for pid in pids:
        fields = _kilobytes(Path(f"/proc/{pid}/smaps_rollup"))
        if "Pss_Anon" in fields:
            total += (fields["Pss_Anon"] + fields.get("Pss_Shmem", 0)) * 1024
        else:
            total += usage([pid]).own
    return total


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends, however it was detached; False where not possible."""
    if sys.platform != "linux":
        return False
    return bool(_libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def begin_program() -> None:
    """What a program that runs inside a trial does first: take over orphans, and clean up before it ends when it is told to stop."""
    adopt_orphans()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; called between fork and exec."""
    if sys.platform != "linux":
        return
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the request took effect
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


def opened(name: str) -> set[tuple[int, int]] | None:
    """Device and inode of every file of this name that a process of ours has open; None where the system does not say."""
    if not Path("/proc/self/fd").exists():
        return None
    files = set()
    for folder in Path("/proc").glob("[0-9]*/fd"):
        try:
            entries = list(folder.iterdir())
        except OSError:
            continue  # somebody else's, or gone already
        for entry in entries:
            with suppress(OSError):  # closed already
                if entry.readlink().name == name:
                    status = entry.stat()
                    files.add((status.st_dev, status.st_ino))
    return files


def _below(root: int, children: dict[int, list[int]]) -> list[int]:
    descendants: list[int] = []
    visited = {root}
    todo = [root]
    while todo:
        for child in children.get(todo.pop(), ()):
            if child not in visited:
                visited.add(child)
                descendants.append(child)
                todo.append(child)
    return descendants


def _children_by_proc(root: int) -> dict[int, list[int]]:
    if Path(f"/proc/{root}/task/{root}/children").exists():
        return _children_by_task(root)
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - called often, and only names are wanted
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(name))
    return children


def _children_by_task(root: int) -> dict[int, list[int]]:
    """Walks down from `root` only: costs nothing for the thousands of other processes of a big machine."""
    children: dict[int, list[int]] = {}
    todo = [root]
    while todo:
        pid = todo.pop()
        if pid in children:
            continue
        children[pid] = []
        try:
            for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123 - several times a second, for every thread
                    children[pid] += map(int, file.read().split())
        except OSError:
            continue  # it ended while we looked; its children have a new parent that we also visit
        todo += children[pid]
    return children


def _children_by_ps(root: int, group: int | None) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid, parent, its_group in _ps("pid=,ppid=,pgid="):
        inside = group is not None and its_group == group and pid != root
        children.setdefault(root if inside else parent, []).append(pid)
    return children


def _resident_by_ps(pids: list[int]) -> list[int]:
    selection = set(pids)
    return [kilobytes * 1024 for pid, kilobytes in _ps("pid=,rss=") if pid in selection]


def _ps(columns: str) -> list[tuple[int, ...]]:
    answer = subprocess.run(["ps", "-axo", columns], capture_output=True, text=True, check=False)
    rows = [line.split() for line in answer.stdout.splitlines()]
    return [tuple(map(int, row)) for row in rows if all(cell.lstrip("-").isdigit() for cell in row)]


def _kilobytes(path: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    try:
        text = path.read_text()
    except OSError:
        return sizes
    for line in text.splitlines():
        if line.endswith(" kB"):
            name, _, rest = line.partition(":")
            sizes[name] = int(rest[:-3])
    return sizes


def _state(pid: int) -> str:
    """Letter of a process's state as `ps` shows it; empty when there is no such process."""
    try:
        if sys.platform == "linux":
            return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
        return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()[:1]
    except OSError:
        return ""


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


if sys.platform == "win32":
    raise ImportError("processes are looked after on Linux and macOS only")

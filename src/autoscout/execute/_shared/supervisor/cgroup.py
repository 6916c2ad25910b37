"""Memory limits by control group (version 2), where this process may make one.

The kernel then holds the limit exactly. Without one, the supervisor looks several times a second and ends what is over.
"""

from __future__ import annotations

import os
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")


def memory_group(name: str, memory_bytes: int, mount: Path = MOUNT, listing: Path = Path("/proc/self/cgroup")) -> Path | None:
    """A new, empty control group with this memory limit and no swap; None where the system does not let us.

    It is made below our own group, or next to it when ours holds processes (a group cannot have both) and has no limit of its own
    that the trial would escape.
    """
    for parent in _parents(mount, listing):
        folder = parent / f"autoscout-{name}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            _write(folder / "memory.max", str(memory_bytes))
            for file, text in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
                if (folder / file).exists():  # absent without swap accounting, and before Linux 4.19
                    _write(folder / file, text)
        except OSError:
            remove_group(folder)
            continue
        return folder
    return None


def remove_group(folder: Path | None) -> None:
    """Give a group back; nothing happens while it still holds processes."""
    if folder is not None:
        try:
            folder.rmdir()
        except OSError:
            return


def _parents(mount: Path, listing: Path) -> list[Path]:
    if not (mount / "cgroup.controllers").exists():
        return []
    try:
        lines = listing.read_text().splitlines()
    except OSError:
        return []
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    own = mount / path.lstrip("/")
    if not own.is_dir():
        own = mount  # a container that sees its own group as the root
    candidates = [own]
    if own != mount and _read(own / "memory.max") == "max":
        candidates.append(own.parent)
    return [folder for folder in candidates if "memory" in _read(folder / "cgroup.subtree_control").split()]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)  # the kernel made the file; creating one would hide a missing controller
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)

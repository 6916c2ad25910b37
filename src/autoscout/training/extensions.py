"""The folder in which PyTorch compiles extensions during trials, without locks of processes that were killed. Standard library only.

DeepSpeed and others compile C++ when they are first used. PyTorch keeps what it compiled, and holds a file `lock` next to it while it
does; everybody else waits until that file is gone. A trial that is killed meanwhile leaves it, and all later ones would wait in vain.
Whoever holds the lock has the file open, so one that nobody has open is left over. That can be told of processes on this machine only:
trials have a folder for each machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from autoscout.common.cache import cache_folder
from autoscout.common.processes import opened
from autoscout.core.clock import RealClock

VARIABLE = "TORCH_EXTENSIONS_DIR"
LOCK = "lock"
AGAIN_S = 0.5  # between two looks: who releases a lock closes the file, and then removes it


def extensions_folder(program: str, environment: Mapping[str, str]) -> Path:
    """Where a program compiles: in the folder that the user named for extensions, else in the cache; its own there.

    Args:
        program: First word of its command. What one environment has compiled another cannot use.
        environment: Of the program.
    """
    found = shutil.which(program, path=environment.get("PATH")) or program
    whose = hashlib.sha256(found.encode()).hexdigest()[:8]
    return cache_folder("torch_extensions", environment.get(VARIABLE, "")).absolute() / f"{socket.gethostname()}-{whose}"


def clear_locks(folder: Path) -> None:
    """Remove the locks that nobody holds."""
    if left := _unheld(folder):
        RealClock().sleep(AGAIN_S)
        for path, *_ in left & _unheld(folder):
            path.unlink(missing_ok=True)


def compiling(folder: Path) -> list[str]:
    """Names of the extensions that somebody compiles there."""
    return sorted(path.parent.name for path in folder.glob(f"*/{LOCK}"))


def _unheld(folder: Path) -> set[tuple[Path, int, int]]:
    """Locks of this user that no process has open, with what tells one from another of the same name; none where /proc is missing."""
    locks = {}
    for path in folder.glob(f"*/{LOCK}"):
        with suppress(FileNotFoundError):  # released just now
            locks[path] = path.stat()
    held = opened(LOCK) if locks else None
    if held is None:
        return set()
    return {
        (path, status.st_ino, status.st_mtime_ns)
        for path, status in locks.items()
        if status.st_uid == os.getuid() and (status.st_dev, status.st_ino) not in held
    }

"""Folders that a server can enter after it gave up the rights of root, as PostgreSQL and nginx do; files written in one piece."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def make_folders(path: Path) -> None:
    """Make a folder and those above it that are missing, all of which other users may enter."""
    new = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in new:
        let_others_enter(folder)


def let_others_enter(folder: Path) -> None:
    """Let other users pass through a folder that root has made, whatever its umask; they still see no names in it.

    Nobody but root can start a server that continues as another user, so folders of other people stay as they are.
    """
    if os.geteuid() == 0:
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) | 0o011)


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file so that nobody ever reads half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


__all__ = ["let_others_enter", "make_folders", "write_whole"]

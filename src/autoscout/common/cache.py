"""Files that are made once and kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_folder(name: str, given: str = "") -> Path:
    """Folder of the files that are made: the given one, else `$AUTOSCOUT_CACHE/name`, else one in the user's cache folder."""
    if given:
        return Path(given)
    own = os.environ.get("AUTOSCOUT_CACHE")
    if own:
        return Path(own) / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autoscout" / name


def made_once(path: Path, make: Callable[[Path], None]) -> None:
    """Make a file in one piece. When several processes want it, one makes it and the others wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / f".{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        try:
            make(Path(name))
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise

"""Files that are made once and kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from autoscout.core.reading import is_reading


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


def answer_of(kind: str, question: Sequence[object], ask: Callable[[], str]) -> str:
    """What a program answers, asked once and kept: a study that is only read starts no program, and does without what was never asked.

    Args:
        kind: Folder of such answers.
        question: What the answer depends on: the words of the command, the state of its file.
        ask: Asks it; an empty answer is not kept.
    """
    digest = hashlib.sha256(json.dumps(list(question), default=str).encode()).hexdigest()[:24]
    path = cache_folder(kind) / f"{digest}.txt"
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    text = "" if is_reading() else ask()

    def keep(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8", errors="replace")

    if text:
        with contextlib.suppress(OSError):  # without a cache it is asked again next time
            made_once(path, keep)
    return text

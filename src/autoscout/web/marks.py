"""Which SQLite files have changed: a folder of hundreds of finished studies is not read again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoscout.core.clock import Clock
from autoscout.study.stores import scheme_of

SETTLED_S = 1.0
"""A file that was written later than so long ago may be written again without its time changing: clocks of files are coarse."""

Mark = tuple[tuple[int, int, int], ...]


class Marks:
    """What files were like when they were last looked into."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[str, Mark] = {}

    @contextmanager
    def looking(self, url: str) -> Iterator[bool]:
        """Around a look into a store: whether there may be anything new. Remembered when the look succeeds."""
        mark = self._mark(url)
        yield mark is None or self._marks.get(url) != mark
        if mark is not None:
            self._marks[url] = mark

    def _mark(self, url: str) -> Mark | None:
        """Changes with every commit; None where that cannot be told: on a server, or just after one."""
        if scheme_of(url):
            return None
        try:
            files = [path.stat() for path in (Path(url), Path(f"{url}-wal")) if path.exists()]
        except OSError:
            return None
        if not files or max(file.st_mtime for file in files) > self._clock.now_s() - SETTLED_S:
            return None
        return tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in files)


__all__ = ["Marks"]

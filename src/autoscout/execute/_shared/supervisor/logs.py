"""Log files with a bound: the beginning and the end are kept, the middle of a flood is left out.

Standard library only: the supervisor loads this module in a bare interpreter.
"""

from __future__ import annotations

import os
from pathlib import Path

GAP = "\n[... {count} bytes left out ...]\n"


class BoundedLog:
    """Writes what one stream says to a file, at most `limit_bytes` of it plus the last `tail_bytes`.

    The file grows while the process runs, so that `tail -f` works. A disk that is full never stops the process: what does not
    fit is dropped and `error` says why.
    """

    def __init__(self, path: Path, limit_bytes: int, tail_bytes: int) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)  # programs print what they are started with
        self._file = open(handle, "wb", buffering=0)  # noqa: PTH123, SIM115 - of a descriptor
        self._room = limit_bytes
        self._tail_bytes = tail_bytes
        self._tail = bytearray()
        self._left_out = 0
        self.error = ""

    def write(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        head, rest = data[: self._room], data[self._room :]
        self._room -= len(head)
        self._store(head)
        self._tail += rest
        if len(self._tail) > 2 * self._tail_bytes:
            self._cut()

    def close(self) -> None:
        """Add the end of a log that was too long; idempotent."""
        if self._file.closed:
            return
        self._cut()
        if self._left_out:
            self._store(GAP.format(count=self._left_out).encode())
        self._store(bytes(self._tail))
        self._file.close()

    def _cut(self) -> None:
        surplus = max(0, len(self._tail) - self._tail_bytes)
        self._left_out += surplus
        del self._tail[:surplus]

    def _store(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[self._file.write(view) or 0 :]
        except OSError as error:
            self._room = 0
            self.error = f"{self._file.name}: {error.strerror or error}"


def tail(path: Path, size_bytes: int) -> str:
    """The last `size_bytes` of a file as text; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - size_bytes))
            return file.read(size_bytes).decode(errors="replace")
    except OSError:
        return ""

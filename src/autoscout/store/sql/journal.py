"""Writes `trials.jsonl` so that it always agrees with the database, whoever is killed when."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autoscout.core.clock import RealClock
from autoscout.core.config import Config
from autoscout.core.errors import Fault, StoreError
from autoscout.core.journal import decode, public
from autoscout.core.log import logger
from autoscout.core.secrecy import without_secrets
from autoscout.core.trial import Trial
from autoscout.store.sql.errors import translate_os

log = logger(__name__)

LOCK_S = 60.0  # how long to wait for other processes, which hold the lock for milliseconds

Rows = Callable[[int], Iterable[tuple[int, str]]]
"""Asks the database for the (number, line) of a study's trials from a number on, in order."""


class Journal:
    """A `trials.jsonl` next to a database.

    The database is the truth and is written first. A line is written under a lock on the file, and only when the file does
    not hold that trial yet, so a crash in between costs nothing: whoever comes next adds what is missing. The file
    is read on from where the last look ended; other processes' lines are taken in like our own.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._forget()

    def heal(self, study: str, rows: Rows, aside: Collection[int] = ()) -> None:
        """Compare a whole study with the database and add what is missing. Trials that were set `aside` may be here only.

        Raises:
            StoreError: the file holds trials of this study that the database does not know.
        """
        with self._locked() as file:
            self._forget()
            self._take_in(file)
            listed = self._listed.get(study, {})
            stored = dict(rows(0))
            marks = {number: mark for number, mark in listed.items() if number in stored or number not in aside}
            foreign = [number for number, mark in marks.items() if number not in stored or _mark(decode(stored[number])) != mark]
            if foreign:
                raise StoreError(
                    Fault(
                        where=str(self.path),
                        rule=f"holds trials of study {study!r} that its store does not know, {min(foreign)} for one",
                        value=f"{len(foreign)} trials",
                        fix="It belongs to another store: move it away, or give another --output-dir",
                    )
                )
            self._write(file, study, stored.items())

    def trials(self, study: str) -> list[Trial]:
        """The trials of a study that the file has, as far as they can be read."""
        trials: list[Trial] = []
        with suppress(OSError):
            for line in self.path.read_bytes().splitlines():
                with suppress(ValueError):
                    trial = decode(line.decode())
                    trials += [trial] if trial.study == study else []
        return trials

    def add(self, study: str, rows: Rows) -> None:
        """Write the lines of a study that the file lacks."""
        with self._locked() as file:
            self._take_in(file)
            # The count of lines is the next number, or less where damaged trials were set aside, once the whole study was compared.
            self._write(file, study, rows(len(self._listed[study]) if study in self._complete else 0))

    @contextmanager
    def _locked(self) -> Iterator[int]:
        try:
            with self._mutex:
                new = not self.path.exists()
                file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    if new:
                        sync_folder(self.path.parent)
                    self._wait(file)
                    yield file
                finally:
                    os.close(file)  # gives the lock back
        except OSError as error:
            raise translate_os(error, str(self.path)) from error

    def _wait(self, file: int) -> None:
        clock = RealClock()
        deadline_s = clock.span_s() + LOCK_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if clock.span_s() > deadline_s:
                    rule = f"another process has kept this file locked for {LOCK_S:g} s"
                    fault = Fault(where=str(self.path), rule=rule, fix="Look for a stopped process that uses it, then resume")
                    raise StoreError(fault) from None
                clock.sleep(0.005)

    def _forget(self) -> None:
        self._inode = -1
        self._end = 0  # what lies before was taken in
        self._listed: dict[str, dict[int, str]] = {}
        self._complete: set[str] = set()  # studies whose lines have no gaps

    def _take_in(self, file: int) -> None:
        """Read what was added since the last look, and repair what a crash left behind."""
        state = os.fstat(file)
        if state.st_ino != self._inode or state.st_size < self._end:
            self._forget()  # somebody put another file there
            self._inode = state.st_ino
        raw = _read(file, self._end, state.st_size)
        good: list[bytes] = []
        sound = bad = 0  # bytes at the beginning that may stay as they are, lines that may not
        for text in raw.splitlines(keepends=True):
            try:
                trial = decode(text.decode())
            except ValueError:
                bad += 1
                continue
            self._listed.setdefault(trial.study, {})[trial.number] = _mark(trial)
            good.append(text if text.endswith(b"\n") else text + b"\n")
            sound += 0 if bad else len(text)
        whole = b"".join(good)
        if whole != raw:
            if bad:
                log.warning("%s: dropped %d torn line(s), the database has the trials", self.path, bad)
            _replace(file, self._end + sound, whole[sound:])
        self._end += len(whole)

    def _write(self, file: int, study: str, rows: Iterable[tuple[int, str]]) -> None:
        listed = self._listed.setdefault(study, {})
        missing = [(number, line) for number, line in rows if number not in listed]
        self._complete.add(study)
        if not missing:
            return
        raw = "".join(f"{public(line)}\n" for _, line in missing).encode()
        _replace(file, self._end, raw)
        self._end += len(raw)
        listed.update((number, _mark(decode(line))) for number, line in missing)


def sync_folder(folder: Path) -> None:
    """Make the entry of a new file durable too, not only its content."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _mark(trial: Trial) -> str:
    """What makes two trials with the same number the same trial."""
    config = without_secrets(trial.config.to_json())  # as the file has it
    return f"{Config(config).key} {trial.measurement.fidelity.label} {trial.proposal.repeat}"


def _read(file: int, start: int, end: int) -> bytes:
    parts = []
    while start < end and (part := os.pread(file, end - start, start)):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _replace(file: int, start: int, raw: bytes) -> None:
    """Let the file continue with `raw` from `start`, durably; what does not fit is taken back, so that no line is left torn."""
    written = 0
    try:
        os.ftruncate(file, start)
        while written < len(raw):
            written += os.pwrite(file, raw[written:], start + written)
        os.fsync(file)
    except OSError:
        os.ftruncate(file, start + raw.rfind(b"\n", 0, written) + 1)
        raise

"""GPUs and fixed ports leased among all AutoScouts of one machine, whoever started them.

A lease is a lock on a file: it ends with the processes that hold it, however they end. Who has to wait leaves a ticket, a
locked file with what it wants; GPUs are given in the order of the tickets. A launch waits for GPUs that an earlier one also wants,
and for no others.

    DIR/mutex           held for a moment while somebody looks and takes
    DIR/gpu-UUID        locked while leased; says by whom
    DIR/port-NUMBER     likewise, for a port that a campaign names
    DIR/wait-TIME-PID   locked while somebody waits; says for what
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.core.log import logger

PLACE = "AUTOSCOUT_LEASES"
"""Environment variable with the folder of the leases."""

EVERYBODY_FOLDER, EVERYBODY_FILE = 0o1777, 0o666  # users share a machine, so they share its leases; nobody removes another's

log = logger(__name__)

Choose = Callable[[Sequence[str]], Sequence[str]]
"""Given the GPUs that could be leased now, those to lease; none to wait on. Called with the mutex held: it must be quick."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who leases a GPU."""

    pid: int
    what: str

    def __str__(self) -> str:
        return f"pid {self.pid} ({self.what})" if self.what else f"pid {self.pid}"


class Lease:
    """GPUs that are ours until `release`, or until all processes that have `descriptors` open are gone."""

    def __init__(self, gpus: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        self.gpus = tuple(gpus)
        self.descriptors = tuple(descriptors)

    def release(self) -> None:
        """Hand them on; once only."""
        for descriptor in self.descriptors:
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # also for copies in processes that a call has forked
            os.close(descriptor)


class Ticket:
    """A place in the queue for `count` of some GPUs. A context manager.

    Args:
        count: How many are wanted.
        names: The GPUs that would do, as they are to be handed out -> what they are called on the whole machine.
        what: For whom, for the messages of others.
        folder: Of the leases; None where no folder can be used, and nothing is leased.
    """

    def __init__(self, count: int, names: Mapping[str, str], what: str, folder: Path | None) -> None:
        self._count = count
        self._names = {gpu: _plain(name) for gpu, name in names.items()}
        self._note = json.dumps({"pid": os.getpid(), "what": what})
        self._folder = folder
        self._path: Path | None = None
        self._file: int | None = None

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        if self._path is not None and self._file is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
        self._path = self._file = None

    def take(self, choose: Choose) -> Lease | None:
        """Lease what `choose` picks, now; None when it picks nothing or somebody else is just looking: ask again soon."""
        if self._folder is None:
            chosen = tuple(choose(list(self._names)))
            return Lease(chosen) if chosen else None
        with _mutex(self._folder) as mine:
            if not mine:
                return None
            reserved = self._reserved(self._folder)
            files = {gpu: file for gpu, name in self._names.items() if name not in reserved and (file := self._lock(name)) is not None}
            chosen = tuple(choose(list(files)))
            for gpu in [gpu for gpu in files if gpu not in chosen]:
                os.close(files.pop(gpu))
            if not files:
                self._queue()
                return None
            for file in files.values():
                _write(file, self._note)
            return Lease(chosen, [files[gpu] for gpu in chosen])

    def holders(self) -> dict[str, Holder]:
        """Who leases the GPUs that we would like, as far as known."""
        folder = self._folder
        return {} if folder is None else {gpu: who for gpu, name in self._names.items() if (who := holder(folder, name)) is not None}

    def _lock(self, name: str) -> int | None:
        assert self._folder is not None
        return _locked(self._folder / f"gpu-{name}")

    def _queue(self) -> None:
        assert self._folder is not None
        if self._file is None:
            self._path = self._folder / f"wait-{time.time_ns():020d}-{os.getpid()}-{id(self)}"
            self._file = _locked(self._path)
            if self._file is not None:
                _write(self._file, json.dumps({"count": self._count, "gpus": list(self._names.values())}))

    def _reserved(self, folder: Path) -> set[str]:
        """GPUs that are kept for those who came before: of each, as many free ones as it wants."""
        reserved: set[str] = set()
        for path in sorted(folder.glob("wait-*")):
            if self._path is not None and path.name >= self._path.name:
                break
            file = _locked(path, create=False)
            if file is not None:  # its owner is gone
                with suppress(OSError):
                    path.unlink()
                os.close(file)
                continue
            said = _read(path)
            names, count = said.get("gpus"), said.get("count")
            if isinstance(names, list) and isinstance(count, int):
                free = [name for name in map(str, names) if name not in reserved and _is_free(folder, _plain(name))]
                reserved.update(free[:count])
        return reserved


def lease_folder() -> Path | None:
    """Where the leases of this machine are; None, with a warning, when no such folder can be used."""
    place = os.environ.get(PLACE)
    shared = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())  # TMPDIR may differ between jobs
    folder = Path(place) if place else shared / "autoscout-gpus"
    try:
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(EVERYBODY_FOLDER)
        if stat.S_ISDIR(folder.lstat().st_mode) or place:
            with _mutex(folder):
                return folder
        log.warning("%s is not a folder: GPUs are not leased among studies", folder)
    except OSError as error:
        log.warning("GPUs are not leased among studies: %s: %s", error.strerror, error.filename)
    return None


def lease_port(port: int, what: str) -> Lease | None:
    """A port that a campaign names, so that two studies do not measure each other's server; None while another AutoScout has it."""
    folder = lease_folder()
    if folder is None:
        return Lease(())
    file = _locked(folder / f"port-{port}")
    if file is None:
        return None
    _write(file, json.dumps({"pid": os.getpid(), "what": what}))
    return Lease((), [file])


def port_holder(port: int) -> Holder | None:
    """Who leases a port, as far as known."""
    folder = lease_folder()
    return None if folder is None else _holder(folder / f"port-{port}")


def holder(folder: Path, name: str) -> Holder | None:
    """Who leases a GPU, by its name on the whole machine; None when nobody does."""
    path = folder / f"gpu-{_plain(name)}"
    if _is_free(folder, _plain(name)):
        return None
    return _holder(path)


def _holder(path: Path) -> Holder:
    said = _read(path)
    pid = said.get("pid")
    return Holder(pid=pid if isinstance(pid, int) else 0, what=str(said.get("what", "")))


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)[:100]


@contextmanager
def _mutex(folder: Path) -> Iterator[bool]:
    file = _locked(folder / "mutex", tries=20)
    try:
        yield file is not None
    finally:
        if file is not None:
            os.close(file)


def _is_free(folder: Path, name: str) -> bool:
    file = _locked(folder / f"gpu-{name}", create=False, shared=True)
    if file is None:
        return not (folder / f"gpu-{name}").exists()
    os.close(file)
    return True


def _locked(path: Path, create: bool = True, shared: bool = False, tries: int = 1) -> int | None:
    """A descriptor with a lock on a file; None when somebody else has it, or the file is not there and not to be made."""
    for _ in range(tries):
        try:
            file = os.open(path, (os.O_RDONLY if shared else os.O_RDWR) | os.O_NOFOLLOW)
        except FileNotFoundError:
            if not create:
                return None
            try:  # exclusive: Linux refuses to "create" the existing file of another user in a folder like /tmp
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, EVERYBODY_FILE)
                os.fchmod(file, EVERYBODY_FILE)
            except FileExistsError:
                continue
        except PermissionError:  # just made by another user, who has not opened it to everybody yet
            continue
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if os.fstat(file).st_ino == path.stat().st_ino:  # not a file that was removed meanwhile
                return file
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(file)
        if tries > 1:
            time.sleep(0.01)
    return None


def _write(file: int, text: str) -> None:
    os.ftruncate(file, 0)
    os.pwrite(file, text.encode(), 0)


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8")[:10_000])
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


__all__ = ["Choose", "Holder", "Lease", "Ticket", "holder", "lease_folder", "lease_port", "port_holder"]

"""Files and folders: results whole or not at all, folders that a server can enter after it gave up the rights of root, hostfiles."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.core.secrecy import hide_secrets

MOST_SLOTS = 65_536  # of one host: more than any machine has GPUs or cores

_LINE = re.compile(r"(?P<host>\S+)\s+slots=(?P<slots>\d+)")


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


def parse_hostfile(text: str, where: str = "hostfile") -> dict[str, tuple[int, ...]]:
    """Read a hostfile, as MPI and DeepSpeed launchers do: each host with its slots (GPU numbers), in the order of the file.

    One host a line, such as `worker-1 slots=4`; `#` begins a comment.

    Raises:
        ConfigError: one fault per bad line (nonsense, no slots, host twice), or one for a file without hosts.
    """
    hosts: dict[str, tuple[int, ...]] = {}
    first_seen: dict[str, int] = {}
    faults: list[Fault] = []
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        match = _LINE.fullmatch(line)
        rule = fix = ""
        if not match:
            rule, fix = "a line reads `HOST slots=NUMBER`", "Example: worker-1 slots=4"
        elif len(match["slots"]) > len(str(MOST_SLOTS)) or int(match["slots"]) > MOST_SLOTS:
            rule, fix = f"a host has at most {MOST_SLOTS:,} slots", "Count its GPUs"
        elif int(match["slots"]) == 0:
            rule, fix = "a host needs at least one slot", "Remove the line or count its GPUs"
        elif match["host"] in first_seen:
            rule = f"a host may be listed once; {match['host']} is on line {first_seen[match['host']]} already"
            fix = "Join the two lines"
        if not match or rule:
            faults.append(Fault(where=f"{where}:{number}", value=repr(raw.strip()), rule=rule, fix=fix))
            continue
        first_seen[match["host"]] = number
        hosts[match["host"]] = tuple(range(int(match["slots"])))
    if not hosts and not faults:
        faults.append(Fault(where=where, rule="a hostfile names at least one host", fix="Example: worker-1 slots=4"))
    if faults:
        raise ConfigError(faults)
    return hosts


def is_private(text: str, known: Collection[str] = ()) -> bool:
    """Whether only the owner may read a file: it holds what looks like a secret, or one of the texts that are known to be private."""
    return any(secret in text for secret in known) or hide_secrets(text) != text


def write_file(path: Path, text: str, *, private: bool = False) -> None:
    """Write a text file; a reader sees the old one or the new one, never half of it.

    Others may read it unless it is `private` or holds what looks like a secret.

    Raises:
        StoreError: it cannot be written.
    """
    with _translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                _pour(file.fileno(), text)
            Path(name).chmod(0o600 if private or is_private(text) else 0o644)
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise


def write_folder(path: Path, files: Mapping[str, str], known: Collection[str] = ()) -> None:
    """Write a folder of text files (`*.sh` executable); an earlier one is replaced only once the new one is complete.

    Args:
        path: The folder.
        files: Relative path -> text.
        known: Texts that are private: files that hold one are readable by their owner only, and so are those that hold what looks like
            a secret.

    Raises:
        ConfigError: a name that would leave the folder.
        StoreError: it cannot be written; the earlier folder is still there then.
    """
    _check_names(files)
    with _translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
        try:
            for name, text in files.items():
                _write_member(fresh / name, text, known)
            fresh.chmod(0o755)
            _swap(fresh, path)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


def _write_member(file: Path, text: str, known: Collection[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_private(file) as handle:
        _pour(handle.fileno(), text)
    mode = 0o755 if file.suffix == ".sh" else 0o644
    file.chmod(mode & 0o700 if is_private(text, known) else mode)


def open_private(path: Path) -> BinaryIO:
    """A file to write into that only its owner may read, from its first byte on."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    os.fchmod(handle, 0o600)  # one that was there already
    return os.fdopen(handle, "wb")


def _pour(handle: int, text: str) -> None:
    # Logs and configs may hold lone surrogates; a result must not be lost over them.
    data = memoryview(text.encode("utf-8", errors="replace"))
    while data:
        data = data[os.write(handle, data) :]
    os.fsync(handle)


def _swap(fresh: Path, path: Path) -> None:
    """Put `fresh` in the place of `path`. The old folder is kept next to it until the new one is in place."""
    if not path.is_symlink() and not path.exists():
        fresh.rename(path)
        return
    old = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-old-"))
    path.rename(old / "content")
    try:
        fresh.rename(path)
    except OSError:
        (old / "content").rename(path)  # where even this fails, the old folder stays in the hidden one
        raise
    if (old / "content").is_symlink():
        (old / "content").unlink()
    shutil.rmtree(old, ignore_errors=True)


def _check_names(files: Mapping[str, str]) -> None:
    faults = []
    for name in files:
        parts = PurePosixPath(name).parts
        if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name:
            faults.append(Fault(where="export", value=repr(name), rule="a file's name must stay inside the hand-over folder"))
    if faults:
        raise ConfigError(faults)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        rule = f"results cannot be written: {error.strerror or error}"
        fix = "Make room or choose another folder, then write it again (`autoscout report`); what was measured is in the store"
        raise StoreError(Fault(where=str(path), rule=rule, fix=fix)) from error


__all__ = ["is_private", "let_others_enter", "make_folders", "open_private", "parse_hostfile", "write_file", "write_folder", "write_whole"]

"""Writing results: whole or not at all, and one clear error when the disk is full or closed to us."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from autoscout.core.errors import ConfigError, Fault, StoreError


def write_file(path: Path, text: str) -> None:
    """Write a text file; a reader sees the old one or the new one, never half of it.

    Raises:
        StoreError: it cannot be written.
    """
    with _translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        try:
            with os.fdopen(handle, "wb") as file:
                _pour(file.fileno(), text)
            Path(name).chmod(0o644)
            Path(name).replace(path)
        except BaseException:
            with suppress(OSError):
                Path(name).unlink()
            raise


def write_folder(path: Path, files: Mapping[str, str]) -> None:
    """Write a folder of text files (`*.sh` executable); an earlier one is replaced only once the new one is complete.

    Args:
        path: The folder.
        files: Relative path -> text.

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
                _write_member(fresh / name, text)
            fresh.chmod(0o755)
            _swap(fresh, path)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


def _write_member(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("wb") as handle:
        _pour(handle.fileno(), text)
    file.chmod(0o755 if file.suffix == ".sh" else 0o644)


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

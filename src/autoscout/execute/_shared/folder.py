"""The folder of one launch: what is put into it, what the launch leaves there, what is read back."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from autoscout.common.files import is_private, let_others_enter, make_folders, open_private
from autoscout.core.errors import Fault
from autoscout.core.launch import Completed, Launch
from autoscout.core.log import logger
from autoscout.core.secrecy import known_secrets

FOLDER_VARIABLE = "AUTOSCOUT_FOLDER"
"""Tells a launch where its own folder is; calls run in the caller's folder and need it."""

log = logger(__name__)


def launch_faults(launch: Launch) -> list[Fault]:
    """What makes a launch impossible to start anywhere."""
    where = f"launch {launch.name}".strip()
    faults: list[Fault] = []
    if bool(launch.argv) == (launch.call is not None):
        faults.append(Fault(where=where, rule="a launch has either argv or call", fix="Set exactly one of them"))
    if any("\0" in part for part in (*launch.argv, *launch.env, *launch.env.values())):
        faults.append(Fault(where=where, rule="arguments and environment must not contain a zero character"))
    for field, paths in (("files", launch.files), ("outputs", launch.outputs)):
        for text in paths:
            path = PurePosixPath(text)
            if not text or path.is_absolute() or ".." in path.parts or path == PurePosixPath():
                faults.append(Fault(where=where, field=field, value=repr(text), rule="must be a path inside the launch's own folder"))
    if launch.limit_s is not None and launch.limit_s <= 0:
        faults.append(Fault(where=where, field="limit_s", value=f"{launch.limit_s:g}", rule="a limit must be above zero"))
    return faults


def make_folder(parent: Path, name: str) -> Path:
    """A new folder below `parent`, called `name` or, where that is taken, `name-2`, `name-3`, ..."""
    stem = re.sub(r"[^\w.=+~-]+", "-", name).strip(".-")[:120] or "launch"
    make_folders(parent)
    number = 1
    while True:
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
            let_others_enter(folder)
            return folder.resolve()
        except FileExistsError:
            number += 1


def fill_folder(folder: Path, launch: Launch, argv: list[str], added: Mapping[str, str]) -> None:
    """Write the launch's files, and the command and environment for people who want to repeat it by hand.

    A server that continues as another user must read its files, so only those that hold a secret are the owner's alone.
    """
    secrets = known_secrets(launch.env)
    for name, text in launch.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if is_private(text, secrets):
            path.chmod(0o600)
    _write_private(folder / "command.txt", f"{shlex.join(argv)}\n")
    lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(added.items()))
    _write_private(folder / "env.txt", lines)


def _write_private(path: Path, text: str) -> None:
    with open_private(path) as file:
        file.write(text.encode("utf-8", errors="backslashreplace"))


def expand(text: str, folder: Path) -> str:
    """`{folder}` replaced; other braces stay, since commands are full of JSON."""
    return text.replace("{folder}", str(folder))


def read_outputs(folder: Path, launch: Launch, limit_bytes: int) -> dict[str, str]:
    """Texts of the launch's outputs that exist."""
    texts: dict[str, str] = {}
    for name in launch.outputs:
        path = folder / name
        try:
            if not path.is_file():
                continue  # absent, or a pipe that would never end
            if path.stat().st_size > limit_bytes:
                log.warning("%s is larger than %d bytes and is not brought back", path, limit_bytes)
                continue
            texts[name] = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            log.warning("%s cannot be read: %s", path, error)
    return texts


def dispose_folder(folder: Path, completed: Completed, keep: str) -> bool:
    """Remove the folder unless it is to be kept (`all`, `failed`, `none`); whether it is still there."""
    good = completed.returncode == 0 and not completed.error
    if keep == "all" or (keep == "failed" and not good):
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False

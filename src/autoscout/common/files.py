"""Folders that a server can enter after it gave up the rights of root, as PostgreSQL and nginx do; files written whole; hostfiles."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from autoscout.core.errors import ConfigError, Fault

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


__all__ = ["let_others_enter", "make_folders", "parse_hostfile", "write_whole"]

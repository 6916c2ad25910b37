"""Who is working: names for processes that let anybody on the same machine see whether they still live.

A worker is named `host:pid:started:boot:namespace:machine[:label]`. The start time tells a process from a later one
with the same number, the boot id tells a machine from itself before a restart, the process-number namespace tells
containers on one machine apart, and the machine id tells two machines with the same host name apart.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_UNKNOWN = "?"


@dataclass(frozen=True, kw_only=True)
class _Worker:
    host: str
    pid: int
    started: str
    boot: str
    namespace: str
    machine: str

    @classmethod
    def here(cls) -> Self:
        pid = os.getpid()
        return cls(
            host=socket.gethostname().replace(":", "-"),
            pid=pid,
            started=_started(pid) or _UNKNOWN,
            boot=_first_line("/proc/sys/kernel/random/boot_id")[:8],
            namespace=_namespace(),
            machine=_first_line("/etc/machine-id")[:8],
        )

    @classmethod
    def parse(cls, text: str) -> Self | None:
        parts = text.split(":", 6)
        if len(parts) < 6 or not parts[1].isdigit():
            return None
        host, pid, started, boot, namespace, machine = parts[:6]
        return cls(host=host, pid=int(pid), started=started, boot=boot, namespace=namespace, machine=machine)

    def __str__(self) -> str:
        return f"{self.host}:{self.pid}:{self.started}:{self.boot}:{self.namespace}:{self.machine}"


def worker_identity(label: str = "") -> str:
    """Names this process for claims in a store.

    Asked anew in every process (also after a fork); equal within one. Give a `label` to tell apart several studies that
    share a process.
    """
    name = str(_Worker.here())
    return f"{name}:{label}" if label else name


def is_gone(worker: str) -> bool:
    """Whether `worker` ran on this machine and certainly does not any more.

    False whenever there is doubt: another machine, another container, a name that `worker_identity` did not give.
    """
    other = _Worker.parse(worker)
    if other is None:
        return False
    mine = _Worker.here()
    if (other.host, other.machine) != (mine.host, mine.machine):
        return False
    if other.boot != mine.boot:
        return bool(other.boot and mine.boot and mine.machine)  # this machine was restarted since
    if other.namespace != mine.namespace or _UNKNOWN in (other.started, mine.started):
        return False
    return _started(other.pid) not in (other.started, _UNKNOWN)


def _started(pid: int) -> str | None:
    """When a process began, in whatever unit the system keeps; None when there is no such process, `?` in doubt."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return _started_by_ps(pid) if _may_live(pid) else None
    if len(fields) < 20:
        return _UNKNOWN
    return None if fields[0] in ("Z", "X") else fields[19]  # a zombie holds nothing any more


def _started_by_ps(pid: int) -> str:
    """For systems without /proc (macOS), and for /proc that hides the processes of other users."""
    try:
        answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return _UNKNOWN
    text = answer.stdout.strip()
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else _UNKNOWN


def _may_live(pid: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 is not harmless everywhere
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # somebody else's process
    return True


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().strip().replace(":", "-")
    except (OSError, UnicodeDecodeError):
        return ""

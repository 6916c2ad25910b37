"""AutoScout's side of a supervised command: start the supervisor, tell it what to run, read its report."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from autoscout.common import processes
from autoscout.core.launch import Completed, Launch
from autoscout.core.log import logger
from autoscout.core.worker import is_gone, worker_identity
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.call import CallOutcome, call_command, call_outcome, unpacked
from autoscout.execute._shared.folder import FOLDER_VARIABLE, dispose_folder, expand, fill_folder, make_folder, read_outputs
from autoscout.execute._shared.supervisor.cgroup import memory_group, remove_group
from autoscout.execute._shared.supervisor.logs import tail

MARK = "AUTOSCOUT_JOB"
"""Environment variable that all processes of a trial inherit: how to find them should their supervisor be killed."""

PACKAGE = Path(__file__).parents[3]  # the folder `autoscout`
SUPERVISES = "AUTOSCOUT_SUPERVISES"
"""Environment variable of the supervisor itself, with the mark of its trial."""

CLOSED = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
"""What a disk answers that takes nothing more from us."""

STUCK_S = 60.0  # a supervisor that is overdue by this many seconds is taken for dead

# Loads the supervisor without the packages around it: no third-party import, a few hundredths of a second.
_BOOT = """
import os, sys, time, types
if sys.argv[2] == "detached":
    started_by = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == started_by:
        time.sleep(0.001)
package = sys.modules["autoscout"] = types.ModuleType("autoscout")
package.__path__ = [sys.argv[1]]
from autoscout.execute._shared.supervisor import program
program.main()
"""

log = logger(__name__)


@dataclass(frozen=True, kw_only=True)
class LaunchSettings:
    """How an executor treats every launch."""

    folder: Path  # trials get their folders below it
    grace_s: float
    keep_files: str
    log_mb: float
    tail_kb: float
    output_mb: float
    memory_gb: float | None = None  # for launches that set none


class Supervised:
    """One launch under a supervisor.

    Args:
        launch: What to run.
        share: What it may use; its cores are pinned when there are any.
        settings: How.
        extra: Environment that the share implies; the launch's own wins.
        packed: The launch's call, where it is one.
        unpack: Whether what the call returned is unpacked here, or left to a process that knows its class.
        held: Descriptors that the supervisor keeps open until the trial is gone, also when AutoScout is killed: leases.
        detached: Start the supervisor so that it is no child of this process, for hosts that kill the children of a process with it
            (Ray's workers do): the supervisor has to outlive it for a moment, to end the trial.
    """

    def __init__(
        self,
        launch: Launch,
        share: Share,
        settings: LaunchSettings,
        extra: Mapping[str, str],
        packed: bytes | None = None,
        unpack: bool = True,
        held: Sequence[int] = (),
        detached: bool = False,
    ) -> None:
        self._launch = launch
        self._share = share
        self._settings = settings
        self._extra = extra
        self._packed = packed
        self._unpack = unpack
        self._held = tuple(held)
        self._detached = detached
        self._lock = threading.Lock()
        self._stopped = False
        self._lifeline: int | None = None
        self._mark = worker_identity(uuid.uuid4().hex)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._lifeline is not None:
                with contextlib.suppress(OSError):  # it has just ended
                    os.write(self._lifeline, b"s")

    def run(self) -> Completed:
        sweep_orphans()
        if self._stopped:
            return Completed(returncode=None, cancelled=True)
        try:
            return self._run()
        except OSError as error:
            if error.errno not in CLOSED:
                raise
            reason = f"{self._settings.folder}: the folder of a launch cannot be written: {error.strerror}"
            return Completed(returncode=None, error=reason, cannot_start=True)

    def _run(self) -> Completed:
        folder = make_folder(self._settings.folder, self._launch.name)
        added = {FOLDER_VARIABLE: str(folder), **self._extra}
        added |= {name: expand(value, folder) for name, value in self._launch.env.items()}
        argv = self._argv(folder)
        fill_folder(folder, self._launch, argv, added)
        return self._completed(self._supervise(argv, folder, added), folder)

    def _argv(self, folder: Path) -> list[str]:
        if self._packed is not None:
            return call_command(folder, self._packed)
        argv = [expand(part, folder) for part in self._launch.argv]
        return ["/bin/sh", "-c", *argv] if self._launch.shell else argv

    def _supervise(self, argv: list[str], folder: Path, added: Mapping[str, str]) -> dict[str, Any]:
        launch, settings = self._launch, self._settings
        memory_gb = launch.resources.memory_gb if launch.resources.memory_gb is not None else settings.memory_gb
        memory_bytes = int(memory_gb * 1024**3) if memory_gb else None
        cgroup = memory_group(uuid.uuid4().hex[:12], memory_bytes) if memory_bytes else None
        request = {
            "argv": argv,
            "cwd": str(folder),
            "env": {**os.environ, **added, MARK: self._mark},
            "stdout": str(folder / "stdout.log"),
            "stderr": str(folder / "stderr.log"),
            "log_bytes": int(settings.log_mb * 1024**2),
            "tail_bytes": int(settings.tail_kb * 1024),
            "limit_s": launch.limit_s,
            "memory_bytes": memory_bytes,
            "grace_s": settings.grace_s,
            "cores": list(self._share.cores) or None,
            "cgroup": str(cgroup) if cgroup else None,
            "held": self._held,
        }
        complaints = folder / "supervisor.log"
        try:
            with complaints.open("wb") as stderr:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _BOOT, str(PACKAGE), "detached" if self._detached else "child"],
                    env={**os.environ, SUPERVISES: self._mark},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    pass_fds=self._held,
                    start_new_session=True,  # Ctrl-C is for AutoScout, which then decides
                )
            report = self._talk(process, json.dumps(request).encode() + b"\n")
        finally:
            remove_group(cgroup)
        said = tail(complaints, 4000).strip()
        if not said:
            complaints.unlink(missing_ok=True)
        if report is None:
            _kill_marked(self._mark)
            report = {"returncode": None, "cancelled": self._stopped, "error": f"the supervisor of this launch was killed. {said}".strip()}
        return report

    def _talk(self, process: subprocess.Popen[bytes], request: bytes) -> dict[str, Any] | None:
        """Hand the request over and wait for the report; None when the supervisor ended without one."""
        assert process.stdin is not None
        assert process.stdout is not None
        lifeline = process.stdin.fileno()
        with process.stdin, process.stdout:
            with contextlib.suppress(BrokenPipeError):
                view = memoryview(request)
                while view:
                    view = view[os.write(lifeline, view) :]
            with self._lock:
                self._lifeline = lifeline
                stopped = self._stopped
            if stopped:
                self.stop()
            answer = self._read(process)
            with self._lock:
                self._lifeline = None
        process.wait()
        try:
            report: dict[str, Any] = json.loads(answer)
        except ValueError:
            return None
        return report

    def _read(self, process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        limit_s = self._launch.limit_s
        overdue_s = None if limit_s is None else time.monotonic() + limit_s + self._settings.grace_s + STUCK_S
        answer = b""
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if not selector.select(None if overdue_s is None else max(0.0, overdue_s - time.monotonic())):
                    log.warning("the supervisor of %s does not answer any more", self._launch.name)
                    _kill_marked(self._mark, SUPERVISES)
                    overdue_s = None
                    continue
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return answer
                answer += data

    def _completed(self, report: Mapping[str, Any], folder: Path) -> Completed:
        settings = self._settings
        size = int(settings.tail_kb * 1024)
        killed = any(report.get(name) for name in ("timed_out", "out_of_memory", "cancelled"))
        called = CallOutcome(error=str(report.get("error", "")))
        if self._packed is not None and not called.error and not killed:
            called = call_outcome(folder)
        completed = Completed(
            returncode=report.get("returncode") if called.started else None,
            stdout=tail(folder / "stdout.log", size),
            stderr=tail(folder / "stderr.log", size),
            outputs=read_outputs(folder, self._launch, int(settings.output_mb * 1024**2)),
            value=called.packed,
            error=called.error,
            wall_s=float(report.get("wall_s", 0.0)),
            cpu_s=float(report.get("cpu_s", 0.0)),
            peak_memory_gb=float(report.get("peak_bytes", 0)) / 1024**3,
            timed_out=bool(report.get("timed_out", False)),
            out_of_memory=bool(report.get("out_of_memory", False)),
            cancelled=bool(report.get("cancelled", False)),
            conditions=dict(report.get("conditions", {})),
            folder=str(folder),
        )
        if self._unpack and self._packed is not None:
            completed = unpacked(completed)
        return completed if dispose_folder(folder, completed, settings.keep_files) else replace(completed, folder="")


@cache
def sweep_orphans() -> int:
    """Once per process: end what is left of trials whose AutoScout and supervisor were both killed; returns how many."""
    gone = {value for _, value in processes.marked(MARK) if is_gone(value)}
    return sum(_kill_marked(mark) for mark in gone)


def _kill_marked(mark: str, name: str = MARK) -> int:
    """End every process that carries this mark."""
    killed: set[int] = set()
    deadline_s = time.monotonic() + STUCK_S
    while time.monotonic() < deadline_s:
        pids = {pid for pid, value in processes.marked(name) if value == mark and pid != os.getpid()}
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
        time.sleep(0.02)
    return len(killed)

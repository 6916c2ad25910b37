"""An allocation of Slurm that lives as long as we do."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from autoscout.core.errors import LaunchError
from autoscout.core.log import logger
from autoscout.core.worker import is_gone, worker_identity
from autoscout.execute._shared.remote.channel import LOOK_S, Lost, start_client
from autoscout.execute.slurm.clients import ask, client_environment, leftover_jobs

log = logger(__name__)

GUARDIAN = Path(__file__).with_name("guardian.py")
GONE_S = 60.0  # how long the guardian may take to end its client

SWEEP_S = 15.0  # how often one that waits looks for what a controller lists without reason

# Says what was granted, and holds it until its standard input ends.
_HOLD = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat >/dev/null'


class StudyJobs:
    """The jobs of an executor, by name, and those that Slurm lists though they have ended.

    A controller that is killed comes back with what it had last written down, some seconds before. Jobs that ended since are listed as
    running then, and hold their nodes until their walltime ends: nobody is left who would end them.
    """

    def __init__(self) -> None:
        self.name = f"autoscout-{uuid.uuid4().hex[:10]}"
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._swept_s = -SWEEP_S

    def add(self) -> str:
        """A name for one more."""
        return f"{self.name}-{uuid.uuid4().hex[:8]}"

    def end(self, name: str) -> None:
        """A job has ended, or was never there."""
        with self._lock:
            self._ended.add(name)

    def sweep(self) -> None:
        """Cancel jobs that have ended but are listed, here or by AutoScouts of this machine that are gone; at most once in a while.

        Raises:
            LaunchError: Slurm does not answer.
        """
        with self._lock:
            if time.monotonic() < self._swept_s + SWEEP_S:
                return
            self._swept_s = time.monotonic()
            ended = frozenset(self._ended)
        for job, name, worker in leftover_jobs():
            if name in ended or is_gone(worker):
                log.warning("job %s (%s) has ended but is listed, and is cancelled", job, name)
                ask("scancel", job)


class Granted:
    """One allocation, from asking for it until it is given back.

    Args:
        flags: What to ask for.
        jobs: Those of the executor, of which it becomes one.
    """

    def __init__(self, flags: Sequence[str], jobs: StudyJobs) -> None:
        self.job = ""
        self.nodes: tuple[str, ...] = ()
        self.name = jobs.add()
        self._jobs = jobs
        self._answered = threading.Event()
        self._ended = threading.Event()
        self._said = ""
        self._asked_s = time.monotonic()
        self._granted_s = 0.0
        identity = f"--job-name={self.name}", f"--comment={worker_identity()}"
        command = ["salloc", "--quiet", "--kill-command=TERM", *identity, *flags, "/bin/sh", "-c", _HOLD]
        self._process = start_client([sys.executable, "-I", "-S", str(GUARDIAN), self.name, *command], client_environment(os.environ))
        threading.Thread(target=self._listen, name=self.name, daemon=True).start()

    def wait(self, stopped: threading.Event, tell: Callable[[float], None]) -> bool:
        """Until it is granted; False when `stopped` came first. `tell` is called with the seconds so far, while it waits.

        Raises:
            Lost: Slurm refused, or took it away again.
        """
        while not self._answered.wait(LOOK_S):
            if stopped.is_set():
                return False
            with contextlib.suppress(LaunchError):  # the controller may be away
                self._jobs.sweep()
            tell(time.monotonic() - self._asked_s)
        if not self.job:
            raise Lost(f"Slurm granted nothing: {self._said[-1000:].strip()}")
        return True

    @property
    def age_s(self) -> float:
        """Seconds since it was granted."""
        return time.monotonic() - self._granted_s if self._granted_s else 0.0

    @property
    def is_over(self) -> bool:
        """Whether it has ended: its walltime, preemption, a node that failed, or somebody's scancel."""
        return self._ended.is_set()

    def give_back(self) -> None:
        """End it, with everything that runs in it; may be called twice."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        if not self._ended.wait(GONE_S):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        line = self._process.stdout.readline().decode(errors="replace").split()
        if len(line) == 2:
            try:
                self.nodes = tuple(ask("scontrol", "show", "hostnames", line[1]).split())
                self._granted_s = time.monotonic()
                self.job = line[0]
            except Exception as error:  # told to whoever waits for the allocation
                self._said = str(error)
            self._answered.set()
        with self._process.stdout, self._process.stderr, contextlib.suppress(OSError, ValueError):
            self._said += self._process.stderr.read().decode(errors="replace")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GONE_S)
        self._jobs.end(self.name)
        self._answered.set()
        self._ended.set()

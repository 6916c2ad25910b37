"""An allocation of Slurm that lives as long as we do."""

from __future__ import annotations

import contextlib
import math
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

SWEEP_S = 15.0  # how often one that waits looks at what the controller lists
FORGOTTEN_S = 60.0  # how long one that waits may not be listed: a busy controller takes a while to take a job in

# Says what was granted, and holds it until its standard input ends.
_HOLD = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat >/dev/null'


class StudyJobs:
    """The jobs of an executor, by name, as we know them and as Slurm lists them.

    A controller that is killed comes back with what it had last written down, some seconds before. Jobs that ended since are listed as
    running then, and hold their nodes until their walltime ends: nobody is left who would end them. Jobs that were asked for since are
    not listed, and `salloc` waits for them for ever.
    """

    def __init__(self) -> None:
        self.name = f"autoscout-{uuid.uuid4().hex[:10]}"
        self._lock = threading.Lock()
        self._ended: set[str] = set()
        self._unlisted_s: dict[str, float] = {}  # since when those that wait are not listed
        self._forgotten: set[str] = set()
        self._swept_s = -math.inf

    def add(self) -> str:
        """A name for one more."""
        return f"{self.name}-{uuid.uuid4().hex[:8]}"

    def end(self, name: str) -> None:
        """A job has ended, or was never there."""
        with self._lock:
            self._ended.add(name)
            self._unlisted_s.pop(name, None)

    def is_forgotten(self, name: str) -> bool:
        """Whether Slurm does not know a job that waits, at this look and for a while already.

        Raises:
            LaunchError: Slurm does not answer.
        """
        with self._lock:
            self._unlisted_s.setdefault(name, time.monotonic())
        self.sweep()
        with self._lock:
            return name in self._forgotten

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
        listed = leftover_jobs()
        with self._lock:
            now_s, names = time.monotonic(), {name for _, name, _ in listed}
            self._unlisted_s = {name: now_s if name in names else since_s for name, since_s in self._unlisted_s.items()}
            self._forgotten = {name for name, since_s in self._unlisted_s.items() if now_s - since_s > FORGOTTEN_S}
        for job, name, worker in listed:
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
        """Until it is granted; False when `stopped` came first, or Slurm has forgotten it and it is over.

        `tell` is called with the seconds so far, while it waits.

        Raises:
            Lost: Slurm refused, or took it away again.
        """
        while not self._answered.wait(LOOK_S):
            if stopped.is_set():
                return False
            with contextlib.suppress(LaunchError):  # the controller may be away
                if self._jobs.is_forgotten(self.name):
                    log.warning("Slurm does not know job %s any more; it is asked for again", self.name)
                    self.give_back()
                    return False
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

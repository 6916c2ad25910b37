"""An allocation of Slurm that lives as long as we do."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence

from autoscout.core.worker import worker_identity
from autoscout.execute._shared.remote.channel import LOOK_S, Lost, end_client, start_client
from autoscout.execute.slurm.clients import ask, client_environment

# Says what was granted, and holds it until its standard input ends: with us, however we end.
_HOLD = 'echo "$SLURM_JOB_ID $SLURM_JOB_NODELIST"; exec cat >/dev/null'


class Granted:
    """One allocation, from asking for it until it is given back.

    The client that asks for it is started on a thread of its own, because the kernel ends it with the thread that started it.

    Args:
        flags: What to ask for.
        name: Of the job.
    """

    def __init__(self, flags: Sequence[str], name: str) -> None:
        self.job = ""
        self.nodes: tuple[str, ...] = ()
        self._flags = flags
        self._name = name
        self._answered = threading.Event()
        self._given_back = threading.Event()
        self._ended = threading.Event()
        self._said = ""
        self._asked_s = time.monotonic()
        self._granted_s = 0.0
        threading.Thread(target=self._hold, name=f"salloc-{name}", daemon=True).start()

    def wait(self, stopped: threading.Event, tell: Callable[[float], None]) -> bool:
        """Until it is granted; False when `stopped` came first. `tell` is called with the seconds so far, while it waits.

        Raises:
            Lost: Slurm refused, or took it away again.
        """
        while not self._answered.wait(LOOK_S):
            if stopped.is_set():
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
    def over(self) -> bool:
        """Whether it has ended: its walltime, preemption, a node that failed, or somebody's scancel."""
        return self._ended.is_set()

    def give_back(self) -> None:
        """End it, with everything that runs in it; may be called twice."""
        self._given_back.set()
        self._ended.wait()

    def _hold(self) -> None:
        identity = f"--job-name={self._name}", f"--comment={worker_identity()}"
        command = ["salloc", "--quiet", "--kill-command=TERM", *identity, *self._flags, "/bin/sh", "-c", _HOLD]
        try:
            process = start_client(command, client_environment(os.environ), subprocess.PIPE)
        except OSError as error:
            self._said = str(error)
            self._answered.set()
            self._ended.set()
            return
        listener = threading.Thread(target=self._listen, args=(process,), daemon=True)
        listener.start()
        while not self._given_back.wait(LOOK_S) and process.poll() is None:
            pass
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0 if self._answered.is_set() else 0.0)
        if process.poll() is None:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        listener.join(2.0)
        end_client(process)
        self._answered.set()
        self._ended.set()

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline().decode(errors="replace").split()
        if len(line) == 2:
            try:
                self.nodes = tuple(ask("scontrol", "show", "hostnames", line[1]).split())
                self._granted_s = time.monotonic()
                self.job = line[0]
            except Exception as error:  # told to whoever waits for the allocation
                self._said = str(error)
            self._answered.set()
        with contextlib.suppress(OSError, ValueError):
            self._said += process.stderr.read().decode(errors="replace")
        self._answered.set()

"""What users may set about hosts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autoscout.core.errors import require
from autoscout.execute._shared.remote.nodes import KINDS
from autoscout.execute._shared.sharing import GpuOptions

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=3"


@dataclass(frozen=True, kw_only=True)
class HostsOptions(GpuOptions):
    """Which machines to use, how to reach them, and how trials are treated there.

    Attributes:
        hostfile: The machines, one `HOST slots=N` a line; slots are GPUs.
        ssh: How to reach a machine; its name follows.
        python: Python on the machines; the one that runs AutoScout when empty.
        gpus: Whether slots are GPUs; where they are not, each trial takes one.
        cpus: CPUs of each machine; what it says itself when None.
        kinds: `one` runs trials on equal machines only, so that configurations can be compared: of the kind with the most slots. `any`
            uses all.
        copy: Files and folders that are copied to the same path on each machine, with rsync, before its first trial.
        rsync: How to copy.
        shared: Whether all machines see `folder`; each is asked when None.
        remote_folder: Where trials run on machines that do not share `folder`; `/tmp/autoscout-USER` when empty.
        attempts: How often a trial is tried whose machine is lost.
        silence_s: How long a machine may say nothing before it counts as lost.
        retry_s: How often a machine that was lost is asked whether it is back.
    """

    hostfile: str | Path = ""
    ssh: str = SSH
    python: str = ""
    gpus: bool = True
    cpus: int | None = None
    kinds: str = "one"
    copy: Sequence[str] = ()
    rsync: str = "rsync -a"
    shared: bool | None = None
    remote_folder: str = ""
    attempts: int = 3
    silence_s: float = 30.0
    retry_s: float = 30.0

    def __post_init__(self) -> None:
        at_least_one = "must be at least 1"
        rules = {
            "hostfile": (bool(str(self.hostfile)), "must name a file with one `HOST slots=N` a line"),
            "ssh": (bool(self.ssh.strip()), "must be a command"),
            "rsync": (bool(self.rsync.strip()), "must be a command"),
            "cpus": (self.cpus is None or self.cpus >= 1, at_least_one),
            "kinds": (self.kinds in KINDS, f"must be one of: {', '.join(KINDS)}"),
            "attempts": (self.attempts >= 1, at_least_one),
            "silence_s": (self.silence_s >= 5, "must be at least 5"),
            "retry_s": (self.retry_s > 0, "must be above zero"),
            "copy": (all(Path(path).is_absolute() for path in self.copy), "must be absolute paths: they are the same on all machines"),
        }
        require("executor hosts", self, self.checks() | rules)

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable

    def reach(self, host: str, command: Sequence[str]) -> list[str]:
        """The command that runs another one on a machine."""
        return [*shlex.split(self.ssh), host, shlex.join(command)]

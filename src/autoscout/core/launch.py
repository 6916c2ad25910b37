"""Launch: what an executor starts. Completed: what came back."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What one launch occupies while it runs, in words every executor translates; on each of its machines where it has several."""

    cpus: int = 1
    gpus: int = 0
    memory_gb: float | None = None  # enforced on the whole process group where the executor can
    nodes: int = 1  # machines; the command runs once on each, told by its environment how to find the others
    first_only: bool = False  # the command runs on the first of them only, since it reaches the others by itself, as mpirun does


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A command (files, argv, env) or a picklable call, plus what it needs.

    A command runs in a fresh folder of its own that first receives `files`. In `argv` and `env`, `{folder}` stands
    for the absolute path of that folder. A launch is data: two equal launches do the same thing.
    """

    argv: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # relative path -> text
    env: Mapping[str, str] = field(default_factory=dict)  # added to the caller's environment
    call: Callable[[], Any] | None = None  # instead of argv; must pickle for executors that leave the process
    resources: Resources = field(default_factory=Resources)
    limit_s: float | None = None  # wall-clock limit on the whole process group
    outputs: tuple[str, ...] = ()  # relative paths of files to bring back as text
    shell: bool = False  # argv[0] is a shell line; only for commands that users wrote as one
    name: str = ""  # readable, for folders and job names

    @property
    def line(self) -> str:
        """As a line for a shell, with the variables it adds in front; for people."""
        if self.call is not None:
            return f"# a call of {self.call!r}"
        words = ("sh", "-c", *self.argv) if self.shell else self.argv
        return " ".join([*(f"{name}={shlex.quote(value)}" for name, value in self.env.items()), shlex.join(words)])


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A process of somebody else on the GPUs of a launch."""

    pid: int  # 0 when the process cannot be seen, as from inside a container
    name: str
    gpu: str  # as `CUDA_VISIBLE_DEVICES` names it
    memory_gb: float

    def __str__(self) -> str:
        who = f"pid {self.pid} ({self.name})" if self.pid else f"a process {self.name}"
        return f"{who} with {self.memory_gb:.3g} GB on GPU {self.gpu}"


@dataclass(frozen=True, kw_only=True)
class Completed:
    """How a launch ended; always returned, whatever happened to the process."""

    returncode: int | None  # None when it never ran or was killed by us; negative for a signal
    stdout: str = ""
    stderr: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict)  # those of Launch.outputs that exist
    value: Any = None  # what `call` returned
    error: str = ""  # traceback of `call`, or why nothing could be started
    wall_s: float = 0.0
    cpu_s: float = 0.0  # user + system time of the whole group
    peak_memory_gb: float = 0.0
    timed_out: bool = False
    out_of_memory: bool = False  # killed for memory, by the limit or by the kernel
    cancelled: bool = False
    conditions: Mapping[str, float] = field(default_factory=dict)  # contention seen: cpu_pressure, cpu_share, ...
    cannot_start: bool = False  # nothing can, whatever the configuration: the disk of its machine is full or closed to us
    disturbed_by: tuple[Tenant, ...] = ()  # others who held much of its GPUs' memory: a failure may be theirs
    folder: str = ""  # where its files and logs lie, if anywhere
    machine: str = ""  # where it ran; empty for this machine

    @property
    def log_tail(self) -> str:
        """The last few thousand characters of what it said, errors last."""
        text = "\n".join(part for part in (self.stdout[-2000:], self.stderr[-4000:], self.error[-2000:]) if part.strip())
        return text[-6000:]


@dataclass(frozen=True, kw_only=True)
class Cleanliness:
    """When other work on the machine spoils a sample.

    Pressure alone does not: a trial with more threads than cores makes its own. It counts while others used the trial's cores.
    On its GPUs the load of others is known by itself.
    """

    pressure: float = 0.2  # share of the time in which something waited for a CPU
    others: float = 0.1  # share of the trial's cores, or of its GPUs' time, that somebody else used

    def is_dirty(self, conditions: Mapping[str, float]) -> bool:
        """Whether a sample taken under these conditions is to be taken again."""
        if conditions.get("gpu_other_share", 0.0) > self.others:
            return True
        others = conditions.get("other_cpu_share")
        return conditions.get("cpu_pressure", 0.0) > self.pressure and (others is None or others > self.others)

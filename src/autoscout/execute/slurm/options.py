"""What users may set about Slurm, and the flags that come of it."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from autoscout.core.errors import require
from autoscout.core.launch import Resources
from autoscout.execute._shared.executor import LaunchOptions
from autoscout.execute._shared.remote.nodes import KINDS

MODES = ("job", "allocation")


@dataclass(frozen=True, kw_only=True)
class SlurmOptions(LaunchOptions):
    """How trials use Slurm, and how they are treated there.

    Attributes:
        mode: `job` asks Slurm for each trial anew; `allocation` asks once and runs one trial after the other on what it got.
        partition: Where to run; Slurm's default when empty.
        account: Who pays.
        qos: Quality of service.
        time_min: Walltime in whole minutes, of each job or of the allocation, which is asked for again when it is over.
        gpu_type: Type of the GPUs, as Slurm calls it.
        kinds: Where no type is named and the partition has several: `one` uses the type with the most GPUs, so that configurations can be
            compared; `any` uses all.
        constraint: Features that the nodes must have.
        nodes: Nodes of an allocation.
        gpus_per_node: GPUs of each of them.
        cpus_per_node: CPUs of each of them.
        memory_gb_per_node: Memory of each of them; what Slurm gives when None.
        flags: Further flags of `salloc`, such as `--reservation=night`.
        step_flags: Further flags of `srun`, such as `--container-mounts=/data`.
        container_image: Image for trials, by a plug-in of Slurm that knows `--container-image`.
        apptainer_image: Image for trials, started with Apptainer.
        python: Python on the nodes, or inside the image; the one that runs AutoScout when empty.
        attempts: How often a trial is tried whose node is lost or which is preempted.
        silence_s: How long a node may say nothing before it counts as lost.
    """

    mode: str = "job"
    partition: str = ""
    account: str = ""
    qos: str = ""
    time_min: float | None = None
    gpu_type: str = ""
    kinds: str = "one"
    constraint: str = ""
    nodes: int = 1
    gpus_per_node: int = 0
    cpus_per_node: int = 1
    memory_gb_per_node: float | None = None
    flags: Sequence[str] = ()
    step_flags: Sequence[str] = ()
    container_image: str = ""
    apptainer_image: str = ""
    python: str = ""
    attempts: int = 3
    silence_s: float = 30.0

    def __post_init__(self) -> None:
        at_least_one = "must be at least 1"
        rules = {
            "kinds": (self.kinds in KINDS, f"must be one of: {', '.join(KINDS)}"),
            "mode": (self.mode in MODES, f"must be one of: {', '.join(MODES)}"),
            "time_min": (self.time_min is None or self.time_min > 0, "must be above zero; leave it out for the partition's own limit"),
            "nodes": (self.nodes >= 1, at_least_one),
            "gpus_per_node": (self.gpus_per_node >= 0, "must not be negative"),
            "cpus_per_node": (self.cpus_per_node >= 1, at_least_one),
            "attempts": (self.attempts >= 1, at_least_one),
            "silence_s": (self.silence_s >= 5, "must be at least 5"),
            "container_image": (not (self.container_image and self.apptainer_image), "must be empty where apptainer_image is set"),
        }
        require("executor slurm", self, self.checks() | rules)

    def asks(self, resources: Resources) -> list[str]:
        """Flags of `salloc` for an allocation of `resources.nodes` nodes with these resources each."""
        named = {
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "time": str(math.ceil(self.time_min)) if self.time_min is not None else "",
            "gres": self._gpus(resources.gpus),
            "mem": f"{max(1, round(resources.memory_gb * 1024))}M" if resources.memory_gb else "",
        }
        shape = [f"--nodes={resources.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={resources.cpus}"]
        return [*shape, *(f"--{name}={value}" for name, value in named.items() if value), *self.flags]

    def held(self) -> Resources:
        """What an allocation holds on each of its nodes."""
        return Resources(cpus=self.cpus_per_node, gpus=self.gpus_per_node, memory_gb=self.memory_gb_per_node, nodes=self.nodes)

    def step(self, job: str, node: str, resources: Resources) -> list[str]:
        """The beginning of the command that starts something on one node of an allocation."""
        flags = [f"--jobid={job}", f"--nodelist={node}", "--nodes=1", "--ntasks=1", f"--cpus-per-task={resources.cpus}"]
        flags += ["--overlap", "--mem=0", "--unbuffered", "--quiet", "--kill-on-bad-exit=0", "--input=0"]
        if resources.gpus:
            flags.append(f"--gres={self._gpus(resources.gpus)}")
        if self.container_image:
            flags.append(f"--container-image={self.container_image}")
        inside = ["apptainer", "exec", *(["--nv"] if resources.gpus else []), self.apptainer_image] if self.apptainer_image else []
        return ["srun", *flags, *self.step_flags, *inside]

    @property
    def interpreter(self) -> str:
        return self.python or sys.executable

    def _gpus(self, count: int) -> str:
        if not count:
            return ""
        return f"gpu:{self.gpu_type}:{count}" if self.gpu_type else f"gpu:{count}"

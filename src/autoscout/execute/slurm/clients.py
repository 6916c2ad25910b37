"""Slurm's programs, and what its nodes have."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from autoscout.core.errors import Fault, LaunchError
from autoscout.execute._shared.remote.nodes import ClusterNode

CLIENT_S = 60.0
"""How long a question to Slurm may take: its controller is slow when thousands of jobs are submitted."""

KEEP = ("SLURM_CONF", "SLURM_TIME_FORMAT")


def client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without what a surrounding job says: its size is not that of our jobs."""
    inherited = re.compile(r"(SLURM|SALLOC|SBATCH|SRUN|SLURMD)_")
    return {name: value for name, value in environment.items() if name in KEEP or not inherited.match(name)}


def ask(*command: str) -> str:
    """What a program of Slurm prints.

    Raises:
        LaunchError: it is not there, does not answer or refuses.
    """
    try:
        done = subprocess.run(command, env=client_environment(os.environ), capture_output=True, text=True, timeout=CLIENT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _fault(command, str(error)) from error
    if done.returncode:
        raise _fault(command, done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout


def is_controller_up() -> bool:
    """Whether the controller of the cluster is there."""
    try:
        return " UP" in ask("scontrol", "ping")
    except LaunchError:
        return False


def leftover_jobs() -> list[tuple[str, str, str]]:
    """Our jobs that some AutoScout has begun: their numbers, their names, and who did."""
    rows = (line.split("|", 2) for line in ask("squeue", "--me", "--noheader", "--format=%A|%j|%k").splitlines())
    return [(job, name, comment) for job, name, comment in rows if name.startswith("autoscout-")]


def partition_nodes(partition: str, gpu_type: str, constraint: str) -> list[ClusterNode]:
    """The nodes of a partition that are not down for long; all partitions when it is empty."""
    which = [f"--partition={partition}"] if partition else []
    nodes: dict[str, ClusterNode] = {}
    plain = re.fullmatch(r"[\w.-]+", constraint) is not None
    for line in ask("sinfo", "--noheader", "--Node", *which, "--format=%N|%c|%m|%G|%f").splitlines():
        name, cpus, memory_mb, devices, features = line.split("|", 4)
        if plain and constraint not in features.split(","):
            continue
        nodes[name] = ClusterNode(
            name=name,
            cores=int(cpus.rstrip("+")),
            gpus=gpu_count(devices, gpu_type),
            memory_gb=float(memory_mb.rstrip("+")) / 1024,
            kind=",".join(sorted(set(re.findall(r"gpu:([A-Za-z][\w.-]*)", devices)))),
        )
    return list(nodes.values())


def gpu_count(devices: str, gpu_type: str) -> int:
    """GPUs in Slurm's list of devices, `gpu:a100:4(S:0-1),nic:2` say; of one type when it is named."""
    count = 0
    for entry in re.split(r",(?![^(]*\))", devices):
        parts = re.sub(r"\(.*?\)", "", entry).split(":")
        if parts[0] == "gpu" and (not gpu_type or (len(parts) > 2 and parts[1] == gpu_type)):
            count += int(parts[-1]) if parts[-1].isdigit() else 1
    return count


def granted_gpus(job: str) -> dict[str, tuple[str, ...]]:
    """The numbers of the GPUs that a job has on each of its nodes."""
    gpus: dict[str, tuple[str, ...]] = {}
    for nodes, devices in re.findall(r"Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=(\S+)", ask("scontrol", "show", "job", "--details", job)):
        numbers = [number for ranges in re.findall(r"gpu\S*?\(IDX:([\d,-]+)\)", devices) for number in expanded(ranges)]
        gpus |= dict.fromkeys(ask("scontrol", "show", "hostnames", nodes).split(), tuple(numbers))
    return gpus


def expanded(ranges: str) -> list[str]:
    """`0-2,5` as 0, 1, 2, 5."""
    numbers: list[str] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers += map(str, range(int(first), int(last or first) + 1))
    return numbers


def _fault(command: Sequence[str], reason: str) -> LaunchError:
    return LaunchError(
        Fault(
            where="executor slurm",
            field=command[0],
            value=" ".join(command)[:200],
            rule=f"Slurm does not answer: {reason[:500]}",
            fix="Try the same command in your shell; `sinfo` shows whether the cluster is up",
        )
    )

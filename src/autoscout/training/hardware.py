"""Facts of this machine that decide which training settings make sense, and the knobs that depend on nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from autoscout.catalog.gpus import gpu
from autoscout.catalog.machine import cores, counted_gpus, known_gpu
from autoscout.common.gpus import present_gpus, read_gpus
from autoscout.core.errors import ConfigError, Fault
from autoscout.space import Flag, Grid
from autoscout.space.knobs import Knob

PROCESSES = 2  # on a machine without GPUs: the fewest that have something to exchange
_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # flags of /proc/cpuinfo (x86, Arm)


class Hardware(BaseModel):
    """The facts that the knobs depend on; others may be given and are kept."""

    model_config = ConfigDict(strict=True)

    device: str = Field(pattern="^(cpu|cuda)$")
    processes: int = Field(ge=1)
    cores: int = Field(ge=1)
    gpus: int = Field(0, ge=0)
    gpu: str = ""
    nodes: int = Field(1, ge=1)
    native_bf16: bool = False
    memory_gb: float = Field(0.0, ge=0)


def detect(described: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the machine, with what is described in their place: one process per GPU, or two processes without any."""
    given = counted_gpus(described)
    gpus = given["gpus"] if "gpus" in given else 0 if given.get("device") == "cpu" else len(present_gpus())
    device = given.get("device", "cuda" if gpus else "cpu")
    count = cores()
    on_gpu = device == "cuda"
    facts: dict[str, Any] = {
        "device": device,
        "gpus": gpus,
        "processes": gpus if on_gpu and gpus else min(PROCESSES, count) if count > 1 else 1,
        "cores": count,
        "native_bf16": on_gpu or native_bf16(),
        **(_gpu(given) if on_gpu else {"memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1)}),
    }
    return {**facts, **given}


def native_bf16(path: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor computes in bf16; without it a step in bf16 takes many times as long."""
    with contextlib.suppress(OSError):
        return any(_BF16 & set(line.split()) for line in path.read_text().splitlines() if line.startswith(("flags", "Features")))
    return False


def one_machine(hardware: Mapping[str, Any], command: str) -> list[Fault]:
    """What is wrong with several machines: a built-in model has no launcher that reaches them."""
    if int(hardware.get("nodes", 1)) == 1 or command:
        return []
    fix = "Give your own command with a launcher that does, or leave the hosts out"
    return [Fault(where="hardware", field="nodes", value=str(hardware["nodes"]), rule="built-in models run on one machine", fix=fix)]


def local_processes(hardware: Mapping[str, Any]) -> int:
    """Processes on one of the machines."""
    return -(-int(hardware["processes"]) // int(hardware.get("nodes", 1)))


def thread_counts(hardware: Mapping[str, Any]) -> tuple[list[int], int]:
    """Threads that a process may use, and how many it uses by itself: one where torchrun starts several processes, else all cores.

    More threads than cores are not offered: idle threads spin, and a step then takes many times as long.
    """
    cores, processes = int(hardware["cores"]), int(hardware["processes"])
    usual, most = (1 if processes > 1 else cores), max(1, cores // processes)
    return sorted({*(2**power for power in range(10) if 2**power <= most), most, usual}), usual


def _gpu(given: Mapping[str, Any]) -> dict[str, Any]:
    """Kind and memory of the GPUs: of the kind that is named, else of those of this machine."""
    name = given.get("gpu")
    if isinstance(name, str) and name:
        with contextlib.suppress(ConfigError):  # one that the catalogue does not know has an unknown memory
            return {"memory_gb": round(gpu(name, given.get("hardware_file")).memory_gb, 1)}
        return {"memory_gb": 0.0}
    readings = read_gpus()
    kinds = {known_gpu(reading.name) for reading in readings}
    memory = round(min((reading.total_gb for reading in readings), default=0.0), 1)
    return {"memory_gb": memory, **({"gpu": kinds.pop()} if len(kinds) == 1 else {})}


def outside_knobs(hardware: Mapping[str, Any]) -> Iterable[Knob]:
    """The knobs for a machine."""
    if hardware["device"] == "cuda":
        help = "segments of GPU memory that grow, against fragmentation (PYTORCH_CUDA_ALLOC_CONF)"
        yield Flag("expandable_segments", help=help)
        return
    counts, usual = thread_counts(hardware)
    if len(counts) > 1:
        yield Grid("threads", values=counts, default=usual, log=True, help="threads of every process (OMP_NUM_THREADS)")


def outside_environment(config: Mapping[str, Any]) -> dict[str, str]:
    """The variables by which those knobs are set."""
    variables = {"OMP_NUM_THREADS": str(config["threads"])} if "threads" in config else {}
    if config.get("expandable_segments"):
        variables["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return variables

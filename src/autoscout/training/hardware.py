"""Facts of this machine that decide which training settings make sense, and the knobs that depend on nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from math import gcd
from typing import Any

from autoscout.catalog.gpus import cluster
from autoscout.catalog.hardware import NODE_GPUS, counted_gpus, gpu_memory, present_hardware
from autoscout.common.gpus import present_gpus
from autoscout.common.machine import has_bf16, machine_memory_gb, usable_cores
from autoscout.core.errors import Fault
from autoscout.core.log import NOTICES, logger
from autoscout.space import Flag, Grid
from autoscout.space.knobs import Knob

notices = logger(NOTICES)

BYTES_PER_GB = 2**30  # makers' gigabytes of memory are binary ones
KINDS = "kinds"  # the fact that names GPUs of several kinds
ALL = "all"  # processes: one per GPU, or per core where there is none, as torchrun's `--nproc-per-node auto` has it
PROCESSES = 2  # on a machine without GPUs: the fewest that have something to exchange


def detect(described: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of the machine, with what is described in their place: one process per GPU, or two processes without any."""
    given = _with_gpus(counted_gpus(_several_kinds(described)))
    gpus = given["gpus"] if "gpus" in given else 0 if given.get("device") == "cpu" else len(present_gpus())
    device = given.get("device", "cuda" if gpus else "cpu")
    count = usable_cores()
    on_gpu = device == "cuda"
    nodes = int(given.get("nodes") or (_nodes(gpus, int(given.get("node_gpus", NODE_GPUS))) if on_gpu else 1))
    slots = sum((given.get("hosts") or {}).values())
    alone = min(PROCESSES, count) if count > 1 else 1
    if given.get("processes") == ALL:
        given = {**given, "processes": gpus if on_gpu and gpus else nodes * (os.cpu_count() or 1)}
    facts: dict[str, Any] = {
        "device": device,
        "gpus": gpus,
        **({"nodes": nodes} if nodes > 1 else {}),
        "processes": gpus if on_gpu and gpus else slots or (nodes if nodes > 1 else alone),
        "cores": count,
        "native_bf16": on_gpu or has_bf16(),
        **(_gpu(given) if on_gpu else {"memory_gb": round(machine_memory_gb(), 1)}),
    }
    return {**facts, **given}


def _with_gpus(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """A count of processes as one of GPUs, where there are any: a launcher starts one for each."""
    count = given.get("processes")
    if not isinstance(count, int) or {"gpus", "device"} & set(given):
        return given
    if given.get("gpu") or present_gpus():
        return {**given, "gpus": count}
    _say_cores(count)
    return given


@cache
def _say_cores(count: int) -> None:
    words = "%d processes are taken for processes on cores, since this machine has no GPU; --gpus %d or --hardware device=cpu says it"
    notices.warning(words, count, count)


def _several_kinds(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The facts of `gpus: 8xA100-80+4xA40`: as many GPUs as there are of all kinds, with the memory of the smallest, in equal machines."""
    text = given.get("gpus")
    if not isinstance(text, str) or "+" not in text:
        return given
    groups = cluster(text, given.get("hardware_file")).groups
    counts = [count for _, count in groups]
    alike = gcd(*counts)
    machine = next(size for size in range(min(alike, NODE_GPUS), 0, -1) if alike % size == 0)
    smallest = min((kind for kind, _ in groups), key=lambda kind: kind.memory_gb)
    facts = {"memory_gb": round(smallest.memory_gb, 1), "gpu": smallest.name, "nodes": sum(counts) // machine}
    return {**facts, **given, KINDS: text, "gpus": sum(counts)}


@cache
def _nodes(gpus: Any, most: int) -> int:
    """The fewest equal machines that described GPUs are in, where they are more than this one has and than usually share one."""
    if not isinstance(gpus, int) or gpus <= max(most, len(present_gpus())):
        return 1
    nodes = next(count for count in range(-(-gpus // most), gpus + 1) if gpus % count == 0)
    notices.warning("%d GPUs are taken for %d nodes of %d; --hardware nodes=N says otherwise", gpus, nodes, gpus // nodes)
    return nodes


def node_faults(hardware: Mapping[str, Any]) -> list[Fault]:
    """What is wrong with the machines of a run: each of them has as many processes."""
    nodes, processes, gpus = int(hardware.get("nodes", 1)), int(hardware["processes"]), int(hardware["gpus"])
    if hardware["device"] == "cuda" and gpus and processes != gpus:
        rule, fix = f"each of the {gpus} GPUs has one process", f"Give --gpus {processes}, or another number to the launcher"
        return [Fault(where="hardware", field="processes", value=str(processes), rule=rule, fix=fix)]
    hosts = hardware.get("hosts") or {}
    if len(set(hosts.values())) > 1:
        listed = ", ".join(f"{host} {slots}" for host, slots in hosts.items())
        fix = "Leave slots of the larger ones out of the hostfile"
        return [Fault(where="hardware", field="hosts", value=listed, rule="every host of one run must have as many slots", fix=fix)]
    if processes % nodes == 0:
        return []
    rule = f"{processes} processes cannot be shared equally by {nodes} machines"
    return [Fault(where="hardware", field="nodes", value=str(nodes), rule=rule, fix=f"Take a multiple of {nodes} GPUs, or other nodes")]


def local_processes(hardware: Mapping[str, Any]) -> int:
    """Processes on one of the machines."""
    return -(-int(hardware["processes"]) // int(hardware.get("nodes", 1)))


def machines(hardware: Mapping[str, Any]) -> str:
    """The machines of a run, for people: " on 2 nodes of 8"; empty for one."""
    nodes = int(hardware.get("nodes", 1))
    return f" on {nodes} nodes of {local_processes(hardware)}" if nodes > 1 else ""


def thread_counts(hardware: Mapping[str, Any]) -> tuple[list[int], int]:
    """Threads that a process may use, and how many it uses by itself: one where torchrun starts several processes, else all cores.

    More threads than cores are not offered: idle threads spin, and a step then takes many times as long.
    """
    cores, processes = int(hardware["cores"]), local_processes(hardware)
    usual, most = (1 if processes > 1 else cores), max(1, cores // processes)
    return sorted({*(2**power for power in range(10) if 2**power <= most), most, usual}), usual


def _gpu(given: Mapping[str, Any]) -> dict[str, Any]:
    """Kind and memory of the GPUs: of the kind that is named, else of those of this machine."""
    if given.get("gpu"):
        return {"memory_gb": gpu_memory(given)[0]}  # one that the catalogue does not know has an unknown memory
    present = present_hardware()
    return {"memory_gb": present.get("gpu_memory_gb", 0.0), **{name: present[name] for name in ("gpu",) if name in present}}


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

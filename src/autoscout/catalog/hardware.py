"""The hardware that a task speaks of: one model of it for all backends, and its GPUs, those of this machine or those that are named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from autoscout.catalog.gpus import gpu
from autoscout.common.fields import read_fields
from autoscout.common.gpus import named, present_gpus, read_gpus
from autoscout.core.errors import ConfigError, Fault

MOST_GPUS = 4096  # of one deployment
NODE_GPUS = 8  # GPUs of one machine where the hardware does not say node_gpus


class Hardware(BaseModel):
    """The facts that knobs and their defaults may depend on; a backend fills in those it reads, and others may be given and are kept.

    Attributes:
        cores: What a process may keep busy.
        physical_cores: Of the machine, hardware threads counted once.
        numa_nodes: Parts of the machine with memory of their own.
        memory_gb: Of the machine, or of a GPU where training runs on those.
        lockable_gb: Memory that may be locked.
        gpus: How many.
        gpu: Their kind.
        gpu_memory_gb: Memory of one.
        device: What training runs on.
        processes: Of one training run.
        nodes: Machines.
        native_bf16: The device computes in bf16.
    """

    model_config = ConfigDict(strict=True, extra="allow")

    cores: int = Field(1, ge=1)
    physical_cores: int = Field(1, ge=1)
    numa_nodes: int = Field(1, ge=1)
    memory_gb: FiniteFloat = Field(0.0, ge=0)
    lockable_gb: FiniteFloat = Field(0.0, ge=0)
    gpus: int = Field(0, ge=0, le=MOST_GPUS)
    gpu: str = ""
    gpu_memory_gb: FiniteFloat = Field(0.0, ge=0)
    device: str = Field("cpu", pattern="^(cpu|cuda)$")
    processes: int = Field(1, ge=1)
    nodes: int = Field(1, ge=1)
    native_bf16: bool = False


FAMILIES = {
    "hopper": r"G?H(100|200|800|20)\b",
    "blackwell": r"G?B[23]00\b",
    "ada": r"L4\b|L40|L20\b|RTX-(4090|6000-Ada)",
    "ampere": r"A(10|16|30|40|100|800)",
    "cdna": r"MI\d",
}
"""Family of chips -> how the names of its GPUs begin."""


def hardware_faults(facts: Mapping[str, Any]) -> list[Fault]:
    """All that is wrong with the facts of a task."""
    return read_fields(Hardware, facts, "hardware")[1]


def counted_gpus(given: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a machine with `gpus: 8xH100`, as `autoscout estimate` writes it, taken apart."""
    match = re.fullmatch(r"(\d{1,6})\s*[x×*]\s*([^+]+)", str(given.get("gpus", "")))
    return {**given, "gpus": int(match[1]), "gpu": match[2].strip()} if match else dict(given)


def present_hardware() -> dict[str, Any]:
    """The GPUs of this machine that this process may use: how many, and their kind and least memory where they are known."""
    visible = present_gpus()
    readings = list(named(visible, read_gpus()).values())
    kinds = {known_gpu(reading.name) for reading in readings}
    return {
        "gpus": len(visible),
        **({"gpu": kinds.pop()} if len(kinds) == 1 else {}),
        **({"gpu_memory_gb": round(min(reading.total_gb for reading in readings), 1)} if readings else {}),
    }


def gpu_memory(given: Mapping[str, Any]) -> tuple[float, list[Fault]]:
    """Memory of a GPU of the kind that is named, 0 where none is, and what is wrong with a kind that the catalogue does not know."""
    kind = given.get("gpu")
    if not isinstance(kind, str) or not kind:
        return 0.0, []
    try:
        return round(gpu(kind, given.get("hardware_file")).memory_gb, 1), []
    except ConfigError as error:
        return 0.0, [replace(fault, where="hardware", field="gpu") for fault in error.faults]


def chip_family(name: str) -> str:
    """Which kernels run on a GPU: `hopper`, `blackwell` (data centre), `ada`, `ampere`, `cdna` (AMD); empty for others.

    >>> chip_family("H200"), chip_family("RTX-5090"), chip_family("MI300X")
    ('hopper', '', 'cdna')
    """
    return next((family for family, pattern in FAMILIES.items() if re.match(pattern, known_gpu(name), re.IGNORECASE)), "")


def known_gpu(name: str) -> str:
    """The catalogue's name of a GPU where it has one; `NVIDIA H100 80GB HBM3` is an H100."""
    words = name.removeprefix("NVIDIA ").split()
    for length in range(len(words), 0, -1):
        try:
            return gpu(" ".join(words[:length])).name
        except ConfigError:
            continue
    return name

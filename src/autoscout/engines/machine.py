"""The GPUs that an engine is tuned for: those of this machine, or those that the task names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from autoscout.catalog.gpus import gpu
from autoscout.catalog.machine import cores, counted_gpus, known_gpu
from autoscout.common.fields import read_fields
from autoscout.common.gpus import named, present_gpus, read_gpus
from autoscout.core.errors import ConfigError, Fault

MOST_GPUS = 4096  # of one deployment


class Hardware(BaseModel):
    """The facts that knobs and their defaults depend on; others may be given and are kept."""

    model_config = ConfigDict(strict=True, extra="allow")

    gpus: int = Field(ge=0, le=MOST_GPUS)
    gpu: str = ""
    gpu_memory_gb: FiniteFloat = Field(0.0, ge=0)
    cores: int = Field(1, ge=1)


def hardware(given: Mapping[str, Any]) -> tuple[dict[str, Any], list[Fault]]:
    """The facts that were given, filled up with those of this machine where they speak of it, and all that is wrong with them."""
    found = counted_gpus(given)
    if "gpu" not in found:  # another kind was named: this machine's GPUs say nothing about it
        found = {**_present(), **found}
    found.setdefault("gpus", 1)
    found.setdefault("cores", cores())
    unknown: list[Fault] = []
    if not found.get("gpu_memory_gb") and isinstance(found.get("gpu"), str) and found["gpu"]:
        try:
            found["gpu_memory_gb"] = round(gpu(found["gpu"], found.get("hardware_file")).memory_gb, 1)
        except ConfigError as error:
            fix = "Defaults depend on its memory: give gpu_memory_gb"
            unknown = [replace(fault, where="hardware", field="gpu", fix=f"{fix}. {fault.fix}") for fault in error.faults]
    return found, [*read_fields(Hardware, found, "hardware")[1], *unknown]


def _present() -> dict[str, Any]:
    visible = present_gpus()
    readings = list(named(visible, read_gpus()).values())
    kinds = {reading.name for reading in readings}
    return {
        "gpus": len(visible),
        **({"gpu": known_gpu(readings[0].name)} if len(kinds) == 1 else {}),
        **({"gpu_memory_gb": round(min(reading.total_gb for reading in readings), 1)} if readings else {}),
    }


__all__ = ["Hardware", "hardware"]

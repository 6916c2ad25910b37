"""Knobs that are set from outside a training program, and need nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from autoscout.space import Flag, Grid
from autoscout.space.knobs import Knob
from autoscout.training.machine import thread_counts


def outside(hardware: Mapping[str, Any]) -> Iterable[Knob]:
    """The knobs for a machine."""
    if hardware["device"] == "cuda":
        help = "segments of GPU memory that grow, against fragmentation (PYTORCH_CUDA_ALLOC_CONF)"
        yield Flag("expandable_segments", help=help)
        return
    counts, usual = thread_counts(hardware)
    if len(counts) > 1:
        yield Grid("threads", values=counts, default=usual, log=True, help="threads of every process (OMP_NUM_THREADS)")


def environment(config: Mapping[str, Any]) -> dict[str, str]:
    """The variables by which those knobs are set."""
    found = {"OMP_NUM_THREADS": str(config["threads"])} if "threads" in config else {}
    if config.get("expandable_segments"):
        found["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    return found

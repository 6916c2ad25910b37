"""For training scripts that AutoScout tunes: which settings to use, and how a step went.

    from autoscout import training

    settings = training.config()                      # {} when nobody tunes; then the script's own defaults count
    micro_batch = settings.get("micro_batch", 4)
    ...
    for batch in batches:
        loss = train_step(batch)
        training.step(loss=loss, tokens=batch.numel())

Outside a trial `step` does nothing, so that the same script is used for real. Standard library only; a script whose environment has no
AutoScout can do the same by itself: read the JSON in `$AUTOSCOUT_CONFIG`, and append one JSON line a step, `{"at_s": time.monotonic(),
"loss": ..., "tokens": ...}`, to the file `rank$RANK.jsonl` in the folder `$AUTOSCOUT_STEPS`.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

CONFIG = "AUTOSCOUT_CONFIG"
STEPS = "AUTOSCOUT_STEPS"
RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
"""Variables in which launchers number the processes of a run: torchrun and DeepSpeed, Open MPI, MPICH, Slurm."""

_GIB = 1024.0**3
_RSS_UNIT = 1.0 if sys.platform == "darwin" else 1024.0  # bytes that ru_maxrss counts in


def config() -> dict[str, Any]:
    """The settings to train with, by knob; empty where `$AUTOSCOUT_CONFIG` is not set."""
    text = os.environ.get(CONFIG, "")
    settings = json.loads(text) if text.strip() else {}
    if not isinstance(settings, dict):
        raise ValueError(f"${CONFIG} must hold a JSON object, not {text[:80]!r}")
    return settings


def step(*, loss: Any = None, tokens: float = 0, samples: float = 0) -> None:
    """Report that this process has finished a training step, the optimizer's part included.

    Args:
        loss: The mean loss over what this process trained on, a number or a tensor; None on a process that does not know it, such as an
            early stage of a pipeline.
        tokens: What this process trained on. Processes that work on the same tokens (tensor and pipeline parallelism) report them once:
            0 on all but one.
        samples: Likewise, sequences or rows.
    """
    if not os.environ.get(STEPS):
        return
    value = None if loss is None else float(loss)  # waits for a GPU, so that the time of the step is whole
    line: dict[str, Any] = {"tokens": float(tokens), "samples": float(samples), "mem_gib": peak_memory_gib(), "mem_total_gib": memory_gib()}
    if value is not None:
        line["loss"] = value if math.isfinite(value) else None  # JSON knows neither NaN nor infinity
    report(line)


def stage(name: str) -> None:
    """Say what this process is about to do (`building`, `training`), so that a failure can be dated; optional."""
    report({"stage": name})


def peak_memory_gib() -> float:
    """Most memory that this process has held: of its GPU where it uses one through PyTorch, else of the machine."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return float(torch.cuda.max_memory_reserved()) / _GIB
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT / _GIB


def memory_gib() -> float:
    """All memory of this process's GPU where it uses one through PyTorch; otherwise its share of the machine's."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        return float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory) / _GIB
    if not hasattr(os, "sysconf"):  # Windows
        return 0.0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB / int(os.environ.get("LOCAL_WORLD_SIZE") or 1)


def report(line: dict[str, Any]) -> None:
    """Append a line to the steps of this process, inside a trial; for programs that follow others. Scripts call `step`."""
    if not os.environ.get(STEPS):
        return
    rank = next((os.environ[name] for name in RANKS if os.environ.get(name)), "0")
    world = os.environ.get("WORLD_SIZE", "")
    path = Path(os.environ[STEPS]) / f"rank{rank}.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"at_s": time.monotonic(), **({"world": int(world)} if world.isdigit() else {}), **line}) + "\n")


__all__ = ["CONFIG", "STEPS", "config", "memory_gib", "peak_memory_gib", "report", "stage", "step"]

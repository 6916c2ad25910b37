"""What Megatron-LM prints about its iterations and its memory. Standard library only: it runs inside a trial."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_ITERATION = re.compile(r"\biteration\s+(?P<number>\d+)/\s*\d+\s*\|(?P<rest>.*elapsed time per iteration \(ms\):.*)")
_ENTRY = re.compile(r"\s*(?P<name>[^:|]+):\s*(?P<value>[^|]+?)\s*(?:\||$)")
_MEMORY = re.compile(r"\[Rank (?P<rank>\d+)\].*memory \(MB\).*\bmax reserved: (?P<value>[\d.]+)")
_MIB_PER_GIB = 1024.0


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """One line of the log.

    Attributes:
        number: Counted from 1.
        elapsed_ms: What the iteration took, by Megatron's own clock.
        tflops: TFLOP/s of one GPU; None where the log does not say.
        loss: Of the language model; None where it is not finite, or the log does not say.
        samples: Sequences of the global batch.
        skipped: Whether the optimizer skipped the step, as fp16 does while it looks for its scale.
        broken: Whether the loss was not a number.
    """

    number: int
    elapsed_ms: float
    samples: int = 0
    tflops: float | None = None
    loss: float | None = None
    skipped: bool = False
    broken: bool = False


def iteration(line: str) -> Iteration | None:
    """The iteration that a line tells about; None for other lines."""
    match = _ITERATION.search(line)
    if match is None:
        return None
    entries = {entry["name"].strip(): entry["value"] for entry in _ENTRY.finditer(match["rest"])}
    elapsed_ms = _number(entries.get("elapsed time per iteration (ms)"))
    if elapsed_ms is None or elapsed_ms <= 0:
        return None
    nan = _number(entries.get("number of nan iterations")) or 0
    skipped = _number(entries.get("number of skipped iterations")) or 0
    loss = _number(entries.get("lm loss"))
    return Iteration(
        number=int(match["number"]),
        elapsed_ms=elapsed_ms,
        samples=int(_number(entries.get("global batch size")) or 0),
        tflops=_number(entries.get("throughput per GPU (TFLOP/s/GPU)")),
        loss=loss,
        skipped=skipped > 0,
        broken=nan > 0 or ("lm loss" in entries and loss is None),
    )


def peak_memory_gib(line: str) -> float | None:
    """Most memory that a rank has reserved on its GPU, where a line tells it."""
    match = _MEMORY.search(line)
    return float(match["value"]) / _MIB_PER_GIB if match else None


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None

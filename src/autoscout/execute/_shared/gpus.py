"""GPUs of this machine, asked from the vendor's own tools; finding none is not an error."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

VISIBLE_GPUS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_TIMEOUT_S = 30.0


def present_gpus(environment: dict[str, str] | None = None) -> tuple[str, ...]:
    """Identifiers of the GPUs this process may use, as `CUDA_VISIBLE_DEVICES` names them.

    A list that a scheduler or the user already set there is used unchanged.
    """
    environment = dict(os.environ) if environment is None else environment
    for name in VISIBLE_GPUS:
        if name in environment:
            listed = [part.strip() for part in environment[name].split(",")]
            return tuple(part for part in listed if part and part not in ("-1", "NoDevFiles"))
    rows = _nvidia("index")
    if rows:
        return tuple(rows)
    return tuple(str(number) for number in range(_amd_count()))


def gpu_environment(gpus: Sequence[str]) -> dict[str, str]:
    """The environment in which a program sees exactly these GPUs."""
    listed = ",".join(gpus)
    # nvidia-smi counts by bus, CUDA by speed unless told otherwise
    return {"CUDA_VISIBLE_DEVICES": listed, "HIP_VISIBLE_DEVICES": listed, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gpu_memory_used_mb(gpus: Sequence[str]) -> float | None:
    """Memory in use on these GPUs together; None when no tool can tell."""
    if not gpus:
        return None
    rows = _nvidia("memory.used", gpus)
    try:
        return sum(map(float, rows)) if rows else None
    except ValueError:
        return None  # "[N/A]" on systems whose memory is shared with the CPU


def await_gpu_memory(
    gpus: Sequence[str], before_mb: float | None, limit_s: float, span_s: Callable[[], float], pause: Callable[[float], object]
) -> bool:
    """Wait until a finished trial's GPU memory has come back, so that it does not fail the next one; whether it did."""
    if before_mb is None:
        return True
    deadline_s = span_s() + limit_s
    while (now_mb := gpu_memory_used_mb(gpus)) is not None and now_mb > before_mb + 64.0:
        if span_s() >= deadline_s:
            return False
        pause(0.25)
    return True


def _nvidia(field: str, gpus: Sequence[str] = ()) -> list[str]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={field}", "--format=csv,noheader,nounits", *([f"--id={','.join(gpus)}"] if gpus else [])]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()] if answer.returncode == 0 else []


def _amd_count(nodes: Path = Path("/sys/class/kfd/kfd/topology/nodes")) -> int:
    count = 0
    for properties in nodes.glob("*/properties"):
        try:
            text = properties.read_text()
        except OSError:
            continue
        simds = [line.split()[1] for line in text.splitlines() if line.startswith("simd_count ")]
        count += bool(simds and simds[0] != "0")  # a node without compute units is a CPU
    return count

"""What a finished training trial means: metrics, or which kind of failure it was."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoscout.common.outcome import failure, informative_line, is_number, plain_text
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status
from autoscout.training.protocol import CURVES, RESULT, STAGE, STARTING

_NO_MEMORY = re.compile(
    r"CUDA out of memory|OutOfMemoryError|HIP out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED|std::bad_alloc"
    r"|DefaultCPUAllocator: (?:can't|not enough) |Cannot allocate memory|MemoryError|Failed to CUDA (?:c|h)alloc",
    re.IGNORECASE,
)
_REFUSED = re.compile(
    r"(?P<why>No available kernel\..*|No viable backend for scaled_dot_product_attention.*"
    r"|Number of microbatches .* must be .*|.*number_of_rounds.*|.*got mixed torch\.Tensor and DTensor.*"
    r"|(?:ValueError|AssertionError|RuntimeError): .*(?:parallel|divisible|multiple|microbatch|recompute|overlap).*"
    r"|.*: error: (?:unrecognized arguments|argument|the following arguments)[ :].*"
    r"|ValidationError: .*|DeepSpeedConfigError.*|AssertionError: (?:ZeRO|zero|DeepSpeed|Check batch|Offload|offload).*"
    r"|.*ZeRO.*(?:is not supported|not compatible|must be).*)"
)
_NETWORK = re.compile(
    r"(?P<why>.*(?:NCCL error|nccl(?:UnhandledCuda|System|Internal|Remote)Error|ncclInvalidUsage|DistBackendError|ProcessGroupNCCL"
    r"|Connection (?:closed by peer|reset by peer)|Watchdog caught collective).*)"
)
_KILLED = re.compile(r"(?P<why>Signal 9 \(SIGKILL\) received by PID \d+|exitcode\s*: -9 .*)")  # as torchrun tells it
_LINE_CHARS = 1000  # of a line of a log: the patterns above take long on longer ones
_NEEDED = ("step_ms", "peak_mem_gib")


def outcome(completed: Completed, metric: str) -> Measurement:
    """Read what the trial program left; never raises, whatever it left.

    Args:
        completed: How the launch ended.
        metric: The objective's metric, which a success must have.
    """
    stage = completed.outputs.get(STAGE, "").strip()
    result = _read(completed.outputs.get(RESULT))
    if completed.cancelled or completed.timed_out or completed.out_of_memory:
        return _by_executor(completed, stage)
    if isinstance(result, Mapping) and "failure" in result:
        return _reported_failure(result, completed)
    if completed.returncode != 0:
        return _crash("", stage, completed)
    if not isinstance(result, Mapping):
        reason = "ended without an error, but left no result" if result is None else "left a result that cannot be read"
        return _failed(Status.WRONG_OUTPUT, reason, completed)
    return _metrics(result, metric, completed)


def _by_executor(completed: Completed, stage: str) -> Measurement:
    ending = failure(completed)
    assert ending is not None
    if completed.out_of_memory and not completed.cancelled:
        return _failed(_no_memory(stage), f"killed for memory while {stage or 'starting'}", completed)
    if completed.timed_out and not completed.cancelled:
        last_line = informative_line(completed.log_tail)
        reason = f"still {stage or 'starting'} after {completed.wall_s:.0f} s{f'; it said: {last_line}' if last_line else ''}"
        return _failed(Status.TIMEOUT, reason, completed)
    return ending


def _read(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _reported_failure(result: Mapping[str, Any], completed: Completed) -> Measurement:
    """A failure that the trial program noticed."""
    kind, reason, stage = str(result["failure"]), str(result.get("reason", "")), str(result.get("stage", ""))
    # Nobody but a kernel short of memory kills a rank alone; a shell around it gives 128 more.
    if kind == "ended" and result.get("returncode") in (-signal.SIGKILL, 128 + signal.SIGKILL):
        return _failed(_no_memory(stage), f"killed for memory while {stage or 'starting'}: {reason}", completed)
    if kind in {status.value for status in Status if status.failed}:
        return _failed(Status(kind), reason or kind, completed)
    return _crash(reason, stage, completed)


def _crash(reason: str, stage: str, completed: Completed) -> Measurement:
    """A process failed by itself; its log says why."""
    log = "\n".join(
        line[:_LINE_CHARS] for line in f"{completed.stderr}\n{completed.error}".splitlines()
    )  # patterns take long on long lines
    if _NO_MEMORY.search(log):
        return _failed(_no_memory(stage), f"out of memory while {stage or 'starting'}: {_line(_NO_MEMORY, log)}", completed)
    if match := _KILLED.search(log):
        return _failed(_no_memory(stage), f"killed for memory while {stage or 'starting'}: {match['why'].strip()}", completed)
    if match := _REFUSED.search(log):
        return _failed(Status.INVALID, f"refused: {match['why'].strip()}", completed)
    line = informative_line(log)
    if not reason:
        return failure(completed) or _failed(Status.CRASHED, line or "failed", completed)
    match = _NETWORK.search(line) or _NETWORK.search(log)
    if match and (not line or line in match["why"]):
        return _failed(Status.CRASHED, f"{reason}: communication failed: {match['why'].strip()}", completed)
    return _failed(Status.CRASHED, f"{reason}: {line}" if line and line not in reason else reason, completed)


def _line(pattern: re.Pattern[str], log: str) -> str:
    return next((line.strip() for line in log.splitlines() if pattern.search(line)), "")


def _metrics(result: Mapping[str, Any], metric: str, completed: Completed) -> Measurement:
    metrics, samples, spent = result.get("metrics"), result.get("samples"), result.get("spent")
    if not isinstance(metrics, Mapping) or not isinstance(samples, Mapping) or not isinstance(spent, Mapping):
        return _failed(Status.WRONG_OUTPUT, "left a result without metrics", completed)
    curves = result.get("curves")
    if isinstance(curves, Mapping):
        samples = {**samples, **{name: curves[name] for name in CURVES if curves.get(name)}}
    lists = [values if isinstance(values, list) else [values] for values in samples.values()]
    numbers = [*metrics.values(), *spent.values(), *(value for values in lists for value in values)]
    if not all(map(is_number, numbers)) or not all(isinstance(values, list) for values in samples.values()):
        return _failed(Status.WRONG_OUTPUT, "reported something that is not a number", completed)
    if missing := [name for name in _NEEDED if name not in metrics]:
        return _failed(Status.WRONG_OUTPUT, f"left a result without {', '.join(missing)}", completed)
    if metric not in metrics:
        unit = metric.removesuffix("_per_s").removesuffix("_after")
        return _failed(Status.WRONG_OUTPUT, f"reported no {metric}: give {unit}= to every call of training.step", completed)
    if metrics["step_ms"] <= 0:
        return _failed(Status.WRONG_OUTPUT, "reported a step that took no time", completed)
    measurement = Measurement(
        status=Status.OK,
        metrics={str(name): float(value) for name, value in metrics.items()},
        samples={str(name): tuple(map(float, values)) for name, values in samples.items()},
        conditions={str(name): float(value) for name, value in spent.items()},
    )
    bounds = result.get("bounds")
    if not isinstance(bounds, Mapping):
        return measurement
    best = {str(name): float(value) for name, value in bounds.items() if is_number(value)}
    return replace(measurement, status=Status.BOUNDED, bounds=best, reason=str(result.get("reason", ""))[:500])


def _no_memory(stage: str) -> Status:
    return Status.OOM_START if stage in STARTING else Status.OOM_RUN


def _failed(status: Status, reason: str, completed: Completed) -> Measurement:
    return Measurement(status=status, reason=" ".join(plain_text(reason).split())[:500], log_tail=plain_text(completed.log_tail))

"""What a finished measurement means: metrics, or which kind of failure it was."""

from __future__ import annotations

import json
import math
import re
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from autoscout.backends.llamacpp.stages import RESULT, STAGE
from autoscout.backends.llamacpp.workload import THROUGHPUTS, Workload
from autoscout.common.outcome import informative_line, plain_text
from autoscout.core.launch import Completed
from autoscout.core.trial import SPENT, Measurement, Status

STARTING = ("", "preparing", "loading")

_NO_MEMORY = re.compile(
    r"insufficient memory|failed to allocate|unable to allocate|std::bad_alloc|out of memory|MemoryError|cudaMalloc failed"
    r"|ErrorOutOfDeviceMemory",
    re.IGNORECASE,
)
_BROKEN_MODEL = re.compile(
    r"error loading model: (?P<why>.*)|(?P<magic>invalid magic characters.*)|(?P<open>failed to open GGUF file.*)", re.IGNORECASE
)
_REFUSED = re.compile(
    r"(?P<why>quantized V cache requires.*|[KV] cache type .* does not divide.*|failed to initialize the context: (?!failed to allocate).*"
    r"|this release of xllamacpp has no parameter.*|layers cannot go to a GPU.*"
    r"|n_seq_max must be.*|model does not support different K.*|n_batch and n_ubatch cannot both be zero.*|SPLIT_MODE_TENSOR requires.*)"
)
_IGNORED = re.compile(r"(?P<why>failed to mlock.*|no usable GPU found.*)")
_ASSERT = re.compile(r"(?P<why>\S+:\d+: GGML_ASSERT\(.*|GGML_ASSERT\(.*|terminate called .*)")


def outcome(completed: Completed, workload: Workload) -> Measurement:
    """Read what the measuring process left; never raises, whatever it left."""
    stage = completed.outputs.get(STAGE, "").strip()
    if completed.cancelled:
        return _failure(Status.ABORTED, "stopped before it ended", completed)
    if completed.out_of_memory:
        return _failure(_no_memory(stage), f"killed for memory while {stage or 'starting'}", completed)
    if completed.timed_out:
        return _failure(Status.TIMEOUT, f"still {stage or 'starting'} after {completed.wall_s:.0f} s", completed)
    result = _read(completed.outputs.get(RESULT))
    if isinstance(result, Mapping) and "failure" in result:
        told = _told(result, stage, completed)
        return replace(told, conditions={**told.conditions, **_spent(result)})
    if completed.returncode != 0:
        return _crash(stage, completed)
    if not isinstance(result, Mapping):
        reason = "ended without an error, but left no result" if result is None else "left a result that cannot be read"
        return _failure(Status.WRONG_OUTPUT, reason, completed)
    return _metrics(result, workload, completed)


def _spent(result: Mapping[str, Any]) -> dict[str, float]:
    spent = result.get("spent")
    return {name: float(spent[name]) for name in SPENT if name in spent} if isinstance(spent, Mapping) else {}


def _read(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _metrics(result: Mapping[str, Any], workload: Workload, completed: Completed) -> Measurement:
    metrics, samples, bounds = result.get("metrics"), result.get("samples"), result.get("bounds")
    if bounds and isinstance(bounds, Mapping) and isinstance(metrics, Mapping):
        return Measurement(
            status=Status.BOUNDED,
            metrics={str(name): float(value) for name, value in metrics.items()},
            bounds={str(name): float(value) for name, value in bounds.items()},
            conditions=_spent(result),
            reason=str(result.get("reason", "")),
        )
    wrong = _implausible(metrics, samples, result, workload)
    if wrong or not isinstance(metrics, Mapping) or not isinstance(samples, Mapping):
        return _failure(Status.WRONG_OUTPUT, wrong, completed)
    ignored = _IGNORED.search(completed.stderr)
    if ignored:
        return _failure(Status.INVALID, f"the engine did not do what was set: {ignored['why'].strip()}", completed)
    return Measurement(
        status=Status.OK,
        metrics={str(name): float(value) for name, value in metrics.items()},
        samples={str(name): tuple(map(float, values)) for name, values in samples.items()},
        conditions={"repeats": float(len(samples["output_throughput"])), **_spent(result)},
    )


def _implausible(metrics: Any, samples: Any, result: Mapping[str, Any], workload: Workload) -> str:
    """Why the numbers cannot be true; empty when they can."""
    if not isinstance(metrics, Mapping) or not isinstance(samples, Mapping):
        return "left a result without metrics"
    needed = (*THROUGHPUTS, "completed")
    missing = [name for name in needed if name not in metrics or not isinstance(samples.get(name), list) or not samples[name]]
    if missing:
        return f"left a result without {', '.join(missing)}"
    numbers = [*metrics.values(), *(value for values in samples.values() if isinstance(values, list) for value in values)]
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) for value in numbers):
        return "reported something that is not a number"
    if any(metrics[name] <= 0 for name in THROUGHPUTS) or any(value < 0 for value in numbers):
        return "reported a throughput or time that cannot be"
    if not all(1 <= count <= workload.requests for count in samples["completed"]):
        return f"completed {samples['completed']} requests, of {workload.requests} in each repeat"
    expected = sum(samples["completed"]) * workload.output_tokens
    if result.get("output_tokens") != expected:
        return f"produced {result.get('output_tokens')} tokens where {expected:.0f} were asked for"
    return ""


def _told(result: Mapping[str, Any], stage: str, completed: Completed) -> Measurement:
    """A failure that the measuring process noticed itself."""
    kind, reason = str(result["failure"]), str(result.get("reason", ""))
    if kind == "ended" and result.get("returncode") == -signal.SIGKILL:  # nobody but a kernel short of memory kills the server alone
        return _failure(_no_memory(stage), f"killed for memory while {stage or 'starting'}", completed)
    if kind == "ended" and isinstance(result.get("returncode"), int):
        return _crash(stage, replace(completed, returncode=result["returncode"] or 1))
    if kind == "start":
        return _start_failure(stage, reason, completed)
    if kind == "crashed" and _NO_MEMORY.search(f"{reason}\n{completed.stderr}"):
        return _failure(_no_memory(stage), reason, completed)
    known = {status.value for status in Status if status.failed}
    return _failure(Status(kind) if kind in known else Status.CRASHED, reason or kind, completed)


def _start_failure(stage: str, reason: str, completed: Completed) -> Measurement:
    """The engine refused to start and says why only in its log."""
    log = completed.stderr
    if _NO_MEMORY.search(log):
        return _failure(_no_memory(stage), "not enough memory to start", completed)
    for pattern, status, words in (
        (_REFUSED, Status.INVALID, "refused by llama.cpp"),
        (_BROKEN_MODEL, Status.CRASHED, "the model cannot be loaded"),
    ):
        match = pattern.search(log)
        if match:
            why = next((text for text in match.groupdict().values() if text), "")
            return _failure(status, f"{words}: {why.strip()}", completed)
    return _failure(Status.INVALID if "failed to create_context" in log else Status.CRASHED, reason, completed)


def _crash(stage: str, completed: Completed) -> Measurement:
    if _NO_MEMORY.search(completed.stderr):
        return _failure(_no_memory(stage), f"out of memory while {stage or 'starting'}", completed)
    cause = _ASSERT.search(completed.stderr)
    said = f": {cause['why'].strip()}" if cause else ""
    code = completed.returncode
    if code is None:
        return _failure(Status.CRASHED, informative_line(completed.error) or "never ran", completed)
    number = -code if code < 0 else code - 128 if 128 < code < 160 else 0
    if number:
        return _failure(Status.CRASHED, f"ended by {_signal(number)} while {stage or 'starting'}{said}", completed)
    if not said and (why := informative_line(completed.stderr)):
        said = f": {why}"
    return _failure(Status.CRASHED, f"exit code {code} while {stage or 'starting'}{said}", completed)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _no_memory(stage: str) -> Status:
    return Status.OOM_START if stage in STARTING else Status.OOM_RUN


def _failure(status: Status, reason: str, completed: Completed) -> Measurement:
    return Measurement(status=status, reason=" ".join(plain_text(reason).split())[:500], log_tail=plain_text(completed.log_tail))

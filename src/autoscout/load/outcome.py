"""What a finished trial of a server means: metrics, a bound, or which kind of failure it was."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autoscout.common.outcome import informative_line, is_number, plain_text
from autoscout.common.signs import INVALID_PATTERNS, OOM_PATTERNS, matches, telling_line
from autoscout.core.launch import Completed
from autoscout.core.trial import TOO_FEW, Measurement, Status
from autoscout.load.plan import BREAKS, LOG, RESULT, STAGE

STARTING = ("", "preparing", "reference", "starting")
NOTHING = re.compile(r"(?!)")
_REFUSED = re.compile(r"^(?:[\w.]+\.)?(?:ValueError|NotImplementedError|AssertionError|ValidationError)\b")
"""How engines refuse settings that their parser let pass; all of them raise these, and hardly anything else, while they read settings."""
_SIGNALS = {-number for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGILL, signal.SIGBUS, signal.SIGFPE)}


@dataclass(frozen=True, kw_only=True)
class LogSigns:
    """What one engine's log says besides what the logs of all engines do; the first group of a match that is not empty is the reason.

    Attributes:
        refused: The engine refuses the settings.
        broken_model: It cannot load the model, which is no fault of the settings.
        ignored: It did not do what was set, whatever it measured.
        cause: The line that says why it crashed.
    """

    refused: re.Pattern[str] = NOTHING
    broken_model: re.Pattern[str] = NOTHING
    ignored: re.Pattern[str] = NOTHING
    cause: re.Pattern[str] = NOTHING


NO_SIGNS = LogSigns()


def outcome(completed: Completed, signs: LogSigns = NO_SIGNS) -> Measurement:
    """Read what the trial program left; never raises, whatever it left.

    Args:
        completed: The trial.
        signs: Of the engine.
    """
    stage = completed.outputs.get(STAGE, "").strip()
    log = plain_text(completed.outputs.get(LOG, ""))
    result = _read(completed.outputs.get(RESULT))
    if completed.cancelled:
        return _failure(Status.ABORTED, "stopped before it ended", completed, log)
    if completed.out_of_memory:
        return _failure(_no_memory(stage), f"killed for memory while {stage or 'starting'}", completed, log, result)
    if completed.timed_out:
        return _failure(Status.TIMEOUT, f"still {stage or 'starting'} after {completed.wall_s:.0f} s", completed, log, result)
    if "failure" in result:
        status, reason = _reported(result, stage, log, signs)
        return _failure(status, reason, completed, log, result)
    if completed.returncode != 0 or not result:
        why = informative_line(completed.error or completed.stderr or completed.stdout)
        status = Status.CRASHED if completed.returncode != 0 else Status.WRONG_OUTPUT
        what = "left no result" if completed.returncode == 0 else f"the trial program ended with exit code {completed.returncode}"
        return _failure(status, f"{what}: {why}" if why else what, completed, log)
    if ignored := _reason(signs.ignored, log):
        return _failure(Status.INVALID, f"the engine did not do what was set: {ignored}", completed, log, result)
    return _measured(result, completed, log)


def _measured(result: Mapping[str, Any], completed: Completed, log: str) -> Measurement:
    metrics, bounds = _numbers(result.get("metrics")), _numbers(result.get("bounds", {}))
    data = result.get("samples", {})
    rows = {str(name): _row(values) for name, values in data.items()} if isinstance(data, Mapping) else {"": None}
    samples = {name: row for name, row in rows.items() if row is not None}
    if metrics is None or bounds is None or len(samples) < len(rows):
        return _failure(Status.WRONG_OUTPUT, "left a result whose metrics are not numbers", completed, log, result)
    if any(value < 0 for value in (*metrics.values(), *(value for row in samples.values() for value in row))) or _is_idle(metrics):
        return _failure(Status.WRONG_OUTPUT, "reported a throughput or time that cannot be", completed, log, result)
    if not metrics and not bounds:
        return _failure(Status.WRONG_OUTPUT, "left a result without any metric", completed, log, result)
    if completed.peak_memory_gb > 0:
        metrics.setdefault("peak_mem_gib", completed.peak_memory_gb)
    return Measurement(
        status=Status.BOUNDED if bounds else Status.OK,
        metrics=metrics,
        bounds=bounds,
        samples=samples,
        cost_s=completed.wall_s,
        conditions={**completed.conditions, **_spent(result), **_too_few(result)},
        reason=str(result.get("reason", "")) if bounds else _breaks(result),
    )


def _is_idle(metrics: Mapping[str, float]) -> bool:
    """Whether requests were answered in no time."""
    return metrics.get("completed", 0.0) > 0 and any(metrics.get(name) == 0 for name in ("output_throughput", "request_throughput"))


def _reported(result: Mapping[str, Any], stage: str, log: str, signs: LogSigns) -> tuple[Status, str]:
    """A failure that the trial program noticed itself."""
    kind, reason, code = str(result["failure"]), str(result.get("reason", "")), result.get("returncode", 0)
    if kind in ("start", "ended"):
        return _ended(stage, reason, code if isinstance(code, int) else 1, log, signs)
    if kind == "crashed" and matches(OOM_PATTERNS, text := f"{reason}\n{log}"):
        return _no_memory(stage), telling_line(OOM_PATTERNS, text)
    failures = {status.value for status in Status if status.failed}
    return Status(kind) if kind in failures else Status.CRASHED, reason or kind


def _ended(stage: str, reason: str, code: int, log: str, signs: LogSigns) -> tuple[Status, str]:
    """The server ended by itself, and says why only in its log."""
    is_starting = stage in STARTING
    if matches(OOM_PATTERNS, log):
        return _no_memory(stage), telling_line(OOM_PATTERNS, log)
    if code in (-signal.SIGKILL, 137):  # nobody but a kernel short of memory kills the server alone
        return _no_memory(stage), f"killed for memory while {stage or 'starting'}"
    if is_starting and (refused := _reason(signs.refused, log)):
        return Status.INVALID, f"refused by the engine: {refused}"
    if is_starting and (broken := _reason(signs.broken_model, log)):
        return Status.CRASHED, f"the model cannot be loaded: {broken}"
    why = _reason(signs.cause, log) or informative_line(log)
    if is_starting and (matches(INVALID_PATTERNS, log) or (code == 2 and re.search(r"^usage:", log, re.MULTILINE))):
        return Status.INVALID, f"refused by the engine: {telling_line(INVALID_PATTERNS, log) or why}"
    if is_starting and _REFUSED.match(why):
        return Status.INVALID, f"refused by the engine: {why}"
    what = f"ended by {signal.Signals(-code).name} while {stage}" if code in _SIGNALS else reason
    return Status.CRASHED, f"{what}: {why}" if why else what


def _reason(pattern: re.Pattern[str], log: str) -> str:
    """What a match says; empty without one."""
    match = pattern.search(log)
    return next((text.strip() for text in (*match.groups(), match[0]) if text), "") if match else ""


def _no_memory(stage: str) -> Status:
    return Status.OOM_START if stage in STARTING else Status.OOM_RUN


def _read(text: str | None) -> dict[str, Any]:
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _numbers(data: Any) -> dict[str, float] | None:
    """Finite numbers by name, or None where there is anything else."""
    if not isinstance(data, Mapping):
        return None
    return {str(name): float(value) for name, value in data.items()} if all(map(is_number, data.values())) else None


def _row(values: Any) -> tuple[float, ...] | None:
    return tuple(map(float, values)) if isinstance(values, list) and all(map(is_number, values)) else None


def _spent(result: Mapping[str, Any]) -> dict[str, float]:
    return _numbers(result.get("spent", {})) or {}


def _breaks(result: Mapping[str, Any]) -> str:
    """Which requests are above a limit, where the trial says so."""
    notes = result.get("notes")
    return plain_text(str(notes.get(BREAKS) or ""))[:500] if isinstance(notes, Mapping) else ""


def _too_few(result: Mapping[str, Any]) -> dict[str, float]:
    notes = result.get("notes")
    count = notes.get(TOO_FEW) if isinstance(notes, Mapping) else None
    return {TOO_FEW: float(count)} if isinstance(count, int) and count > 0 else {}


def _failure(status: Status, reason: str, completed: Completed, log: str, result: Mapping[str, Any] | None = None) -> Measurement:
    tail = "\n".join(part for part in (log[-3000:], plain_text(completed.log_tail)[-3000:]) if part.strip())
    return Measurement(
        status=status,
        reason=" ".join(plain_text(reason).split())[:500],
        log_tail=tail,
        cost_s=completed.wall_s,
        conditions={**completed.conditions, **_spent(result or {})},
    )

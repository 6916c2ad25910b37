"""From what came back of a launch to a measurement: the one border where a backend's mistakes are caught."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

from autoscout.common.derived import derived
from autoscout.common.outcome import informative_line
from autoscout.core.launch import Completed
from autoscout.core.log import logger
from autoscout.core.protocols import Backend
from autoscout.core.task import Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Measurement, Status
from autoscout.evaluate.samples import circumstances

NOT_STARTED = (126, 127)
"""What a shell answers when it may not run a command, or finds none; the programs of our own trials answer the same."""

EXCUSED = "gpu_taken"
"""Condition of a measurement whose failure is not the configuration's: others held much of its GPUs' memory."""

EXCUSABLE = (Status.OOM_START, Status.OOM_RUN, Status.CRASHED)
"""Failures that a lack of GPU memory shows as; a refused setting, a wrong output or a late end are the configuration's own."""

log = logger(__name__)


def not_started(completed: Completed) -> str:
    """Why the launch never ran; empty when it did."""
    if completed.timed_out or completed.out_of_memory or completed.cancelled:
        return ""
    if completed.returncode is None:
        return completed.error or "nothing was started, and the executor does not say why"
    if completed.returncode in NOT_STARTED:
        return informative_line(completed.stderr) or f"nothing could be started (exit code {completed.returncode})"
    return ""


def verdict(backend: Backend, completed: Completed, task: Task, gpus: int = 0) -> Measurement:
    """What the backend reads from a finished launch, corrected by what the executor knows for certain.

    Args:
        backend: What launched it.
        completed: What came back.
        task: What is tuned.
        gpus: GPUs that the launch asked for.
    """
    if completed.cancelled:
        return finished(Measurement(status=Status.ABORTED, reason="stopped before it ended"), completed)
    try:
        read = backend.parse(completed, task)
    except Exception as error:  # a parser meets whatever an engine prints
        log.debug("%s could not be parsed", completed.folder, exc_info=True)
        read = Measurement(status=Status.WRONG_OUTPUT, reason=f"what it left cannot be read: {error or type(error).__name__}")
    if read.ok:
        read = replace(read, metrics={**derived(read.metrics, completed.conditions, task, gpus), **read.metrics})
    return finished(_corrected(read, completed, task), completed)


def excused(measurement: Measurement, completed: Completed) -> Measurement:
    """Without blame for the configuration where others may have caused the failure: aborted, which is never stored."""
    if not completed.disturbed_by or measurement.status not in EXCUSABLE:
        return measurement
    return replace(
        measurement,
        status=Status.ABORTED,
        reason=f"{measurement.status.value} while others used its GPUs: {'; '.join(map(str, completed.disturbed_by))}",
        conditions={**measurement.conditions, EXCUSED: 1.0},
    )


def cut_off(completed: Completed) -> Measurement:
    """Of a launch that the study had no more time for: aborted, which is never stored, so that a later run measures it again."""
    return finished(Measurement(status=Status.ABORTED, reason=f"cut off by the budget after {completed.wall_s:.3g} s"), completed)


def stopped(completed: Completed, to_beat: ToBeat, lost_s: float) -> Measurement:
    """The measurement of a launch that was stopped after `lost_s` because it could no longer win."""
    value = to_beat.value or 0.0
    bounds = {to_beat.metric: max(value, value * completed.wall_s / lost_s)}
    reason = to_beat.lost(bounds) or f"took longer than {lost_s:.4g} s, which is to beat"
    return finished(Measurement(status=Status.BOUNDED, bounds=bounds, reason=reason), completed)


def finished(measurement: Measurement, completed: Completed) -> Measurement:
    """With the executor's cost and circumstances, and a log for every failure. A virtual cluster's answers stay simulated."""
    works = measurement.status in (Status.OK, Status.BOUNDED)
    tail = "" if works else measurement.log_tail or completed.log_tail
    return replace(
        measurement,
        cost_s=completed.wall_s,
        conditions={**circumstances(completed), **measurement.conditions},
        log_tail=tail,
        folder=PurePath(completed.folder).name,
        reason="" if measurement.ok else measurement.reason or _reason(completed),
        machine=completed.machine,
    )


def _corrected(read: Measurement, completed: Completed, task: Task) -> Measurement:
    if completed.out_of_memory and not read.status.out_of_memory:
        return Measurement(status=Status.OOM_RUN, fidelity=read.fidelity, reason=f"killed for memory at {completed.peak_memory_gb:.3g} GB")
    if completed.timed_out and read.status is not Status.TIMEOUT and not read.status.out_of_memory:
        return Measurement(status=Status.TIMEOUT, fidelity=read.fidelity, reason=f"did not end within {completed.wall_s:.3g} s")
    missing = [goal.metric for goal in task.objective.goals if goal.metric not in read.metrics]
    if read.ok and missing:
        there = ", ".join(sorted(read.metrics)) or "none"
        reason = f"reported no {' and no '.join(missing)}; metrics found: {there}"
        return Measurement(status=Status.WRONG_OUTPUT, fidelity=read.fidelity, reason=reason)
    return read


def _reason(completed: Completed) -> str:
    if completed.returncode is not None and completed.returncode < 0:
        return f"ended by signal {-completed.returncode}"
    return f"exit code {completed.returncode}"

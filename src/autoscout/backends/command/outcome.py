"""What a finished command means: its metrics, or which kind of failure it was."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping
from typing import Any

from autoscout.backends.command.driver import RESULT
from autoscout.backends.command.sources import CommandRun, UnreadableError
from autoscout.backends.command.workload import CommandWorkload
from autoscout.common.outcome import informative_line, plain_text
from autoscout.common.signs import INVALID_PATTERNS, OOM_PATTERNS, matches, telling_line
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status

_KILLED = (-9, 137)
_NOT_FOUND = (126, 127)


def outcome(completed: Completed, workload: CommandWorkload) -> Measurement:
    """The measurement behind a finished launch."""
    runs, server, event, more = _runs(completed, workload)
    texts = [server.get("log", ""), completed.error, *(run.stream("both") for run in runs)]
    if not runs and not server:
        texts += [completed.stdout, completed.stderr]
    status, reason = _failure(completed, workload, runs, server, event, plain_text("\n".join(text for text in texts if text)))
    metrics: dict[str, float] = {}
    samples: dict[str, tuple[float, ...]] = {}
    bounds = more.get("bounds") or {}
    if bounds and completed.returncode == 0:  # the driver has seen nothing fail
        status, reason = Status.BOUNDED, str(more.get("reason", ""))
        metrics, samples = _so_far(workload, runs)
    elif status is None:
        try:
            metrics, samples = _measure(workload, runs)
            if completed.peak_memory_gb > 0:
                metrics.setdefault("peak_mem_gib", completed.peak_memory_gb)
        except UnreadableError as error:
            status, reason = Status.WRONG_OUTPUT, str(error)
            if any(pattern.search(text) for text in texts for pattern in (*OOM_PATTERNS, *workload.oom_patterns)):
                status, reason = _oom(workload, runs, server, event), f"ended without its metric after running out of memory: {error}"
        else:
            broken = [why for run in runs for check in workload.checks if (why := check.broken(run, metrics))]
            if broken:
                status, reason, metrics, samples = Status.WRONG_OUTPUT, broken[0], {}, {}
    log = "\n".join(part for part in (server.get("log", "")[-3000:], completed.log_tail) if part)
    return Measurement(
        status=status or Status.OK,
        metrics=metrics,
        samples=samples,
        cost_s=completed.wall_s,
        conditions={**completed.conditions, **{name: float(value) for name, value in more.get("spent", {}).items()}},
        reason=reason,
        log_tail="" if status in (None, Status.BOUNDED) else plain_text(log)[-6000:],
        bounds={name: float(value) for name, value in bounds.items()} if status is Status.BOUNDED else {},
    )


def _runs(completed: Completed, workload: CommandWorkload) -> tuple[list[CommandRun], dict[str, Any], str, dict[str, Any]]:
    """The runs, the server's state, what the driver said went wrong, and all that it left."""
    if not workload.has_driver:
        alone = CommandRun(
            stdout=completed.stdout,
            stderr=completed.stderr,
            outputs=completed.outputs,
            wall_s=completed.wall_s,
            returncode=completed.returncode,
        )
        return [alone], {}, "", {}
    try:
        data = json.loads(completed.outputs.get(RESULT, ""))
        runs = [CommandRun(**run) for run in data["runs"]]
        return runs, dict(data["server"]), str(data["failure"]), data
    except (ValueError, KeyError, TypeError):
        return [], {}, "", {}  # killed before it could write, or never started


def _failure(
    completed: Completed, workload: CommandWorkload, runs: list[CommandRun], server: Mapping[str, Any], event: str, text: str
) -> tuple[Status | None, str]:
    """The kind of failure and its reason; None when the command claims success."""
    if completed.cancelled:
        return Status.ABORTED, "stopped by us"
    if completed.timed_out:
        return Status.TIMEOUT, f"did not end in time and was stopped after {completed.wall_s:.3g} s"
    codes = [run.returncode for run in runs] or [completed.returncode]
    code = next((code for code in codes if code != 0), 0)
    if event in ("server_died", "server_ended"):
        code = server.get("returncode") or 1
    if code == 0 and not completed.out_of_memory and not event and (runs or not workload.has_driver):
        return None, ""
    patterns = (*workload.oom_patterns, *OOM_PATTERNS)
    if completed.out_of_memory or code in _KILLED or matches(patterns, text):
        return _oom(workload, runs, server, event), telling_line(patterns, text) or f"killed for memory (exit code {code})"
    refusals = (*workload.invalid_patterns, *INVALID_PATTERNS)
    if matches(refusals, text) or (code == 2 and re.search(r"^usage:", text, re.MULTILINE | re.IGNORECASE)):
        return Status.INVALID, telling_line(refusals, text) or informative_line(text)
    if event == "address_taken":
        fix = "end it, or let each trial have a port of its own with {port}"
        return Status.CRASHED, f"something answers at the health address before the server was started: {fix}"
    if event == "start_timeout":
        return Status.TIMEOUT, f"the server was not up after {workload.start_limit_s:g} s"
    why = informative_line(completed.error or _said(runs, server, event) or text)
    if completed.returncode is None and not runs:
        return Status.CRASHED, f"could not be started: {why}"
    what = (
        "the server ended" if event in ("server_died", "server_ended") else "the command was not found" if code in _NOT_FOUND else "ended"
    )
    return Status.CRASHED, f"{what} with exit code {code}: {why}" if why else f"{what} with exit code {code}"


def _oom(workload: CommandWorkload, runs: list[CommandRun], server: Mapping[str, Any], event: str) -> Status:
    """While starting, or under load: by the server's health, else the `ready` pattern, else whether a number came out already."""
    if server:
        return Status.OOM_START if event in ("server_died", "start_timeout") else Status.OOM_RUN
    if workload.ready is not None:
        return Status.OOM_RUN if any(workload.ready.search(run.stream("both")) for run in runs) else Status.OOM_START
    for name, source in workload.metrics.items():
        for run in runs:
            try:
                if name != "*" and not source.wall:
                    source.read(name, run)
                    return Status.OOM_RUN
            except UnreadableError:
                continue
    return Status.OOM_START


def _so_far(workload: CommandWorkload, runs: list[CommandRun]) -> tuple[dict[str, float], dict[str, tuple[float, ...]]]:
    """The metrics of the runs before one that was stopped, as far as there are any."""
    try:
        return _measure(workload, runs) if runs else ({}, {})
    except UnreadableError:
        return {}, {}


def _measure(workload: CommandWorkload, runs: list[CommandRun]) -> tuple[dict[str, float], dict[str, tuple[float, ...]]]:
    """All metrics: the median over the runs, with the values behind it as samples."""
    by_metric: dict[str, list[float]] = {}
    within: dict[str, tuple[float, ...]] = {}
    for name, source in workload.metrics.items():
        for run in runs:
            if name == "*":
                for key, value in source.read_all(run).items():
                    by_metric.setdefault(key, []).append(value)
            else:
                value, behind = source.read(name, run)
                within[name] = behind if source.pick in ("mean", "median") else ()
                by_metric.setdefault(name, []).append(value)
    by_metric.setdefault("wall_s", [run.wall_s for run in runs])
    metrics = {name: statistics.median(values) for name, values in by_metric.items()}
    samples = {name: tuple(values) for name, values in by_metric.items() if len(values) > 1}
    if len(runs) == 1:
        samples.update({name: values for name, values in within.items() if len(values) > 1})
    return metrics, samples


def _said(runs: list[CommandRun], server: Mapping[str, Any], event: str) -> str:
    """What the part that failed wrote: the server, or the run that did not end well."""
    if event in ("server_died", "server_ended"):
        return str(server.get("log", ""))
    return next((run.stream("both") for run in runs if run.returncode != 0), "")

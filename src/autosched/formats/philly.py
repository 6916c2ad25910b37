"""Traces of Microsoft's Philly clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from autosched.traces.columns import TextTable, first_line, to_times
from autosched.traces.raw_trace import RawTrace
from autosched.traces.trace_format import TraceFormat
from autoscout.common.document import load_json
from autoscout.core.errors import ConfigError, Fault

__all__ = ["Philly"]


class Philly(TraceFormat):
    """Philly: the flat table (`timestamp,duration,num_gpus,cluster`) and the original JSON log (`cluster_job_log`)."""

    example = {"philly.csv": "timestamp,duration,num_gpus,cluster\n2017-10-01 00:00:10,100,2,vc1\n2017-10-01 00:00:00,50,1,vc2\n"}

    def matches(self, head: str, path: Path) -> bool:
        """By the start of a list of JSON objects, or the columns of the flat table."""
        return head.startswith("[") or {"timestamp", "duration", "num_gpus"} <= {name.strip() for name in head.split(",")}

    def read(self, path: Path) -> RawTrace:
        """Read either form; times carry no zone and are taken as UTC."""
        return _log(path) if first_line(path).startswith("[") else _flat(path)


def _flat(path: Path) -> RawTrace:
    table = TextTable.read(path)
    table.require("timestamp", "duration", "num_gpus")
    return RawTrace(
        source=path.name,
        lines=table.lines,
        job_id=table.text("job_id") or [f"philly-{number:06d}" for number in range(len(table))],
        submit_s=table.times("timestamp"),
        duration_s=table.numbers("duration"),
        gpus=table.numbers("num_gpus"),
        vc=table.text("cluster"),
        user=table.text("user"),
    )


def _log(path: Path) -> RawTrace:
    jobs: list[dict[str, Any]] = load_json(path)
    strange = [number for number, job in enumerate(jobs) if not _is_job(job)]
    if strange:
        rule = "a job is a mapping with a list of attempts, each with a list of `detail`"
        raise ConfigError([Fault(where=str(path), field=f"[{number}]", value=repr(jobs[number]), rule=rule) for number in strange])
    spans = [_run(job) for job in jobs]
    raw = RawTrace(
        source=path.name,
        lines=np.arange(1, len(jobs) + 1),
        job_id=[str(job.get("jobid")) for job in jobs],
        submit_s=to_times([str(job.get("submitted_time")) for job in jobs]),
        duration_s=np.asarray([seconds for seconds, _ in spans]),
        gpus=np.asarray([gpus for _, gpus in spans]),
        user=[str(job.get("user") or "") for job in jobs],
        vc=[str(job.get("vc") or "") for job in jobs],
        status=[str(job.get("status") or "") for job in jobs],
    )
    ran = np.asarray([bool(job.get("attempts")) for job in jobs], bool)
    return raw.only(ran, "has at least one attempt")


def _is_job(job: object) -> bool:
    attempts = (job.get("attempts") or []) if isinstance(job, dict) else None
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        return False
    details = [attempt.get("detail") or [] for attempt in attempts]
    if not all(isinstance(detail, list) for detail in details):
        return False
    return all(isinstance(node, dict) and isinstance(node.get("gpus", []), list) for detail in details for node in detail)


def _run(job: dict[str, Any]) -> tuple[float, float]:
    """Seconds of all finished attempts together, and the GPUs of the last one."""
    seconds, gpus = 0.0, 0.0
    for attempt in job.get("attempts") or []:
        start, end = to_times([str(attempt.get("start_time")), str(attempt.get("end_time"))])
        seconds += end - start
        gpus = float(sum(len(node.get("gpus", ())) for node in attempt.get("detail") or ()))
    return seconds, gpus

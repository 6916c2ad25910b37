"""Job events: what is told of a job, and when it happened."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from autosched.sim.trace import Trace
from autosched.traces.columns import TextTable
from autosched.traces.slurm_text import gpus_of, seconds_of
from autoscout.core.errors import Fault

KINDS = ("submit", "start", "end", "requeue", "cancel")
NUMBERS = ("gpus", "estimate_s", "qos", "duration_s")
TEXTS = ("user", "vc", "name", "status", "gpu_kind")
MOST_NAME = 200  # characters of the name of a job or a cluster
MOST_TEXT = 500  # characters of an attribute
MOST_GPUS = 1_000_000
_FIRST_S, _LAST_S = -1e10, 1e11  # moments that a clock can show: some three centuries before the epoch to three thousand years after


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """One thing that happened to a job.

    Attributes:
        job: Its name, unique in the cluster.
        kind: One of `KINDS`.
        at_s: When, in seconds of the epoch.
        attributes: What is known of the job besides: `gpus`, `user`, `vc`, `name`, `estimate_s` (its time limit), `qos`, `status`,
            `gpu_kind`, and `duration_s` where a source tells how long it ran but not when it started.
    """

    job: str
    kind: str
    at_s: float
    attributes: Mapping[str, float | str] = field(default_factory=dict)

    def faults(self, where: str = "event") -> list[Fault]:
        """All rules that it breaks."""
        faults = []

        def fault(name: str, value: object, rule: str) -> None:
            faults.append(Fault(where=where, field=name, value=repr(value), rule=rule))

        if not self.job or len(self.job) > MOST_NAME or not self.job.isprintable():
            fault("job", self.job, f"must be 1 to {MOST_NAME} printable characters")
        if self.kind not in KINDS:
            fault("kind", self.kind, f"must be one of {', '.join(KINDS)}")
        if not _FIRST_S < self.at_s < _LAST_S:
            fault("at_s", self.at_s, "must be a moment in seconds of the epoch")
        for name, value in self.attributes.items():
            if name in NUMBERS:
                if isinstance(value, str) or not 0 <= value < math.inf:
                    fault(name, value, "must be a number that is not negative")
                elif name == "gpus" and value > MOST_GPUS:
                    fault(name, value, f"must be at most {MOST_GPUS:,}")
            elif name not in TEXTS:
                fault(name, value, f"unknown attribute; there are {', '.join((*NUMBERS, *TEXTS))}")
            elif not isinstance(value, str) or len(value) > MOST_TEXT:
                fault(name, value, f"must be text of at most {MOST_TEXT} characters")
        return faults


def events_of_trace(trace: Trace) -> Iterator[JobEvent]:
    """A trace as events; it says how long jobs ran but not when they started, so they end as if nobody had waited."""
    user, vc, name, status, kind = (labels.texts() for labels in (trace.user, trace.vc, trace.name, trace.status, trace.kind))
    for row in range(len(trace)):
        texts = {"user": user[row], "vc": vc[row], "name": name[row], "gpu_kind": kind[row]}
        attributes: dict[str, float | str] = {key: str(text)[:MOST_TEXT] for key, text in texts.items() if text}
        attributes["gpus"] = float(trace.gpus[row])
        for column in ("estimate_s", "qos"):
            if column in trace.extra and np.isfinite(trace.extra[column][row]):
                attributes[column] = float(trace.extra[column][row])
        job, submit, ran = str(trace.job_id[row]), float(trace.submit_s[row]), float(trace.duration_s[row])
        yield JobEvent(job=job, kind="submit", at_s=submit, attributes=attributes)
        ended: dict[str, float | str] = {"duration_s": ran, **({"status": str(status[row])[:MOST_TEXT]} if status[row] else {})}
        yield JobEvent(job=job, kind="end", at_s=submit + ran, attributes=ended)


SACCT = ("JobID", "User", "Partition", "JobName", "State", "Submit", "Start", "End", "Timelimit", "ReqTRES")
"""Columns of `sacct --parsable2 --allocations --duplicates` that events are read from; dates in UTC."""
_ENDED = ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")
_REQUEUED = ("REQUEUED", "PREEMPTED")


def events_of_sacct(path: Path) -> list[JobEvent]:
    """Slurm accounting as events: every attempt of every job, also of those that wait or run.

    Raises:
        ConfigError: columns are missing.
    """
    table = TextTable.read(path, delimiter="|")
    table.require(*SACCT)
    times = {name: table.times(name) for name in ("Submit", "Start", "End")}
    limits = seconds_of(table.values["Timelimit"])
    events: list[JobEvent] = []
    for row, job in enumerate(table.values["JobID"]):
        gpus, kind = gpus_of(table.values["ReqTRES"][row])
        if "." in job or "[" in job or gpus <= 0 or not np.isfinite(times["Submit"][row]):
            continue  # a step, tasks of an array that wait (each of them has its own row later), or nothing of ours
        columns = {"user": "User", "vc": "Partition", "name": "JobName"}
        attributes: dict[str, float | str] = {
            key: table.values[column][row][:MOST_TEXT] for key, column in columns.items() if table.values[column][row]
        }
        attributes |= {"gpus": gpus} | ({"gpu_kind": kind} if kind else {})
        attributes |= {"estimate_s": float(limits[row])} if np.isfinite(limits[row]) else {}
        state = table.values["State"][row].split(" ")[0].rstrip("+")
        submit, start, end = (float(times[name][row]) for name in ("Submit", "Start", "End"))
        events.append(JobEvent(job=job, kind="submit", at_s=submit, attributes=attributes))
        if np.isfinite(start):
            events.append(JobEvent(job=job, kind="start", at_s=start))
        over = {**dict.fromkeys(_ENDED, "end"), **dict.fromkeys(_REQUEUED, "requeue"), "CANCELLED": "cancel"}.get(state)
        if over and np.isfinite(end):
            events.append(JobEvent(job=job, kind=over, at_s=end, attributes={"status": state}))
    return events


def encode(attributes: Mapping[str, Any]) -> str:
    """Attributes as a line of JSON, the same for equal ones."""
    return json.dumps(dict(attributes), sort_keys=True, separators=(",", ":"), allow_nan=False)

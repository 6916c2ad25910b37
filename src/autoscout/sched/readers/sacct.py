"""Slurm accounting: `sacct --parsable2 --allocations --format=JobID,User,Partition,Submit,Start,End,State,JobName,ReqTRES,...`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from autoscout.core.errors import ConfigError, Fault
from autoscout.sched.readers.table import Columns, Draft, Texts

_GPUS = re.compile(r"(?:^|,)gres/gpu(?::([\w.-]+))?=(\d+)")


def matches(head: str, path: Path) -> bool:
    """Its separator and the two columns no job log can do without."""
    return "|" in head and {"JobID", "Submit"} <= set(head.split("|"))


def draft(path: Path) -> Draft:
    """Read all allocations; job steps, jobs without GPUs and jobs that have not ended are left out, with a record."""
    table = Columns.read(path, delimiter="|")
    table.require("JobID", "Submit")
    resources = table.text("ReqTRES") or table.text("AllocTRES")
    if resources is None:
        raise ConfigError(
            Fault(where=f"{path}:1", field="ReqTRES", rule="GPUs cannot be known without it", fix="sacct --parsable2 --format=...,ReqTRES")
        )
    found = [_GPUS.search(text) for text in resources]
    everything = Draft(
        source=path.name,
        lines=table.lines,
        job_id=table.values["JobID"],
        submit_s=table.times("Submit"),
        duration_s=_durations(table),
        gpus=np.asarray([float(match[2]) if match else 0.0 for match in found]),
        user=table.text("User"),
        vc=table.text("Partition"),
        status=[text.split(" ")[0] for text in table.text("State") or []] or None,
        name=table.text("JobName"),
        kind=[(match[1] or "") if match else "" for match in found],
        extra={"estimate_s": _limits(table.values["Timelimit"])} if "Timelimit" in table.values else {},
    )
    whole = np.asarray(["." not in text for text in table.values["JobID"]], bool)
    everything = everything if whole.all() else everything.only(whole, "is a job, not a step")
    wants = everything.gpus != 0
    everything = everything if wants.all() else everything.only(wants, "asks for GPUs")
    ended = np.isfinite(everything.duration_s)
    return everything if ended.all() else everything.only(ended, "started and ended")


def _durations(table: Columns) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if "ElapsedRaw" in table.values:
        return table.numbers("ElapsedRaw")
    if {"Start", "End"} <= table.values.keys():
        return table.times("End") - table.times("Start")
    table.require("Elapsed")
    return _limits(table.values["Elapsed"])


def _limits(texts: Texts) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds of `days-hours:minutes:seconds`; not-a-number for UNLIMITED and the like."""
    seconds = []
    for text in texts:
        match = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+)(?::(\d+))?", text.strip())
        if not match:
            seconds.append(float("nan"))
        elif match[4] is None:
            seconds.append(int(match[2]) * 60.0 + int(match[3]))
        else:
            seconds.append(int(match[1] or 0) * 86400.0 + int(match[2]) * 3600 + int(match[3]) * 60 + int(match[4]))
    return np.asarray(seconds)

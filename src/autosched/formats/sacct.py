"""Slurm's accounting."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autosched.traces.columns import TextTable
from autosched.traces.raw_trace import ASKS_FOR_GPUS, RawTrace
from autosched.traces.slurm_text import gpus_of, seconds_of
from autosched.traces.trace_format import TraceFormat
from autoscout.core.errors import ConfigError, Fault

__all__ = ["Sacct"]

_UNFINISHED = ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT")


class Sacct(TraceFormat):
    """Slurm accounting: `sacct --parsable2 --allocations --format=JobID,User,Partition,Submit,Start,End,State,JobName,ReqTRES,...`."""

    example = {
        "jobs.txt": "JobID|User|Partition|Submit|Start|End|State|JobName|ReqTRES|Timelimit\n"
        "10|ann|gpu|2024-01-01T00:00:00|2024-01-01T00:01:00|2024-01-01T01:01:00|COMPLETED|train|cpu=8,gres/gpu=4|1-00:00:00\n"
        "11|bob|gpu|2024-01-01T00:00:05|2024-01-01T00:01:00|2024-01-01T00:02:00|CANCELLED by 5|x|gres/gpu:a100=1|02:00:00\n"
        "12|bob|cpu|2024-01-01T00:00:06|2024-01-01T00:01:00|2024-01-01T00:02:00|COMPLETED|x|cpu=1|02:00:00\n"
    }

    def matches(self, head: str, path: Path) -> bool:
        """By its separator and the two columns that no job log can do without."""
        return "|" in head and {"JobID", "Submit"} <= set(head.split("|"))

    def read(self, path: Path) -> RawTrace:
        """Read all allocations; job steps, jobs without GPUs and jobs that have not ended are left out, with a record."""
        table = TextTable.read(path, delimiter="|")
        table.require("JobID", "Submit")
        resources = table.text("ReqTRES") or table.text("AllocTRES")
        if resources is None:
            raise ConfigError(
                Fault(
                    where=f"{path}:1", field="ReqTRES", rule="GPUs cannot be known without it", fix="sacct --parsable2 --format=...,ReqTRES"
                )
            )
        requests = [gpus_of(text) for text in resources]
        states = [text.split(" ")[0].rstrip("+") for text in table.text("State") or []]
        jobs = RawTrace(
            source=path.name,
            lines=table.lines,
            job_id=table.values["JobID"],
            submit_s=table.times("Submit"),
            duration_s=_durations(table),
            gpus=np.asarray([gpus for gpus, _ in requests]),
            user=table.text("User"),
            vc=table.text("Partition"),
            status=states or None,
            name=table.text("JobName"),
            kind=[kind for _, kind in requests],
            extra={"estimate_s": seconds_of(table.values["Timelimit"])} if "Timelimit" in table.values else {},
        )
        whole = np.asarray(["." not in text for text in table.values["JobID"]], bool)
        ended = np.isfinite(jobs.duration_s)
        if states:
            ended &= ~np.isin(states, _UNFINISHED)
        if "End" in table.values:
            ended &= np.isfinite(table.times("End"))
        remaining = np.ones(len(whole), bool)
        for chosen, why in ((whole, "is a job, not a step"), (jobs.gpus != 0, ASKS_FOR_GPUS), (ended, "started and ended")):
            jobs = jobs.only(chosen[remaining], why)
            remaining &= chosen
        return jobs


def _durations(table: TextTable) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if "ElapsedRaw" in table.values:
        return table.numbers("ElapsedRaw")
    if {"Start", "End"} <= table.values.keys():
        return table.times("End") - table.times("Start")
    table.require("Elapsed")
    return seconds_of(table.values["Elapsed"])

"""Slurm accounting: `sacct --parsable2 --allocations --format=JobID,User,Partition,Submit,Start,End,State,JobName,ReqTRES,...`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from autosched.readers.table import Columns, Draft, Texts
from autoscout.core.errors import ConfigError, Fault

_GPUS = re.compile(r"(?:^|,)(?:gres[/:])?gpu(?::([\w.-]+))?[:=](\d+)|(?:^|,)(?:gres[/:])?gpu(?=,|$)")
_UNFINISHED = ("RUNNING", "PENDING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "COMPLETING", "STOPPED", "SIGNALING", "STAGE_OUT")


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
    found = [gpus_of(text) for text in resources]
    states = [text.split(" ")[0].rstrip("+") for text in table.text("State") or []]
    everything = Draft(
        source=path.name,
        lines=table.lines,
        job_id=table.values["JobID"],
        submit_s=table.times("Submit"),
        duration_s=_durations(table),
        gpus=np.asarray([gpus for gpus, _ in found]),
        user=table.text("User"),
        vc=table.text("Partition"),
        status=states or None,
        name=table.text("JobName"),
        kind=[kind for _, kind in found],
        extra={"estimate_s": seconds_of(table.values["Timelimit"])} if "Timelimit" in table.values else {},
    )
    whole = np.asarray(["." not in text for text in table.values["JobID"]], bool)
    ended = np.isfinite(everything.duration_s)
    if states:
        ended &= ~np.isin(states, _UNFINISHED)
    if "End" in table.values:
        ended &= np.isfinite(table.times("End"))
    wants = everything.gpus != 0
    left = np.ones(len(whole), bool)
    for chosen, why in ((whole, "is a job, not a step"), (wants, "asks for GPUs"), (ended, "started and ended")):
        if not chosen[left].all():
            everything = everything.only(chosen[left], why)
            left &= chosen
    return everything


def gpus_of(text: str) -> tuple[float, str]:
    """GPUs of `cpu=8,gres/gpu=4,gres/gpu:a100=4` (accounting) or `gres/gpu:a100:4` (per node), and their type; several types are none."""
    plain = 0.0
    typed: dict[str, float] = {}
    for match in _GPUS.finditer(text):
        if match[1]:
            typed[match[1]] = typed.get(match[1], 0.0) + float(match[2])
        else:
            plain = max(plain, float(match[2] or 1))
    total = max(plain, sum(typed.values()))
    return total, next(iter(typed)) if len(typed) == 1 and typed == {next(iter(typed)): total} else ""


def _durations(table: Columns) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if "ElapsedRaw" in table.values:
        return table.numbers("ElapsedRaw")
    if {"Start", "End"} <= table.values.keys():
        return table.times("End") - table.times("Start")
    table.require("Elapsed")
    return seconds_of(table.values["Elapsed"])


def seconds_of(texts: Texts) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Seconds of `days-hours:minutes:seconds`, `minutes:seconds` and what lies between; not-a-number for UNLIMITED and the like."""
    return np.asarray([_seconds(text.strip()) for text in texts], np.float64)


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(?:(\d{1,6})-)?(\d{1,9})(?::(\d{1,9}))?(?::(\d{1,9}))?(?:\.\d+)?", text)
    if not match:
        return float("nan")
    parts = [int(part) for part in match.groups()[1:] if part is not None]
    if match[1] is not None:  # days-hours, days-hours:minutes, days-hours:minutes:seconds
        hours, minutes, seconds = (*parts, 0, 0)[:3]
    elif len(parts) == 3:
        hours, minutes, seconds = parts
    else:  # minutes, minutes:seconds
        hours, (minutes, seconds) = 0, (*parts, 0)[:2]
    return int(match[1] or 0) * 86_400.0 + hours * 3_600.0 + minutes * 60.0 + seconds

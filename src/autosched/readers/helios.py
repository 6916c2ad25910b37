"""Helios: `cluster_log.csv` of SenseTime's clusters. Times are local (UTC+8)."""

from __future__ import annotations

from pathlib import Path

from autosched.readers.table import Columns, Draft

_NEEDED = ("job_id", "vc", "gpu_num", "state", "submit_time", "duration")
_ZONE_H = 8.0


def matches(head: str, path: Path) -> bool:
    """Its columns; Acme has the same without virtual clusters."""
    return set(_NEEDED) <= {name.strip() for name in head.split(",")}


def draft(path: Path) -> Draft:
    """Read all jobs; those without GPUs are left out, with a record."""
    table = Columns.read(path)
    table.require(*_NEEDED)
    everything = Draft(
        source=path.name,
        lines=table.lines,
        job_id=table.values["job_id"],
        submit_s=table.times("submit_time", _ZONE_H),
        duration_s=table.numbers("duration"),
        gpus=table.numbers("gpu_num"),
        user=table.text("user"),
        vc=table.text("vc"),
        status=table.text("state"),
        name=table.text("jobname"),
        extra={"cpus": table.numbers("cpu_num")} if "cpu_num" in table.values else {},
    )
    wants = everything.gpus != 0
    return everything if wants.all() else everything.only(wants, "asks for GPUs")

"""Acme: `trace_seren.csv` and `trace_kalos.csv`. Times name their zone."""

from __future__ import annotations

from pathlib import Path

from autosched.readers.table import Columns, Draft

_NEEDED = ("job_id", "user", "node_num", "gpu_num", "type", "state", "submit_time", "duration")


def matches(head: str, path: Path) -> bool:
    """Its columns."""
    return set(_NEEDED) <= {name.strip() for name in head.split(",")}


def draft(path: Path) -> Draft:
    """Read all jobs; those without GPUs are left out, with a record."""
    table = Columns.read(path)
    table.require(*_NEEDED)
    everything = Draft(
        source=path.name,
        lines=table.lines,
        job_id=table.values["job_id"],
        submit_s=table.times("submit_time"),
        duration_s=table.numbers("duration"),
        gpus=table.numbers("gpu_num"),
        user=table.text("user"),
        status=table.text("state"),
        name=table.text("type"),
    )
    wants = everything.gpus != 0
    return everything if wants.all() else everything.only(wants, "asks for GPUs")

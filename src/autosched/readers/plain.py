"""Plain CSV: `job_id,submit_time,duration,gpus` and, where known, `user,vc,status,name,gpu_spec` and numeric columns."""

from __future__ import annotations

from pathlib import Path

from autosched.readers.table import Columns, Draft

_TEXT = ("job_id", "user", "vc", "status", "name", "gpu_spec", "kind")
_NEEDED = ("job_id", "submit_time", "duration", "gpus")
_EXTRA = ("estimate_s", "skew", "cpus", "gpu_util", "memory_mb", "sharing", "cpu_milli", "memory_mib")


def matches(head: str, path: Path) -> bool:
    """Whether the first line names the four columns every trace must have."""
    return set(_NEEDED) <= {name.strip() for name in head.split(",")}


def draft(path: Path) -> Draft:
    """Read the file; columns it does not know are left out and named in the record."""
    table = Columns.read(path)
    table.require(*_NEEDED)
    known = {*_TEXT, *_NEEDED, *_EXTRA}
    unused = [name for name in table.names if name not in known]
    return Draft(
        source=path.name,
        lines=table.lines,
        job_id=table.values["job_id"],
        submit_s=table.times("submit_time"),
        duration_s=table.numbers("duration"),
        gpus=table.numbers("gpus"),
        user=table.text("user"),
        vc=table.text("vc"),
        status=table.text("status"),
        name=table.text("name"),
        kind=table.text("kind"),
        extra={name: table.numbers(name) for name in _EXTRA if name in table.values},
        filters=(f"columns not used: {', '.join(unused)}",) if unused else (),
    )

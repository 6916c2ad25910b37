"""Alibaba v2023: `openb_pod_list_*.csv`. Times are seconds from the start of the trace; GPUs may be shares of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autosched.readers.table import Columns, Draft

_NEEDED = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")


def matches(head: str, path: Path) -> bool:
    """Its columns."""
    return set(_NEEDED) <= {name.strip() for name in head.split(",")}


def draft(path: Path) -> Draft:
    """Read all pods; duration counts from scheduling, or from creation for pods that never were scheduled."""
    table = Columns.read(path)
    table.require(*_NEEDED)
    created, deleted, scheduled = (table.numbers(name) for name in ("creation_time", "deletion_time", "scheduled_time"))
    whole, milli = table.numbers("num_gpu"), table.numbers("gpu_milli")
    everything = Draft(
        source=path.name,
        lines=table.lines,
        job_id=table.values["name"],
        submit_s=created,
        duration_s=deleted - np.where(np.isfinite(scheduled), scheduled, created),
        gpus=np.where(whole == 1, milli / 1000.0, whole),
        status=table.text("pod_phase"),
        name=table.text("qos"),
    )
    wants = everything.gpus != 0
    return everything if wants.all() else everything.only(wants, "asks for GPUs")

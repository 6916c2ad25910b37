"""PAI v2020: `pai_job_table.csv` and `pai_task_table.csv`, which carry no header. Times are seconds, shifted by a constant."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autosched.readers.table import Columns, Draft, first_line
from autoscout.core.errors import ConfigError, Fault

_JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_TASK = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type")


def matches(head: str, path: Path) -> bool:
    """A folder with both tables, or one of them by name."""
    return "pai_" in path.name or (path.is_dir() and bool(list(path.glob("pai_task_table.csv*"))))


def draft(path: Path) -> Draft:
    """One job per row of the job table; its GPUs are those of all its tasks, its work the time from first launch to last end."""
    folder = path if path.is_dir() else path.parent
    jobs, tasks = _table(folder, "pai_job_table", _JOB), _table(folder, "pai_task_table", _TASK)
    place = {name: row for row, name in enumerate(jobs.values["job_name"])}
    owner = np.asarray([place.get(name, -1) for name in tasks.values["job_name"]], np.int64)
    gpus = np.nan_to_num(tasks.numbers("plan_gpu")) / 100.0 * np.nan_to_num(tasks.numbers("inst_num"))
    starts, ends = tasks.numbers("start_time"), tasks.numbers("end_time")
    total, first, last = np.zeros(len(jobs)), np.full(len(jobs), np.inf), np.full(len(jobs), -np.inf)
    known = owner >= 0
    np.add.at(total, owner[known], gpus[known])
    np.fmin.at(first, owner[known], starts[known])
    np.fmax.at(last, owner[known], ends[known])
    kinds = np.full(len(jobs), "", dtype="U16")
    kinds[owner[known]] = np.asarray(tasks.values["gpu_type"], np.str_)[known]
    duration = np.where(np.isfinite(first) & np.isfinite(last), last - first, np.nan)
    everything = Draft(
        source=folder.name,
        lines=jobs.lines,
        job_id=jobs.values["job_name"],
        submit_s=jobs.numbers("start_time"),
        duration_s=duration,
        gpus=np.where(total > 1, np.ceil(total), total),
        user=jobs.text("user"),
        status=jobs.text("status"),
        kind=list(kinds),
        filters=("GPUs of jobs above one GPU rounded up",),
    )
    wants = everything.gpus != 0
    return everything if wants.all() else everything.only(wants, "asks for GPUs")


def _table(folder: Path, stem: str, columns: tuple[str, ...]) -> Columns:
    for name in (f"{stem}.csv", f"{stem}.csv.gz"):
        if (folder / name).exists():
            header = None if first_line(folder / name).startswith(columns[0]) else columns
            return Columns.read(folder / name, header=header)
    raise ConfigError(Fault(where=str(folder), field=f"{stem}.csv", rule="PAI traces need the job table and the task table in one folder"))

"""Traces of Alibaba's PAI clusters, 2020."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from autosched.traces.columns import TextTable, first_line
from autosched.traces.raw_trace import RawTrace
from autosched.traces.trace_format import TraceFormat
from autoscout.core.errors import ConfigError, Fault

__all__ = ["Pai"]

_JOB = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
_TASK = ("job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type")


class Pai(TraceFormat):
    """PAI v2020: `pai_job_table.csv` and `pai_task_table.csv`, which carry no header. Times are seconds, shifted by a constant."""

    precedence = -1  # a name says less than columns do
    example = {
        "pai_job_table.csv": "j1,i1,u1,Terminated,100.0,400.0\nj2,i2,u2,Failed,50.0,60.0\n",
        "pai_task_table.csv": "j1,ps,1.0,Terminated,110.0,380.0,600.0,29.0,,\nj1,worker,3.0,Terminated,120.0,390.0,600.0,29.0,50.0,V100\n"
        "j2,worker,1.0,Failed,51.0,59.0,600.0,29.0,25.0,T4\n",
    }

    def matches(self, head: str, path: Path) -> bool:
        """By the names of its tables: a folder with both, or one of them."""
        return "pai_" in path.name or (path.is_dir() and bool(list(path.glob("pai_task_table.csv*"))))

    def read(self, path: Path) -> RawTrace:
        """One job per row of the job table; its GPUs are those of all its tasks, its work the time from first launch to last end."""
        folder = path if path.is_dir() else path.parent
        jobs, tasks = _table(folder, "pai_job_table", _JOB), _table(folder, "pai_task_table", _TASK)
        row_of = {name: row for row, name in enumerate(jobs.values["job_name"])}
        owner = np.asarray([row_of.get(name, -1) for name in tasks.values["job_name"]], np.int64)
        gpus = np.nan_to_num(tasks.numbers("plan_gpu")) / 100.0 * np.nan_to_num(tasks.numbers("inst_num"))
        starts, ends = tasks.numbers("start_time"), tasks.numbers("end_time")
        total, first, last = np.zeros(len(jobs)), np.full(len(jobs), np.inf), np.full(len(jobs), -np.inf)
        owned = owner >= 0
        np.add.at(total, owner[owned], gpus[owned])
        np.fmin.at(first, owner[owned], starts[owned])
        np.fmax.at(last, owner[owned], ends[owned])
        kinds = np.full(len(jobs), "", dtype="U16")
        kinds[owner[owned]] = np.asarray(tasks.values["gpu_type"], np.str_)[owned]
        duration = np.where(np.isfinite(first) & np.isfinite(last), last - first, np.nan)
        return RawTrace(
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
        ).with_gpus()


def _table(folder: Path, stem: str, columns: tuple[str, ...]) -> TextTable:
    for name in (f"{stem}.csv", f"{stem}.csv.gz"):
        if (folder / name).exists():
            header = None if first_line(folder / name).startswith(columns[0]) else columns
            return TextTable.read(folder / name, header=header)
    raise ConfigError(Fault(where=str(folder), field=f"{stem}.csv", rule="PAI traces need the job table and the task table in one folder"))

"""The format that AutoScout writes itself."""

from __future__ import annotations

from autosched.traces.columns import TextTable
from autosched.traces.trace_format import TableFormat

__all__ = ["Plain"]

_EXTRA = ("estimate_s", "skew", "cpus", "gpu_util", "memory_mb", "sharing", "cpu_milli", "memory_mib")


class Plain(TableFormat):
    """Plain CSV: `job_id,submit_time,duration,gpus` and, where known, `user,vc,status,name,gpu_spec` and numeric columns."""

    precedence = 2  # whatever other columns there are
    required = ("job_id", "submit_time", "duration", "gpus")
    columns = {
        "job_id": "job_id",
        "submit_s": "submit_time",
        "duration_s": "duration",
        "gpus": "gpus",
        "user": "user",
        "vc": "vc",
        "status": "status",
        "name": "name",
        "kind": "kind",
    }
    extra = {name: name for name in _EXTRA}
    drops_cpu_jobs = False
    example = {"jobs.csv": "job_id,submit_time,duration,gpus,user,estimate_s\na,0,5,1,ann,60\nb,2.5,10,4,bob,60\n"}

    def filters(self, table: TextTable) -> tuple[str, ...]:
        """The columns that it does not know."""
        names = {*self.columns.values(), *self.extra, "gpu_spec"}
        unused = [name for name in table.names if name not in names]
        return (f"columns not used: {', '.join(unused)}",) if unused else ()

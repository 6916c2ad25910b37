"""Traces of SenseTime's Helios clusters."""

from __future__ import annotations

from autosched.traces.trace_format import TableFormat

__all__ = ["Helios"]


class Helios(TableFormat):
    """Helios: `cluster_log.csv`. Times are local (UTC+8)."""

    precedence = 1  # over Acme, whose columns are the same but for the virtual cluster
    required = ("job_id", "vc", "gpu_num", "state", "submit_time", "duration")
    columns = {
        "job_id": "job_id",
        "submit_s": "submit_time",
        "duration_s": "duration",
        "gpus": "gpu_num",
        "user": "user",
        "vc": "vc",
        "status": "state",
        "name": "jobname",
    }
    extra = {"cpus": "cpu_num"}
    zone_h = 8.0
    example = {
        "cluster_log.csv": "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration\n"
        "7,uA,vcX,train,4,12,FAILED,2020-07-01 09:00:05,200\n"
        "8,uA,vcX,count,0,1,COMPLETED,2020-07-01 09:00:07,3\n"
        "9,uB,vcY,train,8,12,COMPLETED,2020-07-01 09:00:08,50\n"
    }

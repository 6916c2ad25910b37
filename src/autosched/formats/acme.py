"""Traces of the Acme clusters."""

from __future__ import annotations

from autosched.traces.trace_format import TableFormat

__all__ = ["Acme"]


class Acme(TableFormat):
    """Acme: `trace_seren.csv` and `trace_kalos.csv`. Times name their zone."""

    required = ("job_id", "user", "node_num", "gpu_num", "type", "state", "submit_time", "duration")
    columns = {
        "job_id": "job_id",
        "submit_s": "submit_time",
        "duration_s": "duration",
        "gpus": "gpu_num",
        "user": "user",
        "status": "state",
        "name": "type",
    }
    example = {
        "trace_seren.csv": "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,duration\n"
        "1,u1,1,4,20,Other,FAILED,2023-05-02 10:00:10+08:00,100\n"
        "2,u2,1,0,20,Other,COMPLETED,2023-05-02 10:00:11+08:00,7\n"
        "3,u1,2,16,20,Pretrain,COMPLETED,2023-05-02 10:00:15+08:00,300\n"
    }

"""Traces of Alibaba's GPU clusters, 2023."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from autosched.traces.columns import TextTable
from autosched.traces.trace_format import TableFormat

__all__ = ["Alibaba"]


class Alibaba(TableFormat):
    """Alibaba v2023: `openb_pod_list_*.csv`. Times are seconds from the start of the trace; GPUs may be shares of one."""

    required = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
    columns = {"job_id": "name", "submit_s": "creation_time", "status": "pod_phase", "name": "qos"}
    example = {
        "openb_pod_list_default.csv": "name,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,1,370,LS,Running,10,110,20\n"
        "p1,2,1000,BE,Pending,30,50,\n"
        "p2,0,0,BE,Running,30,50,30\n"
    }

    def duration_s(self, table: TextTable) -> NDArray[np.float64]:
        """From scheduling to deletion, or from creation for pods that never were scheduled."""
        created, deleted, scheduled = (table.numbers(name) for name in ("creation_time", "deletion_time", "scheduled_time"))
        return deleted - np.where(np.isfinite(scheduled), scheduled, created)

    def gpus(self, table: TextTable) -> NDArray[np.float64]:
        """Whole GPUs, or a share of one in thousandths."""
        whole = table.numbers("num_gpu")
        return np.where(whole == 1, table.numbers("gpu_milli") / 1000.0, whole)

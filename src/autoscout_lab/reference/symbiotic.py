"""The SymbioticLab simulator of Tiresias: nodes do not matter, preemption is free, and its queues have an order of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autosched.kernel.attained import BY_SERVICE, PROMOTE, QUEUES, THRESHOLDS
from autosched.kernel.jit import rank, wake
from autosched.kernel.records import PENDING, RUNNING, PolicyView
from autosched.kernel.state import executed_by
from autosched.schedulers.fifo import FIFO
from autosched.schedulers.srtf import SRTF
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import JobModel, Placement, Ranking, SchedulePlan
from autosched.sim.trace import Trace

_BY_COUNT = Placement(rule="count")
_FREE = JobModel(preemption_cost_s=((None, 0.0),))


@rank
def _rank(view: PolicyView) -> None:
    """Queue by queue: running before pending, each in the order of `active`; a job that sinks goes to the very end of the next queue."""
    job, active, key, tie = view.job, view.active, view.key, view.tie
    now, params = view.now, view.params
    n = len(active)
    for i in range(n):
        j = active[i]
        tie[i] = float(i) + (0.0 if job[j].status == RUNNING else n)
        queue = int(job[j].queue)
        ran = executed_by(job, j, now) - job[j].base_s
        if job[j].status == RUNNING and queue < params[QUEUES] - 1:
            value = ran * job[j].gpus if params[BY_SERVICE] > 0 else ran
            if value >= params[THRESHOLDS + queue]:
                queue += 1
                tie[i] = 4.0 * n + j
        elif job[j].status == PENDING and queue > 0 and params[PROMOTE] > 0 and ran > 0:
            waited = job[j].waited_s + now - job[j].since_s
            if waited >= np.floor(ran * params[PROMOTE]):
                job[j].base_s = job[j].executed_s
                job[j].waited_s = -(now - job[j].since_s)
                queue = 0
                tie[i] = 4.0 * n + j
        job[j].queue = queue
        key[i] = queue


@wake
def _wake(view: PolicyView) -> float:
    """The earliest planned look at any job: (limit - seconds run) // GPUs from now, which is late for jobs on several GPUs."""
    job, now, params = view.job, view.now, view.params
    due = np.inf
    for j in view.active:
        queue = int(job[j].queue)
        ran = executed_by(job, j, now) - job[j].base_s
        if job[j].status == RUNNING:
            if queue < params[QUEUES] - 1:
                ahead = params[THRESHOLDS + queue] - ran
                if params[BY_SERVICE] > 0:
                    ahead = np.floor(ahead / job[j].gpus)
                due = min(due, now + ahead)
        elif params[PROMOTE] > 0 and queue > 0 and ran > 0:
            ahead = np.floor(ran * params[PROMOTE] - (job[j].waited_s + now - job[j].since_s))
            if ahead > 0:
                due = min(due, now + ahead)
    return due


@dataclass(frozen=True, kw_only=True)
class SymbioticTiresias(Tiresias):
    """Its `dlas-gpu`, with three queues."""

    queues: int = 3
    thresholds: tuple[float, ...] = (3_250.0, 7_200.0)

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        plan = super().plan(trace, cluster)
        policy = Ranking(rank=_rank, wake=_wake, preemptive=True, every_event=True)
        return replace(plan, scheduling=policy, placement=_BY_COUNT, workload=_FREE)


@dataclass(frozen=True, kw_only=True)
class SymbioticFIFO(FIFO):
    """Its `fjf`: later jobs may start while an earlier one does not fit."""

    overtake: bool = True
    placement: str = "count"


@dataclass(frozen=True, kw_only=True)
class SymbioticSRTF(SRTF):
    """Its `shortest-gpu`: the least remaining GPU time first."""

    by_gpu_time: bool = True

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        return replace(super().plan(trace, cluster), placement=_BY_COUNT, workload=_FREE)

"""Lucid's simulator: time in whole seconds, the rest of a multi-node job on the emptiest node, and its own order among equals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autosched.kernel.attained import BY_SERVICE, QUEUES, THRESHOLD_MARGIN_S, THRESHOLDS, attained
from autosched.kernel.jit import jit, rank, wake
from autosched.kernel.records import RUNNING, PolicyView, Records, Vector
from autosched.kernel.remaining import order_by_remaining
from autosched.schedulers.fifo import FIFO
from autosched.schedulers.lucid import Lucid
from autosched.schedulers.qssf import QSSF
from autosched.schedulers.sjf import SJF
from autosched.schedulers.srtf import SRTF
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import FixedOrder, Gate, JobModel, Ranking, SchedulePlan
from autosched.sim.trace import Trace

_IN_TICKS = JobModel(preemption_cost_s=((8, 40.0), (None, 60.0)), tick_s=1.0)
_LAST = 1e15  # above every place in a list


def _placed(plan: SchedulePlan) -> SchedulePlan:
    return replace(plan, placement=replace(plan.placement, remainder_to_emptiest=True))


@rank
def _rank_by_remaining(view: PolicyView) -> None:
    """Least remaining time first; equals: pending before running, each in order of entry."""
    order_by_remaining(view)
    job, active, tie = view.job, view.active, view.tie
    for i in range(len(active)):
        j = active[i]
        tie[i] = job[j].listed + (_LAST if job[j].status == RUNNING else 0.0)


@jit
def _queue_of(job: Records, j: int, now: float, params: Vector) -> int:
    """The queue of a job; it leaves one only above the threshold, not at it."""
    value = attained(job, j, now, params)
    queue = 0
    while queue < params[QUEUES] - 1 and value > params[THRESHOLDS + queue]:
        queue += 1
    return queue


@rank
def _rank_by_attained(view: PolicyView) -> None:
    """Queue by queue; inside a queue by second of arrival, then running before pending, each in order of entry."""
    job, active, params, key, tie = view.job, view.active, view.params, view.key, view.tie
    for i in range(len(active)):
        j = active[i]
        queue = _queue_of(job, j, view.now, params)
        job[j].queue = queue
        key[i] = queue * 1e12 + job[j].submit_s
        tie[i] = job[j].listed + (0.0 if job[j].status == RUNNING else _LAST)


@wake
def _wake_by_attained(view: PolicyView) -> float:
    """The next crossing of a threshold by a running job."""
    job, now, params = view.job, view.now, view.params
    due = np.inf
    for j in view.active:
        queue = _queue_of(job, j, now, params)
        if job[j].status == RUNNING and queue < params[QUEUES] - 1:
            ahead = params[THRESHOLDS + queue] - attained(job, j, now, params)
            if params[BY_SERVICE] > 0:
                ahead /= job[j].gpus
            due = min(due, now + max(ahead, THRESHOLD_MARGIN_S))
    return due


class LucidFIFO(FIFO):
    """FIFO as Lucid simulates it."""

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        return _placed(super().plan(trace, cluster))


class LucidSJF(SJF):
    """SJF as Lucid simulates it."""

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        return _placed(super().plan(trace, cluster))


class LucidQSSF(QSSF):
    """QSSF as Lucid simulates it: jobs that arrive while nobody waits are tried by size, whatever their estimates."""

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        plan = super().plan(trace, cluster)
        return _placed(replace(plan, scheduling=FixedOrder(tie=trace.gpus, newcomers_by=trace.gpus)))


class LucidSRTF(SRTF):
    """SRTF as Lucid simulates it: it decides every second."""

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        plan = self.ranked()
        assert isinstance(plan.scheduling, Ranking)
        return _placed(replace(plan, scheduling=replace(plan.scheduling, rank=_rank_by_remaining, round_s=1.0), workload=_IN_TICKS))


@dataclass(frozen=True, kw_only=True)
class LucidTiresias(Tiresias):
    """Tiresias as Lucid simulates it.

    Attributes:
        round_offset_s: On the trace's clock, a moment at which a round falls.
    """

    round_offset_s: float = 0.0

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        plan = super().plan(trace, cluster)
        assert isinstance(plan.scheduling, Ranking)
        policy = replace(plan.scheduling, rank=_rank_by_attained, wake=_wake_by_attained, round_offset_s=self.round_offset_s)
        return _placed(replace(plan, scheduling=policy, workload=_IN_TICKS))


@dataclass(frozen=True, kw_only=True)
class LucidLucid(Lucid):
    """Lucid by its own simulator: jobs queue while they are profiled, and of a packed pair only the one that started first regains
    full speed.

    Attributes:
        clock_zero_s: On the trace's clock, the moment from which periodic checks are counted.
    """

    clock_zero_s: float = 0.0

    def gate(self, cluster: Cluster, origin: float) -> Gate | None:
        profiler = super().gate(cluster, origin)
        return replace(profiler, ahead=True) if profiler else None

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        return _placed(super().plan(trace, cluster))

    def profiler_options(self, node_gpus: int, origin: float) -> Records:
        options = super().profiler_options(node_gpus, origin)
        options["clock_zero_s"] += self.clock_zero_s
        options["tick_s"] = 1.0
        return options

    def settings(self, cluster: Cluster) -> Records:
        settings = super().settings(cluster)
        settings["ticks"], settings["restore"], settings["clock_zero_s"] = 1.0, 0.0, self.clock_zero_s
        return settings

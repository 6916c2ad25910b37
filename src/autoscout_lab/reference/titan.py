"""Titan's simulator of Themis: its formula of fairness, and placement on any mix of nodes as long as they are the fewest."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autosched.kernel.fairness import LAST, order_within_leases
from autosched.kernel.jit import jit, rank, wake
from autosched.kernel.records import RUNNING, PolicyView, Records
from autosched.kernel.state import executed_by, remaining_at
from autosched.schedulers.themis import Themis
from autosched.sim.cluster import Cluster
from autosched.sim.scheduler import Ranking, SchedulePlan
from autosched.sim.trace import Trace


@jit
def _rho(job: Records, j: int, now: float, capacity: float, running: float) -> float:
    """Its finish-time fairness, in which the number of jobs is twice the number of running ones."""
    deserved = job[j].deserved
    if deserved == 0:
        return 1.0
    gpus = job[j].gpus
    share = max(1.0, np.floor(min(capacity / (2.0 * running + 1e-3), gpus)))
    left = remaining_at(job, j, now)
    ran = executed_by(job, j, now)
    stayed = now - job[j].submit_s
    served = ran * gpus
    alone = ran * (deserved / (served + 1e-3)) + (stayed - ran) + left * gpus / share
    together = stayed + left * (served / (deserved + 1e-3))
    return together / alone


@rank
def _rank(view: PolicyView) -> None:
    """The worst treated first, by its formula; what jobs deserve follows from the jobs present now."""
    job, active, key, memory = view.job, view.active, view.key, view.memory
    now, capacity = view.now, view.cluster.capacity
    n = len(active)
    running = 0.0
    for j in active:
        if job[j].status == RUNNING:
            running += 1.0
    share = capacity / (n + 1e-3)
    for i in range(n):
        j = active[i]
        job[j].deserved += min(share, job[j].gpus) * (now - max(memory[LAST], job[j].submit_s))
        key[i] = _rho(job, j, now, capacity, running)
    memory[LAST] = now
    order_within_leases(view)


@wake
def _wake(view: PolicyView) -> float:
    """Every round while there are jobs: it adds up what they deserve round by round, so that none may be left out."""
    return view.now + view.cluster.round_s if len(view.active) > 0 else np.inf


@dataclass(frozen=True, kw_only=True)
class TitanThemis(Themis):
    """Themis as Titan simulates it.

    Attributes:
        round_offset_s: On the trace's clock, a moment at which a round falls.
    """

    fairness: float = 0.2
    round_offset_s: float = 0.0

    def plan(self, trace: Trace, cluster: Cluster) -> SchedulePlan:
        plan = super().plan(trace, cluster)
        assert isinstance(plan.scheduling, Ranking)
        return replace(
            plan,
            scheduling=replace(plan.scheduling, rank=_rank, wake=_wake, round_offset_s=self.round_offset_s),
            placement=replace(plan.placement, rule="fewest"),
        )

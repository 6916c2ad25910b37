"""Run a scheduler on a trace and a cluster, from beginning to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autosched.sim.cluster import Cluster
from autosched.sim.result import Result
from autosched.sim.scheduler import Scheduler
from autosched.sim.session import Session
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another configuration, or another scheduler, takes over at a moment of the trace's clock."""

    at_s: float
    scheduler: Scheduler


@dataclass(frozen=True, kw_only=True)
class Run:
    """Circumstances of a simulation.

    Attributes:
        until_s: Stop before the first thing that happens at this moment of the trace's clock or later; jobs that are still there count as
            unfinished.
        snapshot: Jobs that are already in the system, some of them running.
        changes: Later configurations, in order of time.
        log: Keep every change of GPUs, for timelines and checks.
        most_decisions: Give up after as many decisions in one virtual cluster; 0: never.
    """

    until_s: float = np.inf
    snapshot: Snapshot | None = None
    changes: Sequence[Change] = field(default_factory=tuple)
    log: bool = False
    most_decisions: float = 0.0


def simulate(trace: Trace, cluster: Cluster, scheduler: Scheduler, run: Run | None = None) -> Result:
    """What happens to every job: one `Session` from beginning to end.

    Deterministic: equal arguments give equal results, bit for bit.

    Raises:
        ConfigError: jobs that can never run here (too large, unknown virtual cluster or GPU type), all at once.
    """
    run = run or Run()
    session = Session(trace, cluster, scheduler, snapshot=run.snapshot, log=run.log)
    for change in sorted(run.changes, key=lambda change: change.at_s):
        if change.at_s >= run.until_s:
            break
        session.step(max(change.at_s, session.at_s), most_decisions=run.most_decisions)
        session.reconfigure(change.scheduler)
    session.step(run.until_s, most_decisions=run.most_decisions)
    return session.result()

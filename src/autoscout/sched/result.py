"""Result: what happened to every job of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autoscout.sched.cluster import Cluster
from autoscout.sched.kernel import records
from autoscout.sched.kernel.records import Records, Table
from autoscout.sched.scheduler import Admission
from autoscout.sched.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Result:
    """Columns in the order of the trace; times on the trace's clock, not-a-number where it never happened.

    Attributes:
        trace: The jobs.
        cluster: Where they ran.
        start_s: First start.
        end_s: End.
        executed_s: Seconds run, restarts included.
        remaining_s: Work left for jobs that did not end.
        preemptions: Times each lost its GPUs.
        nodes: Nodes of the last allocation of each.
        running: Who held GPUs when the simulation was stopped.
        until_s: When it was stopped; infinite: when all was done.
        extra: Further columns that only some schedulers give.
        log: Rows of (time, job number, node, GPUs taken or, negative, given back), node -1 where nodes do not matter;
            nodes are numbered through all virtual clusters.
    """

    trace: Trace
    cluster: Cluster
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    executed_s: NDArray[np.float64]
    remaining_s: NDArray[np.float64]
    preemptions: NDArray[np.int64]
    nodes: NDArray[np.int64]
    running: NDArray[np.bool_]
    until_s: float = np.inf
    extra: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    logs: list[Table] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=lambda: {"decisions": 0.0, "idle_while_waiting_gpu_s": 0.0})

    @classmethod
    def empty(cls, trace: Trace, cluster: Cluster, until_s: float = np.inf) -> Result:
        def nothing() -> NDArray[np.float64]:
            return np.full(len(trace), np.nan)

        return cls(
            trace=trace,
            cluster=cluster,
            start_s=nothing(),
            end_s=nothing(),
            executed_s=np.zeros(len(trace)),
            remaining_s=np.zeros(len(trace)),
            preemptions=np.zeros(len(trace), np.int64),
            nodes=np.zeros(len(trace), np.int64),
            running=np.zeros(len(trace), bool),
            until_s=until_s,
        )

    def store(self, index: NDArray[np.int64], table: Records, log: Table, decisions: int, origin: float, vc: str) -> None:
        """Take over the outcome of one virtual cluster; only the engine calls this."""
        for column, name, happened in (
            (self.start_s, "start_s", table["start_s"] >= 0),
            (self.end_s, "end_s", table["status"] == records.ENDED),
        ):
            column[index[happened]] = table[name][happened] + origin
        self.executed_s[index] = table["executed_s"]
        self.remaining_s[index] = table["remaining_s"]
        self.preemptions[index] = table["preemptions"]
        self.nodes[index] = table["nodes"]
        self.running[index] = table["status"] == records.RUNNING
        self.counters["decisions"] += decisions
        if len(log):
            moved = log.copy()
            moved[:, records.LOG_TIME] += origin
            moved[:, records.LOG_JOB] = index[log[:, records.LOG_JOB].astype(np.int64)]
            before = 0
            for group in self.cluster.groups:
                if group.vc == vc:
                    break
                before += group.nodes
            moved[:, records.LOG_NODE] += np.where(log[:, records.LOG_NODE] >= 0, before, 0)
            self.logs.append(moved)

    def admitted(self, admission: Admission) -> None:
        """Take over what happened before the queues; only the engine calls this."""
        done = np.isfinite(admission.end_s)
        self.start_s[done], self.end_s[done] = admission.start_s[done], admission.end_s[done]
        self.executed_s[done] = self.trace.duration_s[done]
        self.nodes[done] = 1
        self.extra.update(admission.extra)

    def more(self, index: NDArray[np.int64], extra: Mapping[str, NDArray[np.float64]]) -> None:
        """Take over further columns of one virtual cluster; only the engine calls this."""
        for name, column in extra.items():
            self.extra.setdefault(name, np.full(len(self.trace), np.nan))[index] = column

    @property
    def ended(self) -> NDArray[np.bool_]:
        return np.isfinite(self.end_s)

    @property
    def endless(self) -> str:
        """That jobs never end, in words; empty when all do, or when the simulation was to stop before."""
        left = int((~self.ended).sum())
        if not left or np.isfinite(self.until_s):
            return ""
        return f"{left:,} of {len(self.trace):,} jobs never end: nothing starts them, or restarts cost more than is done between them"

    @property
    def jct_s(self) -> NDArray[np.float64]:
        """Completion time of each job that ended: from arrival to end."""
        return self.end_s - self.trace.submit_s

    @property
    def log(self) -> Table:
        """All changes of GPUs in order of time."""
        if not self.logs:
            return np.zeros((0, records.LOG_COLUMNS))
        rows = np.concatenate(self.logs)
        return rows[np.argsort(rows[:, records.LOG_TIME], kind="stable")]

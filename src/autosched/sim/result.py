"""Result: what happened to every job of a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autosched.kernel import records
from autosched.kernel.records import Table
from autosched.sim.cluster import Cluster
from autosched.sim.part import Part
from autosched.sim.profiler_gate import finished
from autosched.sim.trace import Trace

if TYPE_CHECKING:
    from autosched.sim.snapshot import Snapshot


@dataclass(frozen=True, kw_only=True)
class Result:
    """Columns in the order of the trace; times on the trace's clock, NaN where it never happened.

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
        before_s: Seconds of `executed_s` that each had run when the simulation began.
        begin_s: When it began.
        until_s: When it was stopped; infinite: when all was done.
        extra: Further columns that only some schedulers give.
        log: Rows of (time, job number, node, GPUs taken or, negative, given back), node -1 where nodes do not matter;
            nodes are numbered through all virtual clusters.
        state: Gives the whole state at the end of a simulation that was stopped.
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
    before_s: NDArray[np.float64]
    begin_s: float
    until_s: float = np.inf
    extra: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    logs: list[Table] = field(default_factory=list)
    state: Callable[[], Snapshot] | None = None
    counters: dict[str, float] = field(
        default_factory=lambda: {"decisions": 0.0, "idle_while_waiting_gpu_s": 0.0, "promotions": 0.0, "expiries": 0.0}
    )

    @classmethod
    def empty(cls, trace: Trace, cluster: Cluster, begin_s: float, until_s: float = np.inf) -> Result:
        def nothing() -> NDArray[np.float64]:
            return np.full(len(trace), np.nan)

        return cls(
            trace=trace,
            cluster=cluster,
            start_s=nothing(),
            end_s=nothing(),
            executed_s=np.zeros(len(trace)),
            remaining_s=trace.duration_s.astype(np.float64),
            preemptions=np.zeros(len(trace), np.int64),
            nodes=np.zeros(len(trace), np.int64),
            running=np.zeros(len(trace), bool),
            before_s=np.zeros(len(trace)),
            begin_s=begin_s,
            until_s=until_s,
        )

    def store(self, part: Part, at_s: float) -> None:
        """Take over what has happened in one virtual cluster; only a session calls this.

        Args:
            part: Its state.
            at_s: The moment up to which jobs that run have run; infinite: nobody runs any more.
        """
        table, rows = part.job, part.rows
        started, over = table["start_s"] >= 0, table["status"] == records.ENDED
        self.start_s[rows[started]] = table["start_s"][started] + part.origin_s
        self.end_s[rows[over]] = table["end_s"][over] + part.origin_s
        running = table["status"] == records.RUNNING
        done = running & (table["finish_s"] < at_s - part.origin_s) & np.isfinite(at_s)  # and gives its GPUs back at the next round
        self.end_s[rows[done]] = table["finish_s"][done] + part.origin_s
        executed, remaining = table["executed_s"].copy(), table["remaining_s"].copy()
        if np.isfinite(at_s):
            rate = table["rate"][running]
            ran = np.minimum(at_s - part.origin_s - table["since_s"][running], remaining[running] / rate)
            executed[running] += ran
            left = remaining[running] - ran * rate
            remaining[running] = np.maximum(left, 0.0)  # at an odd rate the product is a little more than what was left
        remaining[done] = 0.0
        self.executed_s[rows], self.remaining_s[rows] = executed, remaining
        self.preemptions[rows], self.nodes[rows] = table["preemptions"], table["nodes"]
        self.running[rows] = running & ~done
        counted = part.cluster[0]
        for name in ("decisions", "promotions", "expiries"):
            self.counters[name] += float(counted[name])
        self.counters["idle_while_waiting_gpu_s"] += part.idle_gpu_s(at_s)
        if "packed_at_s" in (part.own.dtype.names or ()):
            packed = part.own["packed_at_s"]
            column = self.extra.setdefault("packed_at_s", np.full(len(self.trace), np.nan))
            column[rows] = np.where(packed >= 0, packed + part.origin_s, np.nan)

    def admitted(self, profiler: Part) -> None:
        """Take over who was done before it reached a queue; only a session calls this."""
        done = finished(profiler)
        rows = profiler.rows[done]
        self.start_s[rows], self.end_s[rows] = (
            profiler.job["start_s"][done] + profiler.origin_s,
            profiler.job["end_s"][done] + profiler.origin_s,
        )
        self.executed_s[rows] = self.trace.duration_s[rows]
        self.remaining_s[rows] = 0.0
        self.nodes[rows] = 1

    def only(self, chosen: NDArray[np.bool_], log: Table) -> Result:
        """The jobs where `chosen`, with a log of their own; counters are of all."""
        index = np.flatnonzero(chosen)
        columns = ("start_s", "end_s", "executed_s", "remaining_s", "preemptions", "nodes", "running", "before_s")
        return replace(
            self,
            trace=self.trace.take(index),
            **{name: getattr(self, name)[index] for name in columns},
            extra={name: column[index] for name, column in self.extra.items()},
            logs=[log] if len(log) else [],
        )

    @property
    def weights(self) -> NDArray[np.float64]:
        """How many jobs each stands for: the column `weight` of the trace, else one."""
        weights: NDArray[np.float64] = self.trace.extra.get("weight", np.ones(len(self.trace)))
        return weights

    @property
    def ended(self) -> NDArray[np.bool_]:
        return np.isfinite(self.end_s)

    @property
    def endless(self) -> str:
        """That jobs never end, in words; empty when all do, or when the simulation was to stop before."""
        unfinished = int((~self.ended).sum())
        if not unfinished or np.isfinite(self.until_s):
            return ""
        return f"{unfinished:,} of {len(self.trace):,} jobs never end: nothing starts them, or restarts cost more than is done between them"

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

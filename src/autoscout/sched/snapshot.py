"""Snapshot: jobs that are already in a cluster when a simulation begins."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autoscout.core.errors import ConfigError, Fault
from autoscout.sched.kernel import records
from autoscout.sched.kernel.records import Records
from autoscout.sched.result import Result
from autoscout.sched.trace import Labels, Trace


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Unfinished jobs at a moment.

    Attributes:
        at_s: The moment, on the trace's clock; the simulation begins here.
        jobs: The unfinished jobs; their `submit_s` is in the past, their `duration_s` is their whole work.
        remaining_s: Work each still has.
        executed_s: Seconds each has run.
        running: Who holds GPUs now.
        home: Node each runs on, counted inside its virtual cluster; -1: several, or not known. None: nothing is known, and running
            jobs are placed anew.
    """

    at_s: float
    jobs: Trace
    remaining_s: NDArray[np.float64]
    executed_s: NDArray[np.float64]
    running: NDArray[np.bool_]
    home: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        late = self.jobs.submit_s > self.at_s
        if late.any():
            raise ConfigError(
                Fault(
                    where="snapshot",
                    field="submit_s",
                    rule=f"{int(late.sum())} jobs arrive after the moment of the snapshot",
                    value=f"{self.at_s:g}",
                )
            )

    @classmethod
    def of(cls, result: Result) -> Snapshot:
        """The unfinished jobs of a simulation that was stopped at a moment (`Run.until_s`); with a log, also where they run."""
        if not np.isfinite(result.until_s):
            raise ConfigError(Fault(where="snapshot", rule="needs a simulation that was stopped at a moment", fix="Run(until_s=...)"))
        left = np.flatnonzero(~result.ended & (result.trace.submit_s <= result.until_s))
        return cls(
            at_s=result.until_s,
            jobs=result.trace.take(left),
            remaining_s=result.remaining_s[left],
            executed_s=result.executed_s[left],
            running=result.running[left],
            home=_homes(result)[left] if len(result.log) else None,
        )

    def joined(self, trace: Trace) -> Trace:
        """The unfinished jobs followed by those of `trace` that arrive at or after the moment."""
        if len(trace) and trace.submit_s[0] < self.at_s:
            raise ConfigError(
                Fault(
                    where="snapshot",
                    field="at_s",
                    value=f"{self.at_s:g}",
                    rule=f"the clock would go backwards: the trace has jobs that arrive before, from {trace.submit_s[0]:g}",
                    fix="Slice the trace at the moment of the snapshot",
                )
            )
        return concatenate(self.jobs, trace)

    def enter(self, table: Records, index: NDArray[np.int64]) -> None:
        """Write the state of these jobs into records of jobs that are rows `index` of the joined trace."""
        mine = np.flatnonzero(index < len(self.jobs))
        rows = index[mine]
        table["remaining_s"][mine] = self.remaining_s[rows]
        table["executed_s"][mine] = self.executed_s[rows]
        table["start_s"][mine[self.executed_s[rows] > 0]] = 0.0  # when they first started is not known here
        table["status"][mine[self.running[rows]]] = records.RUNNING
        if self.home is not None:
            table["home"][mine] = self.home[rows]


def _homes(result: Result) -> NDArray[np.int64]:
    """The node of every running job that is on one, by adding up what the log says it took and gave back."""
    log = result.log
    nodes = sum(group.nodes for group in result.cluster.groups)
    place = log[:, records.LOG_JOB].astype(np.int64) * nodes + log[:, records.LOG_NODE].astype(np.int64)
    known = log[:, records.LOG_NODE] >= 0
    spots, which = np.unique(place[known], return_inverse=True)
    held = np.bincount(which, weights=log[known, records.LOG_GPUS], minlength=len(spots))
    spots = spots[held > 1e-6]
    jobs, counts = np.unique(spots // nodes, return_counts=True)
    homes = np.full(len(result.trace), -1, np.int64)
    single = np.isin(spots // nodes, jobs[counts == 1])
    homes[spots[single] // nodes] = spots[single] % nodes
    before = 0
    for vc in result.cluster.vcs:
        if len(result.cluster.vcs) > 1:
            mine = (result.trace.vc.codes == result.trace.vc.code(vc)) & (homes >= 0)
            homes[mine] -= before
        before += sum(group.nodes for group in result.cluster.groups if group.vc == vc)
    return homes


def concatenate(first: Trace, second: Trace) -> Trace:
    """Two traces as one; extra columns that only one has are dropped."""

    def labels(one: Labels, other: Labels) -> Labels:
        names = tuple(dict.fromkeys((*one.names, *other.names)))
        place = {name: number for number, name in enumerate(names)}
        mine = np.asarray([place[name] for name in one.names], np.int64)
        theirs = np.asarray([place[name] for name in other.names], np.int64)
        return Labels(np.concatenate([mine[one.codes], theirs[other.codes]]), names)

    return Trace(
        job_id=np.concatenate([first.job_id, second.job_id]),
        submit_s=np.concatenate([first.submit_s, second.submit_s]),
        duration_s=np.concatenate([first.duration_s, second.duration_s]),
        gpus=np.concatenate([first.gpus, second.gpus]),
        user=labels(first.user, second.user),
        vc=labels(first.vc, second.vc),
        status=labels(first.status, second.status),
        name=labels(first.name, second.name),
        kind=labels(first.kind, second.kind),
        extra={key: np.concatenate([first.extra[key], second.extra[key]]) for key in first.extra.keys() & second.extra.keys()},
        source=second.source or first.source,
        filters=second.filters,
    )

"""Snapshot: a simulation or a real cluster at a moment, from which a simulation can begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from autosched.kernel import records
from autosched.kernel.records import Index, Records, Table, Vector
from autosched.sim.cluster import Cluster
from autosched.sim.part import Part
from autosched.sim.trace import Trace, concatenate, examples
from autoscout.core.errors import ConfigError, Fault

if TYPE_CHECKING:
    from autosched.sim.result import Result


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """Unfinished jobs at a moment: the whole state of a session, or what can be seen of a real cluster.

    Attributes:
        at_s: The moment, on the trace's clock; the simulation begins here.
        jobs: The unfinished jobs; their `submit_s` is in the past, their `duration_s` is their whole work.
        remaining_s: Work each still has.
        executed_s: Seconds each has run.
        running: Who holds GPUs now.
        where: Of a cluster that was looked at: rows of (job, node, GPUs), nodes numbered through the cluster, the rows of one job
            together. Running jobs that are not in it are placed anew.
        origin_s: The moment from which a session counts time.
        parts, profiler, lent, extra: The whole state of a session: that of each virtual cluster, of the profiler, which nodes that has, and
            columns of the result. `parts` is None for a cluster that was looked at.
    """

    at_s: float
    jobs: Trace
    remaining_s: NDArray[np.float64]
    executed_s: NDArray[np.float64]
    running: NDArray[np.bool_]
    where: Table = field(default_factory=lambda: np.empty((0, 3)))
    origin_s: float = np.nan
    parts: Mapping[str, Part] | None = None
    profiler: Part | None = None
    lent: tuple[tuple[str, int], ...] = ()
    extra: Mapping[str, Vector] = field(default_factory=dict)

    def __post_init__(self) -> None:
        faults = _faults(self)
        if faults:
            raise ConfigError(faults)
        if np.isnan(self.origin_s):
            first = float(self.jobs.submit_s.min(initial=self.at_s))
            object.__setattr__(self, "origin_s", float(np.floor(first)))

    @classmethod
    def of(cls, result: Result) -> Snapshot:
        """The whole state at the end of a simulation that was stopped at a moment (`Run.until_s`)."""
        if not np.isfinite(result.until_s) or result.state is None:
            raise ConfigError(Fault(where="snapshot", rule="needs a simulation that was stopped at a moment", fix="Run(until_s=...)"))
        return result.state()

    def joined(self, trace: Trace) -> Trace:
        """The unfinished jobs followed by those of `trace` that arrive at or after the moment."""
        if len(trace) and trace.submit_s[0] < self.at_s:
            raise ConfigError(
                Fault(
                    where="snapshot",
                    field="at_s",
                    value=f"{self.at_s:.15g}",
                    rule=f"the clock would go backwards: the trace has jobs that arrive before, from {trace.submit_s[0]:.15g}",
                    fix="Slice the trace at the moment of the snapshot",
                )
            )
        return concatenate(self.jobs, trace)

    def fits(self, cluster: Cluster) -> None:
        """Refuse another cluster than that of the snapshot.

        Raises:
            ConfigError: other virtual clusters or nodes.
        """
        parts = self.parts or {}
        sizes = {vc: [(int(gpus), int(kind)) for gpus, kind in cluster.nodes_of(vc).table()[["gpus", "kind"]]] for vc in cluster.vcs}
        mine: dict[str, list[tuple[int, int]]] = {}
        for vc, part in parts.items():
            nodes = part.node[: len(sizes.get(vc, ()))].copy()
            for name, number in self.lent:
                if name == vc and number < len(nodes) and self.profiler is not None:
                    nodes["gpus"][number] = self.profiler.node["gpus"][-1]
            mine[vc] = [(int(gpus), int(kind)) for gpus, kind in nodes[["gpus", "kind"]]]
        borrowed = any(len(part.node) > len(sizes.get(vc, ())) for vc, part in parts.items())  # nodes have come and gone
        if list(sizes) != list(mine) or (sizes != mine and not borrowed):
            rule = "is of another cluster: its virtual clusters or nodes differ"
            raise ConfigError(Fault(where="snapshot", field="cluster", rule=rule, fix="Use the cluster of the snapshot"))

    def with_remaining(self, sample: ArrayLike) -> Snapshot:
        """The same moment with other work left: what a predictor believes of each unfinished job.

        Raises:
            ConfigError: not one number per unfinished job, or some are no number or negative.
        """
        remaining_s = np.asarray(sample, np.float64)
        wrong = remaining_s.shape != (len(self.jobs),) or not bool(np.all(np.isfinite(remaining_s) & (remaining_s >= 0)))
        if wrong:
            rule = f"must be {len(self.jobs)} numbers that are not negative, one per unfinished job"
            raise ConfigError(Fault(where="with_remaining", value=f"shape {remaining_s.shape}", rule=rule))
        moved = np.abs(remaining_s - self.remaining_s) > 1e-9  # the others keep every bit of their state
        duration = np.where(moved, self.jobs.duration_s - self.remaining_s + remaining_s, self.jobs.duration_s)
        duration = np.maximum(duration, 0.0)
        jobs = replace(self.jobs, duration_s=duration)
        now = self.at_s - self.origin_s
        parts = (
            {vc: _with_remaining(part, remaining_s, moved, duration, now) for vc, part in self.parts.items()} if self.parts else self.parts
        )
        profiler = None
        if self.profiler is not None:
            profiler = self.profiler.only(np.ones(len(self.profiler.job), bool))
            job = profiler.job
            job["work_s"] = duration[profiler.rows]
            inside = (job["status"] == records.RUNNING) & moved[profiler.rows]
            job["finish_s"][inside] = np.maximum(now, job["start_s"][inside] + np.minimum(job["work_s"], job["remaining_s"])[inside])
        return replace(self, jobs=jobs, remaining_s=remaining_s, parts=parts, profiler=profiler)

    def enter(self, table: Records, rows: Index) -> None:
        """Write what was seen of jobs `rows` into their records."""
        table["remaining_s"], table["executed_s"] = self.remaining_s[rows], self.executed_s[rows]
        table["since_s"] = table["submit_s"]
        began = self.executed_s[rows] > 0
        table["start_s"][began] = np.maximum(table["submit_s"], self.at_s - self.origin_s - table["executed_s"])[began]
        table["status"] = np.where(self.running[rows], records.RUNNING, records.PENDING)

    def places(self, rows: Index, offset: int, nodes: int) -> Table:
        """Where jobs `rows` run, on `nodes` nodes from `offset` on, both numbered from 0."""
        new_number = np.full(len(self.jobs), -1.0)
        new_number[rows] = np.arange(len(rows))
        mine = self.where.copy()
        mine[:, 0] = new_number[self.where[:, 0].astype(np.int64)]
        mine[:, 1] -= offset
        inside = (mine[:, 0] >= 0) & (mine[:, 1] >= 0) & (mine[:, 1] < nodes)
        whole = ~np.isin(mine[:, 0], mine[~inside, 0])  # a job that is also elsewhere is placed anew
        return np.ascontiguousarray(mine[inside & whole])


def _with_remaining(part: Part, remaining_s: Vector, moved: NDArray[np.bool_], duration: Vector, now: float) -> Part:
    copy = part.only(np.ones(len(part.job), bool))
    job, rows = copy.job, copy.rows
    job["work_s"] = duration[rows]
    running = job["status"] == records.RUNNING
    waits = moved[rows] & ~running
    job["remaining_s"][waits] = remaining_s[rows][waits]
    runs = moved[rows] & running
    since, rate = job["since_s"][runs], job["rate"][runs]
    job["remaining_s"][runs] = remaining_s[rows][runs] + (now - since) * rate
    job["finish_s"][runs] = now + remaining_s[rows][runs] / rate + copy.options["tick_s"][0]
    present = copy.jobs_in_system
    copy.cluster["finish_s"] = job["finish_s"][present].min(initial=np.inf)
    return copy


def _faults(snapshot: Snapshot) -> list[Fault]:
    """All rules that a snapshot breaks, one fault each."""
    jobs = len(snapshot.jobs)
    faults: list[Fault] = []

    def fault(name: str, rule: str, value: str = "") -> None:
        faults.append(Fault(where="snapshot", field=name, rule=rule, value=value))

    if not np.isfinite(snapshot.at_s):
        fault("at_s", "must be a moment", f"{snapshot.at_s:g}")
    late = snapshot.jobs.submit_s > snapshot.at_s
    if late.any():
        fault("submit_s", f"{int(late.sum())} jobs arrive after the moment of the snapshot", f"{snapshot.at_s:g}")
    for name in ("remaining_s", "executed_s", "running"):
        column = np.asarray(getattr(snapshot, name))
        if column.shape != (jobs,):
            fault(name, f"must have {jobs} values, one per job", f"shape {column.shape}")
        elif name != "running":
            bad = ~np.isfinite(column) | (column < 0)
            if bad.any():
                fault(name, f"must be numbers that are not negative ({int(bad.sum())} are not)", examples(column[bad]))
    where = snapshot.where
    if where.ndim != 2 or where.shape[1] != 3 or not np.isfinite(where).all():
        fault("where", "must be rows of (job, node, GPUs)", f"shape {where.shape}")
    elif len(where):
        bad = (where[:, 0] < 0) | (where[:, 0] >= jobs) | (where[:, 1] < 0) | (where[:, 2] <= 0) | (where != np.floor(where)).any(axis=1)
        if bad.any():
            fault("where", f"{int(bad.sum())} rows name no job, no node or no GPUs", examples(where[bad].astype(np.str_)[:, 0]))
    return faults

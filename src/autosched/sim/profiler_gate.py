"""The gate of a profiler, which all jobs pass before they reach their virtual clusters, and its state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from autosched.kernel import records
from autosched.kernel.records import Allocations, Index, Log, Records, Vector
from autosched.sim.cluster import Cluster
from autosched.sim.part import Part, job_table
from autosched.sim.scheduler import Gate
from autosched.sim.trace import Trace

Leaving = list[tuple[Index, Vector]]
"""Numbers of jobs in the session's trace, and when they join their virtual clusters, on the session's clock."""


@dataclass
class ProfilerGate:
    """A gate and its state; a job that has left is ENDED there."""

    gate: Gate
    part: Part

    @classmethod
    def empty(cls, gate: Gate, now: float, origin_s: float) -> ProfilerGate:
        """Nobody is there. The last node is the one that may be borrowed."""
        nodes = Cluster.parse(f"{len(gate.nodes) + 1}x{gate.gpus}").table()
        nodes["free"][-1] = 0.0
        part = Part.empty("", nodes, now)
        part.origin_s = origin_s
        part.cluster["free_gpus"], part.cluster["now_s"] = nodes["free"].sum(), now
        part.params = _settings(gate)
        return cls(gate, part)

    @classmethod
    def resumed(cls, part: Part, nodes: tuple[tuple[str, int], ...]) -> ProfilerGate:
        """The state of a snapshot, whose gate is still to come."""
        copy = part.only(np.ones(len(part.job), bool))
        gpus = int(copy.node["gpus"][-1])
        settings = np.zeros(1)
        return cls(Gate(nodes=nodes, gpus=gpus, rest=Cluster.parse("1x1"), loop=_nobody, settings=settings), copy)

    def copy(self) -> ProfilerGate:
        return ProfilerGate(self.gate, self.part.only(np.ones(len(self.part.job), bool)))

    def change(self, gate: Gate, now: float) -> None:
        """Other settings on the same nodes."""
        settings = _settings(gate)
        if not np.array_equal(settings, self.part.params) and self.part.cluster["present"][0] > 0:
            self.part.cluster["woken_s"] = np.minimum(self.part.cluster["woken_s"], now)
        self.gate, self.part.params = gate, settings

    def queue(self, rows: Index, trace: Trace) -> None:
        """Jobs are to arrive here; those that waited for another profiler arrive at once."""
        jobs = trace.take(rows)
        table = job_table(jobs, jobs.submit_s, self.part.origin_s)
        table["submit_s"] = np.maximum(table["submit_s"], self.part.cluster["now_s"][0])
        table["kind"] = -1.0
        table["fewest"] = np.ceil(table["gpus"] / self.gate.gpus)
        self.part.add(rows, table)

    def run(self, until: float, parts: Mapping[str, Part]) -> Leaving:
        """Let everything happen that happens before `until`; returns who leaves. The virtual cluster that lends a node is told."""
        part = self.part
        options = _options(np.inf if self.gate.ahead else until)
        allocations = part.allocations()
        before = part.job["status"] == records.ENDED
        rows, filled = self.gate.loop(part, allocations, options)
        part.store_allocations(allocations)
        moves = rows[: filled[0]][:, [records.LOG_TIME, records.LOG_GPUS]]
        if len(moves) and self.gate.lender in parts:
            lender = parts[self.gate.lender]
            lender.moves = np.concatenate([lender.moves, moves * [1.0, -1.0]])
        leaving = (part.job["status"] == records.ENDED) & ~before & ~finished(part)
        return [(part.rows[leaving], (part.job["submit_s"] if self.gate.ahead else part.job["end_s"])[leaving])] if leaving.any() else []

    def empty_out(self, now: float) -> tuple[Leaving, Index]:
        """Everybody leaves at `now`: who is being profiled joins its queue; the others, who wait or are to come, are returned."""
        job = self.part.job
        inside = job["status"] == records.RUNNING
        outside = (job["status"] == records.ABSENT) | (job["status"] == records.PENDING)
        return [(self.part.rows[inside], np.full(int(inside.sum()), now))], self.part.rows[outside]

    def columns(self, jobs: int) -> dict[str, Vector]:
        """The profiler's columns, one row per job of the session; NaN until the job has been profiled."""
        part = self.part
        ended = part.job["status"] == records.ENDED
        entered = part.job["start_s"] >= 0
        values_by_name = {
            "profiled": np.where(ended | entered, entered, np.nan),
            "finished_in_profiler": np.where(ended | entered, finished(part), np.nan),
            "profiler_wait_s": np.where(entered, part.job["start_s"] - part.job["submit_s"], np.where(ended, 0.0, np.nan)),
        }
        columns = {}
        for name, values in values_by_name.items():
            columns[name] = np.full(jobs, np.nan)
            columns[name][part.rows] = values
        return columns


def finished(part: Part) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Which jobs were done when they left, and so are done altogether."""
    job = part.job
    done: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
        (job["status"] == records.ENDED) & (job["start_s"] >= 0) & (job["work_s"] <= job["remaining_s"])
    )
    return done


def _settings(gate: Gate) -> Vector:
    return np.ascontiguousarray(gate.settings).view(np.float64).copy()


def _options(until: float) -> Records:
    options = np.zeros(1, records.OPTIONS)
    options["placement"], options["remainder_to_emptiest"], options["until_s"] = records.PLACE_CONSOLIDATED, 1.0, until
    return options


def _nobody(part: Part, allocations: Allocations, options: Records) -> Log:  # noqa: ARG001
    raise AssertionError("a gate that is still to come lets nobody in")

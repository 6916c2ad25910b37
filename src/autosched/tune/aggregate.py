"""The trace aggregator: jobs that resemble each other become one, with the same GPU-seconds in all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Labels, Trace
from autosched.tune.futures import Future
from autoscout.core.errors import require

Vector = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Aggregator:
    """Which jobs resemble each other.

    Attributes:
        arrival_s: Jobs that come in the same span of this length.
        decades: Durations (or remaining times) in the same span of this length on a log10 scale.
        node_gpus: A group of jobs that fit on a node stays within one (of shares of a GPU, within a GPU); a group of larger ones within
            the largest job there is, because a job that nothing is large enough for would wait, and block others, as none of its
            members did.
    """

    arrival_s: float = 300.0
    decades: float = 0.25
    node_gpus: int = 8

    def __post_init__(self) -> None:
        rules = {
            "arrival_s": (self.arrival_s > 0, "must be above zero"),
            "decades": (self.decades > 0, "must be above zero"),
            "node_gpus": (self.node_gpus >= 1, "must be at least 1"),
        }
        require("aggregator", self, rules)

    def __call__(self, future: Future) -> Future:
        """The same future with fewer jobs; weights say how many each is."""
        arrivals, counts = self._arrivals(future.arrivals)
        start, weights = future.snapshot, [counts]
        if start is not None and len(start.jobs):
            start, present = self._unfinished(start)
            weights.insert(0, present)
        return replace(future, arrivals=arrivals, snapshot=start, weights=np.concatenate(weights))

    def _arrivals(self, jobs: Trace) -> tuple[Trace, Vector]:
        cells = np.stack([np.floor(jobs.submit_s / self.arrival_s), self._span(jobs.duration_s), jobs.gpus, *_same(jobs)])
        group = self._groups(cells, jobs.gpus)
        counts, gpus, duration = _merged(group, jobs.gpus, jobs.duration_s)
        submit = _means(group, jobs.submit_s)
        merged = jobs.take(_firsts(group))
        order = np.argsort(submit, kind="stable")
        names = np.char.add("group-", np.arange(len(counts)).astype(np.str_))
        merged = replace(merged, submit_s=submit, duration_s=duration, gpus=gpus, extra=_extra(group, jobs)).take(order)
        return replace(merged, job_id=names), counts[order]

    def _unfinished(self, start: Snapshot) -> tuple[Snapshot, Vector]:
        jobs = start.jobs
        cells = np.stack([start.running.astype(np.float64), self._span(start.remaining_s), jobs.gpus, *_same(jobs)])
        group = self._groups(cells, jobs.gpus)
        counts, gpus, remaining = _merged(group, jobs.gpus, start.remaining_s)
        executed, submit = _means(group, start.executed_s), _means(group, jobs.submit_s)
        _, _, done = _merged(group, jobs.gpus, jobs.duration_s - start.remaining_s)
        first = _firsts(group)
        order = np.argsort(submit, kind="stable")
        merged = replace(jobs.take(first), submit_s=submit, duration_s=remaining + done, gpus=gpus, extra=_extra(group, jobs)).take(order)
        names = np.char.add("left-", np.arange(len(counts)).astype(np.str_))
        snapshot = Snapshot(
            at_s=start.at_s,
            jobs=replace(merged, job_id=names, name=Labels.constant("", len(names))),
            remaining_s=remaining[order],
            executed_s=executed[order],
            running=start.running[first][order],
        )
        return snapshot, counts[order]

    def _span(self, seconds: Vector) -> Vector:
        return np.floor(np.log10(np.maximum(seconds, 1.0)) / self.decades)

    def _groups(self, cells: Vector, gpus: Vector) -> Rows:
        """A number for each job, from 0 without gaps; groups are cut where their GPUs would pass the limit."""
        if not len(gpus):
            return np.zeros(0, np.int64)
        cell = np.unique(cells, axis=1, return_inverse=True)[1].reshape(-1)
        order = np.argsort(cell, kind="stable")
        first = np.concatenate([[True], np.diff(cell[order]) != 0])
        before = np.cumsum(gpus[order]) - gpus[order]
        inside = before - np.repeat(before[first], np.diff(np.append(np.flatnonzero(first), len(order))))
        size = gpus[order]
        limit = np.where(size < 1, 1.0, np.where(size <= self.node_gpus, self.node_gpus, max(float(gpus.max()), 1.0)))
        # all jobs of a cell are of one size, so as many as fit the limit make a group
        turn = np.floor(inside / (np.maximum(1, np.floor(limit / size)) * size) + 1e-9)
        new = first | np.concatenate([[False], np.diff(turn) != 0])
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(new) - 1
        return group


def _same(jobs: Trace) -> list[Vector]:
    """What jobs of one group must share to run in the same place."""
    return [jobs.vc.codes.astype(np.float64), jobs.kind.codes.astype(np.float64)]


def _merged(group: Rows, gpus: Vector, seconds: Vector) -> tuple[Vector, Vector, Vector]:
    """Jobs and GPUs of each group, and the seconds that keep its GPU-seconds."""
    size = int(group.max(initial=-1)) + 1
    total: Vector = np.bincount(group, gpus, size).astype(np.float64)
    return np.bincount(group, minlength=size).astype(np.float64), _whole(total), np.bincount(group, gpus * seconds, size) / total


def _whole(gpus: Vector) -> Vector:
    """Sums of whole GPUs without the rounding of floats; shares of a GPU stay as they are."""
    near = np.round(gpus)
    return np.where(np.abs(gpus - near) < 1e-9, near, gpus)


def _means(group: Rows, values: Vector) -> Vector:
    means: Vector = np.bincount(group, values) / np.maximum(1, np.bincount(group))
    return means


def _firsts(group: Rows) -> Rows:
    return np.unique(group, return_index=True)[1].astype(np.int64)


def _extra(group: Rows, jobs: Trace) -> dict[str, Vector]:
    """Means of the further columns."""
    return {name: _means(group, column) for name, column in jobs.extra.items()}

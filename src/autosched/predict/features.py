"""What a predictor sees of a job at a moment: itself, the last arrivals, the last ends, and jobs like it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.sim.trace import Trace

Vector = NDArray[np.float64]
Rows = NDArray[np.int64]

RECENT = 5  # last arrivals and last ends that a row of features holds; the paper's k, which it does not give
SIMILAR_ENDS = 3  # last ends of the same user, and of the same virtual cluster and size
UNKNOWN = -1.0  # stands for a number that is not there
DAY_S = 86_400.0


@dataclass(frozen=True, eq=False)
class Repository:
    """Past jobs as they are known: when each came and when it ended.

    Attributes:
        jobs: In order of arrival.
        end_s: When each ended; infinite for those that have not.
    """

    jobs: Trace
    end_s: Vector

    @classmethod
    def unqueued(cls, trace: Trace) -> Repository:
        """As if every job had started when it came; a published trace says no more."""
        return cls(trace, trace.submit_s + trace.duration_s)


class Features:
    """Rows of features for any job of a repository at any moment; uses only what was known then.

    Args:
        known: The repository.
        with_user: Whether the user is a feature where the trace names users.
    """

    def __init__(self, history: Repository, *, with_user: bool = True) -> None:
        jobs = history.jobs
        self._known = history
        self._with_user = with_user and jobs.user.names != ("",)
        self._by_end = np.argsort(history.end_s, kind="stable")
        self._ends = history.end_s[self._by_end]
        size = np.unique(jobs.gpus, return_inverse=True)[1].reshape(-1)
        self._groups = [_Group(jobs.vc.codes * (int(size.max(initial=0)) + 1) + size, history)]
        if self._with_user:
            self._groups.append(_Group(jobs.user.codes, history))

    def rows(self, which: Rows, at_s: Vector, executed_s: Vector) -> Vector:
        """Features of jobs `which` at moments `at_s`, when each had run `executed_s`."""
        jobs = self._known.jobs
        columns = [
            (at_s % DAY_S) / 3_600.0,
            np.floor(at_s / DAY_S) % 7,
            at_s - jobs.submit_s[which],
            executed_s,
            jobs.gpus[which],
            jobs.vc.codes[which].astype(np.float64),
        ]
        if self._with_user:
            columns.append(jobs.user.codes[which].astype(np.float64))
        parts = [np.stack(columns, axis=1), self._arrivals(at_s), self._completions(at_s)]
        parts += [group.durations(which, at_s) for group in self._groups]
        return np.concatenate(parts, axis=1)

    def _arrivals(self, at_s: Vector) -> Vector:
        """Age, time run so far and GPUs of the last arrivals."""
        jobs, end_s = self._known.jobs, self._known.end_s
        index = np.searchsorted(jobs.submit_s, at_s, side="right")[:, None] - 1 - np.arange(RECENT)
        there, row = index >= 0, np.maximum(index, 0)
        age = at_s[:, None] - jobs.submit_s[row]
        ran = np.minimum(age, np.maximum(0.0, end_s[row] - jobs.submit_s[row]))
        return _filled(there, age, ran, jobs.gpus[row])

    def _completions(self, at_s: Vector) -> Vector:
        """Age, time since the end, duration and GPUs of the last ends."""
        jobs = self._known.jobs
        index = np.searchsorted(self._ends, at_s, side="right")[:, None] - 1 - np.arange(RECENT)
        there, row = index >= 0, self._by_end[np.maximum(index, 0)]
        return _filled(
            there, at_s[:, None] - jobs.submit_s[row], at_s[:, None] - self._known.end_s[row], jobs.duration_s[row], jobs.gpus[row]
        )


class _Group:
    """The last ended jobs with the same label."""

    def __init__(self, label: Rows, history: Repository) -> None:
        self._label = label
        finite = history.end_s[np.isfinite(history.end_s)]
        self._zero = float(finite.min(initial=0.0)) if len(finite) else 0.0
        self._span = float(finite.max(initial=0.0)) - self._zero + 2.0
        late = np.where(np.isfinite(history.end_s), history.end_s - self._zero, self._span - 1.0)
        key = label * self._span + late
        self._order = np.argsort(key, kind="stable")
        self._key = key[self._order]
        self._duration = history.jobs.duration_s

    def durations(self, which: Rows, at_s: Vector) -> Vector:
        """Of the last ends with the label of each job before each moment."""
        moment = np.clip(at_s - self._zero, -1.0, self._span - 1.5)
        index = np.searchsorted(self._key, self._label[which] * self._span + moment, side="right")[:, None] - 1 - np.arange(SIMILAR_ENDS)
        row = self._order[np.maximum(index, 0)]
        there = (index >= 0) & (self._label[row] == self._label[which][:, None])
        return _filled(there, self._duration[row])


def _filled(there: NDArray[np.bool_], *parts: Vector) -> Vector:
    return np.concatenate([np.where(there, part, UNKNOWN) for part in parts], axis=1)

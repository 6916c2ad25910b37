"""What a configuration costs on a future or in a window: time in the system of all jobs, and whether they were treated alike."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autosched.arrivals.arrivals import DAY_S, HOUR_S
from autosched.sim.result import Result
from autosched.sim.trace import Labels, Trace
from autosched.tune.formulas import Formula, Jobs, quantile
from autoscout.core.task import Direction

Vector = NDArray[np.float64]

TOLERANCE = 1.1
"""A job counts as fairly treated up to this many times its ideal time: a round or a tick pushes thousands of short jobs just above 1."""
INTERMEDIATE = ("queue_s", "preemptions", "run_slowdown", "idle_gpus", "packed_share", "profiler_wait_s")
"""Metrics between settings and objectives; the last two only for schedulers that pack and profile."""
MEASURES = {
    **dict.fromkeys(("time_s", "queue_s", "long_queue_s", "small_queue_s", "large_queue_s", "longest_queue_s"), Direction.MINIMIZE),
    **dict.fromkeys(("preemptions", "run_slowdown", "idle_gpus", "profiler_wait_s", "worst_slowdown"), Direction.MINIMIZE),
    **dict.fromkeys(("fair_share", "packed_share"), Direction.MAXIMIZE),
}
"""Everything that may be a goal, or stand between settings and a goal -> which way is better."""
LONG = 0.95
"""Quantile of `long_queue_s`: how long the unluckiest twentieth of the jobs waits at least."""
SMALL_GPUS, LARGE_GPUS = 1.0, 8.0
"""GPUs up to which a job is small, and from which on it is large: less than a node, and a whole one."""
GROUP_JOBS = 5
"""Jobs below which a user is not judged: one unlucky job would decide."""
SIZES = (1.0, 7.0, 8.0)
"""GPUs up to which jobs are of one size."""
LEAST = 1e-3
"""Added to both sides of a gain in anything but time and fairness, which may be zero."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Before:
    """What had happened to the jobs of a result when the window began: nothing, for those that came later.

    Attributes:
        at_s: The moment.
        executed_s: Seconds each job of the result had run.
        remaining_s: Work that each still had.
        preemptions: How often each had been stopped.
        idle_gpu_s: GPU-seconds that had been idle while somebody waited.
    """

    at_s: float
    executed_s: Vector
    remaining_s: Vector
    preemptions: Vector
    idle_gpu_s: float = 0.0

    @classmethod
    def nothing(cls, result: Result, at_s: float) -> Before:
        jobs = len(result.trace)
        return cls(at_s=at_s, executed_s=np.zeros(jobs), remaining_s=result.trace.duration_s, preemptions=np.zeros(jobs))

    def with_later(self, result: Result) -> Before:
        """The same of the jobs of a later result, to whom nothing had happened where they were not there yet."""
        nothing, known = Before.nothing(result, self.at_s), len(self.executed_s)
        return replace(
            self,
            executed_s=np.concatenate([self.executed_s, nothing.executed_s[known:]]),
            remaining_s=np.concatenate([self.remaining_s, nothing.remaining_s[known:]]),
            preemptions=np.concatenate([self.preemptions, nothing.preemptions[known:]]),
        )


def measures(
    result: Result, before: Before, weights: Vector | None = None, *, fair: bool = False, formulas: Sequence[Formula] = ()
) -> dict[str, float]:
    """All metrics of a window that begins with `before` and ends when the run was stopped or all was done.

    `time_s` is the mean time in the system of all jobs that were there or came, inside the window; jobs that are left at its end are
    charged the work they still have, at full speed. So nobody gains by leaving old jobs behind. `work_s` is the part of it that no settings
    can change: the work that the jobs had.

    Args:
        result: The run.
        before: State when the window began.
        weights: How many jobs each job of the result is; None: one.
        fair: Whether to work out `fair_share`, which takes longer.
        formulas: Metrics that an operator defines; they may read those above.
    """
    submit = result.trace.submit_s
    last = result.until_s if np.isfinite(result.until_s) else float(np.nanmax(result.end_s)) if result.ended.any() else before.at_s
    present = (submit < last) & ~(result.ended & (result.end_s <= before.at_s))
    if not present.any():
        nothing = dict.fromkeys(("jobs", "work_s", *(name for name in MEASURES if name not in ("packed_share", "profiler_wait_s"))), 0.0)
        ones = dict.fromkeys(("worst_slowdown", "run_slowdown", "fair_share"), 1.0)
        return nothing | ones | {formula.name: 0.0 for formula in formulas}
    begin = np.maximum(submit, before.at_s)[present]
    ended = result.ended[present]
    until = np.where(ended, result.end_s[present], last)
    remaining_s = np.where(ended, 0.0, result.remaining_s[present])
    weight = np.ones(len(begin)) if weights is None else weights[present]
    spent = until - begin
    ran = result.executed_s[present] - before.executed_s[present]
    work = before.remaining_s[present] - remaining_s
    queued, gpus = np.maximum(0.0, spent - ran), result.trace.gpus[present]
    measurable = (work > 1.0) & (ran > 0)
    span = max(last - before.at_s, 1e-9)
    idle = result.counters.get("idle_while_waiting_gpu_s", 0.0) - before.idle_gpu_s
    metrics = {
        "jobs": float(weight.sum()),
        "time_s": float(np.average(spent + remaining_s, weights=weight)),
        "work_s": float(np.average(before.remaining_s[present], weights=weight)),
        "queue_s": float(np.average(queued, weights=weight)),
        "long_queue_s": quantile(queued, weight, LONG),
        "small_queue_s": _average(queued, weight, gpus <= SMALL_GPUS),
        "large_queue_s": _average(queued, weight, gpus >= LARGE_GPUS),
        "longest_queue_s": float(queued.max()),
        "worst_slowdown": _worst(groups(result.trace)[present], spent + remaining_s, before.remaining_s[present], weight),
        "preemptions": float(np.average(result.preemptions[present] - before.preemptions[present], weights=weight)),
        "run_slowdown": float(np.average(ran[measurable] / work[measurable], weights=weight[measurable])) if measurable.any() else 1.0,
        "idle_gpus": max(0.0, idle) / (result.cluster.gpus * span),
    }
    if "packed_at_s" in result.extra:
        metrics["packed_share"] = float(np.average(np.isfinite(result.extra["packed_at_s"][present]), weights=weight))
    if "profiler_wait_s" in result.extra:
        metrics["profiler_wait_s"] = float(np.average(np.nan_to_num(result.extra["profiler_wait_s"][present]), weights=weight))
    if fair:
        ideal = ideal_s(begin, before.remaining_s[present], result.trace.gpus[present], result.cluster.gpus)
        treated = (spent + remaining_s) <= TOLERANCE * np.maximum(ideal, 1.0)
        metrics["fair_share"] = float(np.average(treated, weights=weight))
    if formulas:
        time_s, work_s = spent + remaining_s, before.remaining_s[present]
        labels = {"user": result.trace.user, "vc": result.trace.vc, "kind": result.trace.kind}
        columns = {
            "wait": queued, "run": ran, "time": time_s, "work": work_s, "slowdown": time_s / np.maximum(work_s, 1.0), "gpus": gpus,
            "preemptions": result.preemptions[present] - before.preemptions[present], "hour": submit[present] % DAY_S / HOUR_S,
            **{name: _texts(each, present) for name, each in labels.items()},
        }  # fmt: skip
        jobs = Jobs(columns=columns, weights=weight, metrics=dict(metrics))
        metrics |= {formula.name: formula(jobs) for formula in formulas}
    return metrics


def gain(objective: str, before: float, after: float, direction: Direction | None = None) -> float:
    """How many times better a metric is after a change; the direction of one of `MEASURES` is known."""
    worse, better = (before, after) if (direction or MEASURES[objective]) is Direction.MINIMIZE else (after, before)
    if objective not in ("time_s", "fair_share"):
        worse, better = worse + LEAST, better + LEAST
    return worse / better if better > 0 else 1.0


def groups(trace: Trace) -> NDArray[np.int64]:
    """Whom jobs belong to: their users; where the trace names none, everybody whose jobs are of that size."""
    return trace.user.codes if len(trace.user.names) > 1 else np.searchsorted(SIZES, trace.gpus, side="left").astype(np.int64)


def _worst(group: NDArray[np.int64], spent_s: Vector, work_s: Vector, weights: Vector) -> float:
    """Of the group that is treated worst: how many times its work its jobs spend in the system, all of them together."""
    jobs, spent, work = (np.bincount(group, weights * values) for values in (np.ones(len(group)), spent_s, work_s))
    judged = (jobs >= GROUP_JOBS) & (work > 0)
    return float((spent[judged] / work[judged]).max()) if judged.any() else 1.0


def _average(values: Vector, weights: Vector, chosen: NDArray[np.bool_]) -> float:
    """Of some of the values; zero for none."""
    return float(np.average(values[chosen], weights=weights[chosen])) if chosen.any() else 0.0


def _texts(labels: Labels, chosen: NDArray[np.bool_]) -> NDArray[np.str_]:
    texts: NDArray[np.str_] = np.asarray(labels.names or ("",), np.str_)[labels.codes[chosen]]
    return texts


def ideal_s(submit_s: Vector, work_s: Vector, gpus: Vector, capacity: float) -> Vector:
    """How long each job would take if all were slowed alike: speed min(1, capacity / GPUs wanted by all who are there).

    It depends on the jobs and the cluster alone, not on who schedules. In virtual time, which passes at that speed, a job ends as long
    after its arrival as it has work.
    """
    order = np.argsort(submit_s, kind="stable")
    shares = np.zeros(len(submit_s))
    due: list[tuple[float, int]] = []  # virtual end and job of everybody who is there
    now = virtual = demand = 0.0
    index = 0
    while index < len(order) or due:
        speed = min(1.0, capacity / demand) if demand > capacity else 1.0
        arrival = float(submit_s[order[index]]) if index < len(order) else np.inf
        end = now + (due[0][0] - virtual) / speed if due else np.inf
        if arrival <= end:
            job = int(order[index])
            virtual += (arrival - now) * speed if due else 0.0
            now, index = arrival, index + 1
            heapq.heappush(due, (virtual + float(work_s[job]), job))
            demand += float(gpus[job])
        else:
            virtual, job = heapq.heappop(due)
            now = end
            demand -= float(gpus[job])
            shares[job] = now - float(submit_s[job])
    return shares

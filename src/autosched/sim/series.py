"""What a run was like over time: who was there, who waited, how many GPUs were used; at moments, and per interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autosched.kernel.records import LOG_GPUS, LOG_JOB, LOG_TIME
from autosched.sim.result import Result
from autoscout.core.errors import ConfigError, Fault

Vector = NDArray[np.float64]

HOUR_S = 3_600.0


@dataclass(frozen=True)
class StepFunction:
    """A number that changes at moments and stays as it is between them; zero before the first."""

    at_s: Vector
    level: Vector

    @classmethod
    def of(cls, at_s: Vector, change: Vector) -> StepFunction:
        """From changes, in any order."""
        order = np.argsort(at_s, kind="stable")
        return cls(at_s[order], np.cumsum(change[order]))

    def at(self, moments: Vector) -> Vector:
        """Its value right after each moment."""
        levels: Vector = np.concatenate([[0.0], self.level])[np.searchsorted(self.at_s, moments, side="right")]
        return levels

    def integral(self, moments: Vector) -> Vector:
        """Value x seconds from the beginning up to each moment."""
        if not len(self.at_s):
            return np.zeros(len(moments))
        total = np.concatenate([[0.0], np.cumsum(self.level[:-1] * np.diff(self.at_s))])
        position = np.searchsorted(self.at_s, moments, side="right") - 1
        index = np.maximum(position, 0)
        areas: Vector = np.where(position >= 0, total[index] + self.level[index] * (moments - self.at_s[index]), 0.0)
        return areas

    def means(self, edges: Vector) -> Vector:
        """Its mean between neighbouring edges."""
        means: Vector = np.diff(self.integral(edges)) / np.maximum(np.diff(edges), 1e-9)
        return means

    def most(self, edges: Vector) -> Vector:
        """The highest it gets between neighbouring edges."""
        inside = np.concatenate([self.at(edges[:-1]), self.level])
        bins = np.concatenate([np.arange(len(edges) - 1), np.searchsorted(edges, self.at_s, side="right") - 1])
        inside_edges = (bins >= 0) & (bins < len(edges) - 1)
        highest = np.full(len(edges) - 1, -np.inf)
        np.maximum.at(highest, bins[inside_edges], inside[inside_edges])
        return highest


@dataclass(frozen=True)
class JobSeries:
    """A run over time, with weights for jobs that stand for several.

    Attributes:
        present, demand: Jobs in the system, and the GPUs they want.
        waiting: Those of them that hold no GPUs.
        used: GPUs in use.
        stops_s: When each preemption happened.
    """

    present: StepFunction
    demand: StepFunction
    waiting: StepFunction
    used: StepFunction
    stops_s: Vector


def last_moment(result: Result) -> float:
    """When the run was stopped, or its last job ended."""
    if np.isfinite(result.until_s):
        return result.until_s
    return float(np.nanmax(result.end_s)) if result.ended.any() else float(result.trace.submit_s.max(initial=result.begin_s))


def job_series(result: Result, weights: Vector | None = None) -> JobSeries:
    """The run over time.

    Raises:
        ConfigError: jobs may have stopped and started again, and nobody kept a log.
    """
    weight = np.ones(len(result.trace)) if weights is None else weights
    arrive = np.maximum(result.trace.submit_s, result.begin_s)
    leave = np.where(result.ended, np.maximum(result.end_s, result.begin_s), np.inf)
    gpus = result.trace.gpus
    log = result.log.copy()
    log[:, LOG_TIME] = np.maximum(log[:, LOG_TIME], result.begin_s)
    if not len(log) and result.preemptions.any():
        fix = "Run(log=True), or Session(..., log=True)"
        raise ConfigError(Fault(where="metrics", rule="over time need a run with a log: some jobs were preempted", fix=fix))
    job = log[:, LOG_JOB].astype(np.int64)
    logged = np.zeros(len(result.trace), bool)
    logged[job] = True
    first = np.ones(len(log), bool)  # a job on several nodes has several rows
    order = np.lexsort((np.sign(log[:, LOG_GPUS]), log[:, LOG_TIME], job))
    repeated = (np.diff(job[order]) == 0) & (np.diff(log[order, LOG_TIME]) == 0) & (np.diff(np.sign(log[order, LOG_GPUS])) == 0)
    first[order[1:][repeated]] = False
    sign = np.sign(log[:, LOG_GPUS])
    # Who shares another job's GPUs, or ran on a profiler's, is not in the log, and is never preempted.
    alone = np.flatnonzero(~logged & np.isfinite(result.start_s))
    begun = np.maximum(result.start_s[alone], result.begin_s)
    held = np.bincount(job, weights=log[:, LOG_GPUS], minlength=len(result.trace))
    late = np.flatnonzero(result.ended & (held > 1e-9))  # ended, and its GPUs wait for the next round when the run was stopped
    moments = np.concatenate([log[first, LOG_TIME], begun, leave[alone], leave[late]])
    runs = np.concatenate([(sign * weight[job])[first], weight[alone], -weight[alone], -weight[late]])
    stays = np.isfinite(leave)
    present = (np.concatenate([arrive, leave[stays]]), np.concatenate([weight, -weight[stays]]))
    inside = np.isfinite(moments)
    waiting = (np.concatenate([present[0], moments[inside]]), np.concatenate([present[1], -runs[inside]]))
    without_log = np.flatnonzero(np.isfinite(result.start_s)) if not len(log) else np.empty(0, np.int64)
    begun = np.maximum(result.start_s[without_log], result.begin_s)
    used_at = np.concatenate([log[:, LOG_TIME], leave[late], begun, leave[without_log]])
    used = np.concatenate([log[:, LOG_GPUS], -held[late], gpus[without_log], -gpus[without_log]])
    finite = np.isfinite(used_at)
    stops = first & (sign < 0) & ~(np.abs(log[:, LOG_TIME] - leave[job]) <= 1e-5)
    return JobSeries(
        present=StepFunction.of(*present),
        demand=StepFunction.of(np.concatenate([arrive, leave[stays]]), np.concatenate([weight * gpus, -(weight * gpus)[stays]])),
        waiting=StepFunction.of(*waiting),
        used=StepFunction.of(used_at[finite], used[finite]),
        stops_s=np.sort(log[stops, LOG_TIME]),
    )


def timeline(result: Result, points: int = 1_000) -> dict[str, Vector]:
    """Jobs in the system and GPUs wanted at equally spaced moments; with a log also who waits and GPUs in use."""
    if not len(result.trace):
        return {"time_s": np.empty(0)}
    begin = max(result.begin_s, float(result.trace.submit_s[0])) if np.isfinite(result.begin_s) else float(result.trace.submit_s[0])
    at = np.linspace(begin, max(last_moment(result), begin), points)
    if len(result.log) or not result.preemptions.any():
        over = job_series(result)
        columns = {"time_s": at, "jobs": over.present.at(at), "waiting": over.waiting.at(at), "gpus_wanted": over.demand.at(at)}
        return columns | ({"gpus_used": over.used.at(at)} if len(result.log) else {})
    arrive, leave = np.maximum(result.trace.submit_s, result.begin_s), result.end_s[result.ended]
    gpus, gone = result.trace.gpus, result.trace.gpus[result.ended]
    jobs = StepFunction.of(np.concatenate([arrive, leave]), np.concatenate([np.ones(len(arrive)), -np.ones(len(leave))]))
    demand = StepFunction.of(np.concatenate([arrive, leave]), np.concatenate([gpus, -gone]))
    return {"time_s": at, "jobs": jobs.at(at), "gpus_wanted": demand.at(at)}


def series(result: Result, every_s: float = HOUR_S, *, begin_s: float | None = None, end_s: float | None = None) -> dict[str, Vector]:
    """The run per interval: one value for each of the equal intervals from `begin_s` to `end_s`, the last of which may be shorter.

    Columns: `from_s`; `arrivals`, `ended`, `preemptions` (counts); `mean_jobs`, `mean_waiting_jobs`, `most_waiting_jobs` (queue lengths);
    `mean_gpus_used`, `mean_gpus_wanted`; `mean_jct_s` of the jobs that ended in it, NaN where none did.
    """
    begin = result.begin_s if begin_s is None else begin_s
    end = last_moment(result) if end_s is None else end_s
    if not (np.isfinite(begin) and np.isfinite(end) and end > begin and every_s > 0) or (end - begin) / every_s > 1e7:
        rule = "needs an interval above zero, and an end after the beginning, at most ten million intervals apart"
        raise ConfigError(Fault(where="series", value=f"{begin:g} to {end:g} by {every_s:g}", rule=rule))
    edges = np.append(np.arange(begin, end - 1e-9 * every_s, every_s), end)
    over = job_series(result)
    weight = result.weights
    ended = result.ended
    count, _ = np.histogram(result.end_s[ended], bins=edges, weights=weight[ended])
    spent, _ = np.histogram(result.end_s[ended], bins=edges, weights=(weight * result.jct_s)[ended])
    return {
        "from_s": edges[:-1],
        "arrivals": np.histogram(result.trace.submit_s, bins=edges, weights=weight)[0],
        "ended": count,
        "preemptions": np.histogram(over.stops_s, bins=edges)[0].astype(np.float64),
        "mean_jobs": over.present.means(edges),
        "mean_waiting_jobs": over.waiting.means(edges),
        "most_waiting_jobs": over.waiting.most(edges),
        "mean_gpus_used": over.used.means(edges),
        "mean_gpus_wanted": over.demand.means(edges),
        "mean_jct_s": np.divide(spent, count, out=np.full(len(count), np.nan), where=count > 0),
    }

"""Metrics: one number per question about a simulated run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autoscout.sched.kernel.records import LOG_GPUS, LOG_TIME
from autoscout.sched.result import Result

TOLERANCE = 1.1
"""A job counts as fairly treated, forgivingly, up to this rho: a round or a tick pushes thousands of short jobs just above 1."""

METRICS = (
    "jobs", "ended",
    "mean_jct_s", "median_jct_s", "p90_jct_s", "p99_jct_s", "p999_jct_s", "gpu_weighted_jct_s",
    "mean_queue_s", "p90_queue_s", "p99_queue_s", "p999_queue_s", "mean_slowdown", "makespan_s",
    "utilisation", "load", "fragmentation", "preemptions", "preemptions_per_job", "gpus_per_job", "run_slowdown",
    "fair_share", "fair_share_forgiving", "mean_rho", "p99_rho", "packed_share", "profiler_wait_s",
)  # fmt: skip
"""All that `summary` may name; the last two only for schedulers that pack jobs and profile them."""
HIGHER_IS_BETTER = frozenset({"utilisation", "fair_share", "fair_share_forgiving"})

SIZES = ((0.0, 1.0, "up to 1"), (1.0, 7.0, "2-7"), (7.0, 8.0, "8"), (8.0, np.inf, "more than 8"))


def summary(result: Result, scored: NDArray[np.bool_] | None = None) -> dict[str, float]:
    """All metrics of a run; units in the names, seconds unless said otherwise.

    Args:
        result: The run.
        scored: Which jobs count; None: all. Jobs that did not end count with the time they have spent so far.
    """
    mask = np.ones(len(result.trace), bool) if scored is None else scored
    if not mask.any():
        return {"jobs": 0.0, "ended": 0.0}
    jct, queue = _spent_s(result)[mask], waiting_s(result)[mask]
    gpus, work = result.trace.gpus[mask], result.trace.duration_s[mask]
    first = float(result.trace.submit_s.min())
    last = float(np.nanmax(result.end_s)) if result.ended.any() else first
    span = max(last - first, 1e-9)
    served = float(np.dot(result.executed_s, result.trace.gpus))
    values = {
        "jobs": float(mask.sum()),
        "ended": float(result.ended[mask].sum()),
        "mean_jct_s": float(jct.mean()),
        "median_jct_s": float(np.median(jct)),
        **{f"p{name}_jct_s": float(np.percentile(jct, q)) for name, q in (("90", 90), ("99", 99), ("999", 99.9))},
        "gpu_weighted_jct_s": float(np.average(jct, weights=gpus)),
        "mean_queue_s": float(queue.mean()),
        **{f"p{name}_queue_s": float(np.percentile(queue, q)) for name, q in (("90", 90), ("99", 99), ("999", 99.9))},
        "mean_slowdown": float(np.mean(jct[work > 0] / work[work > 0])) if (work > 0).any() else 1.0,
        "makespan_s": last - first,
        "utilisation": served / (result.cluster.gpus * span),
        "load": float(np.dot(gpus, work)) / (result.cluster.gpus * span),
        "fragmentation": result.counters["idle_while_waiting_gpu_s"] / (result.cluster.gpus * span),
        "preemptions": float(result.preemptions[mask].sum()),
        "preemptions_per_job": float(result.preemptions[mask].mean()),
        "gpus_per_job": float(gpus.mean()),
        **_placement(result, mask),
        **fairness(result, mask),
    }
    return values


def _spent_s(result: Result) -> NDArray[np.float64]:
    """Completion times; for jobs that did not end the time until the last thing that happened."""
    if np.isfinite(result.until_s):
        last = result.until_s
    else:
        last = float(np.nanmax(result.end_s)) if result.ended.any() else float(result.trace.submit_s.max(initial=0.0))
    return np.where(result.ended, result.jct_s, np.maximum(0.0, last - result.trace.submit_s))


def waiting_s(result: Result) -> NDArray[np.float64]:
    """Time each job spent without GPUs."""
    return np.maximum(0.0, _spent_s(result) - result.executed_s)


def _placement(result: Result, mask: NDArray[np.bool_]) -> dict[str, float]:
    work = result.trace.duration_s[mask]
    ran = result.executed_s[mask]
    known = (work > 0) & (ran > 0) & result.ended[mask]
    values = {"run_slowdown": float(np.mean(ran[known] / work[known])) if known.any() else 1.0}
    if "packed_at_s" in result.extra:
        values["packed_share"] = float(np.isfinite(result.extra["packed_at_s"][mask]).mean())
    if "profiler_wait_s" in result.extra:
        values["profiler_wait_s"] = float(result.extra["profiler_wait_s"][mask].mean())
    return values


def rho(result: Result) -> NDArray[np.float64]:
    """Finish-time fairness of each ended job with work: JCT over work under its fair share; not-a-number for the others.

    The fair share is the inverse of the contention (GPUs wanted by all jobs in the system over capacity, at least 1), averaged over
    the job's life, in its own virtual cluster.
    """
    values = np.full(len(result.trace), np.nan)
    trace, cluster = result.trace, result.cluster
    for vc in cluster.vcs:
        mine = result.ended & (trace.duration_s > 0)
        inside = result.ended.copy()
        if len(cluster.vcs) > 1:
            inside &= trace.vc.codes == trace.vc.code(vc)
            mine &= inside
        if not mine.any():
            continue
        integral = _contention(trace.submit_s[inside], result.end_s[inside], trace.gpus[inside], cluster.part(vc).gpus)
        start, end = trace.submit_s[mine], result.end_s[mine]
        mean = (integral(end) - integral(start)) / np.maximum(end - start, 1e-9)
        values[mine] = (end - start) / (trace.duration_s[mine] * np.maximum(1.0, mean))
    return values


def _contention(
    submit: NDArray[np.float64], end: NDArray[np.float64], gpus: NDArray[np.float64], capacity: int
) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """The integral over time of max(1, demand / capacity), as a function of time."""
    moments = np.concatenate([submit, end])
    order = np.argsort(moments, kind="stable")
    at = moments[order]
    demand = np.cumsum(np.concatenate([gpus, -gpus])[order])
    level = np.maximum(1.0, demand / capacity)
    total = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(at))])

    def integral(time: NDArray[np.float64]) -> NDArray[np.float64]:
        place = np.clip(np.searchsorted(at, time, side="right") - 1, 0, len(at) - 1)
        found: NDArray[np.float64] = total[place] + level[place] * (time - at[place])
        return found

    return integral


def fairness(result: Result, mask: NDArray[np.bool_]) -> dict[str, float]:
    """Shares of fairly treated jobs, strict and forgiving, and how bad it gets."""
    values = rho(result)[mask]
    values = values[np.isfinite(values)]
    if not len(values):
        return {}
    return {
        "fair_share": float((values <= 1.0).mean()),
        "fair_share_forgiving": float((values <= TOLERANCE).mean()),
        "mean_rho": float(values.mean()),
        "p99_rho": float(np.percentile(values, 99)),
    }


def by_vc(result: Result) -> dict[str, dict[str, float]]:
    """The summary of each virtual cluster's jobs."""
    codes = result.trace.vc
    return {
        name or "all": summary(result, codes.codes == number) for number, name in enumerate(codes.names) if (codes.codes == number).any()
    }


def by_size(result: Result) -> dict[str, dict[str, float]]:
    """The summary of jobs by the GPUs they ask for."""
    gpus = result.trace.gpus
    groups = {label: (gpus > low) & (gpus <= high) for low, high, label in SIZES}
    return {label: summary(result, mask) for label, mask in groups.items() if mask.any()}


def timeline(result: Result, points: int = 1_000) -> dict[str, NDArray[np.float64]]:
    """GPUs in use and jobs in the system at equally spaced moments; use needs a run with a log, else it is left out."""
    trace = result.trace
    if not len(trace):
        return {"time_s": np.empty(0)}
    end = np.where(result.ended, result.end_s, np.nanmax(result.end_s) if result.ended.any() else trace.submit_s.max())
    at = np.linspace(trace.submit_s[0], end.max(), points)
    present = np.searchsorted(trace.submit_s, at, side="right") - np.searchsorted(np.sort(end), at, side="right")
    order_end = np.argsort(end)
    wanted = _steps(trace.submit_s, trace.gpus, at) - _steps(end[order_end], trace.gpus[order_end], at)
    found = {"time_s": at, "jobs": present.astype(np.float64), "gpus_wanted": wanted}
    log = result.log
    if len(log):
        found["gpus_used"] = _steps(log[:, LOG_TIME], log[:, LOG_GPUS], at)
    return found


def _steps(moments: NDArray[np.float64], amounts: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.float64]:
    total = np.concatenate([[0.0], np.cumsum(amounts)])
    found: NDArray[np.float64] = total[np.searchsorted(moments, at, side="right")]
    return found

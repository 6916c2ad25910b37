"""Metrics: one number per question about a simulated run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from autosched.sim.result import Result
from autosched.sim.series import JobSeries, job_series, last_moment
from autoscout.core.errors import ConfigError, Fault

TOLERANCE = 1.1
"""A job counts as fairly treated, forgivingly, up to this rho: a round or a tick pushes thousands of short jobs just above 1."""

METRICS = (
    "jobs", "ended",
    "mean_jct_s", "median_jct_s", "p90_jct_s", "p99_jct_s", "p999_jct_s", "gpu_weighted_jct_s", "charged_jct_s",
    "mean_queue_s", "p90_queue_s", "p99_queue_s", "p999_queue_s", "mean_slowdown", "makespan_s",
    "utilisation", "load", "fragmentation", "preemptions", "preemptions_per_job", "promotions", "lease_expiries", "gpus_per_job",
    "run_slowdown", "fair_share", "fair_share_forgiving", "mean_rho", "p99_rho", "packed_share", "profiler_wait_s",
)  # fmt: skip
"""All that `summary` may name; the last two only for schedulers that pack jobs and profile them."""
HIGHER_IS_BETTER = frozenset({"utilisation", "fair_share", "fair_share_forgiving"})

SIZES = ((0.0, 1.0, "up to 1"), (1.0, 7.0, "2-7"), (7.0, 8.0, "8"), (8.0, np.inf, "more than 8"))


def summary(result: Result, scored: NDArray[np.bool_] | None = None) -> dict[str, float]:
    """All metrics of a run, from its beginning to the moment it was stopped or the last job ended; seconds unless said otherwise.

    Jobs that did not end count with the time they have spent so far; `charged_jct_s` adds the work they still have. Jobs count as often as
    the column `weight` of the trace says (once without it), so that one may stand for several.

    Args:
        result: The run.
        scored: Which jobs count; None: all.
    """
    mask = np.ones(len(result.trace), bool) if scored is None else scored
    if not mask.any():
        return {"jobs": 0.0, "ended": 0.0}
    weight = result.weights[mask]
    spent = _spent_s(result)[mask]
    jct, queue = spent, waiting_s(result)[mask]
    gpus, work = result.trace.gpus[mask], result.trace.duration_s[mask]
    span = max(last_moment(result) - result.begin_s, 1e-9)
    served = float(np.dot((result.executed_s - result.before_s) * result.weights, result.trace.gpus))
    owed = np.where(result.ended, 0.0, result.remaining_s)[mask]
    real = work > 0
    values = {
        "jobs": float(weight.sum()),
        "ended": float(weight[result.ended[mask]].sum()),
        "mean_jct_s": _mean(jct, weight),
        "median_jct_s": percentile(jct, 50, weight),
        **{f"p{name}_jct_s": percentile(jct, q, weight) for name, q in _TAILS},
        "gpu_weighted_jct_s": _mean(jct, weight * gpus),
        "charged_jct_s": _mean(spent + owed, weight),
        "mean_queue_s": _mean(queue, weight),
        **{f"p{name}_queue_s": percentile(queue, q, weight) for name, q in _TAILS},
        "mean_slowdown": _mean((jct / np.where(real, work, 1.0))[real], weight[real]) if real.any() else 1.0,
        "makespan_s": last_moment(result) - result.begin_s,
        "utilisation": served / (result.cluster.gpus * span),
        "load": float(np.dot(gpus * weight, work)) / (result.cluster.gpus * span),
        "fragmentation": result.counters["idle_while_waiting_gpu_s"] / (result.cluster.gpus * span),
        "preemptions": float(result.preemptions[mask].sum()),
        "preemptions_per_job": _mean(result.preemptions[mask].astype(np.float64), weight),
        "promotions": result.counters["promotions"],
        "lease_expiries": result.counters["expiries"],
        "gpus_per_job": _mean(gpus, weight),
        **_placement(result, mask),
        **fairness(result, mask),
    }
    return values


_TAILS = (("90", 90.0), ("99", 99.0), ("999", 99.9))


def window(result: Result, begin_s: float, end_s: float) -> dict[str, float]:
    """What happened in [begin, end), whenever the jobs came and went.

    `jobs` were in the system in it; `arrivals`, `ended` and `preemptions` fall into it; completion times are of the jobs that ended in it;
    waiting, utilisation and fragmentation are of the window alone. `charged_jct_s` is the time in the system, from arrival, of all jobs
    of the window: to their ends, or to the end of the window.

    Raises:
        ConfigError: the window is empty or not inside the run, or jobs were preempted and the run has no log.
    """
    if not (result.begin_s <= begin_s < end_s <= result.until_s + 1e-6 and np.isfinite(end_s)):
        rule = f"must be a span of the run, which goes from {result.begin_s:.15g} to {result.until_s:.15g}"
        raise ConfigError(Fault(where="window", value=f"{begin_s:.15g} to {end_s:.15g}", rule=rule))
    over = job_series(result, result.weights)
    edges = np.asarray([begin_s, end_s])
    capacity = result.cluster.gpus
    submit, end = result.trace.submit_s, np.where(result.ended, result.end_s, np.inf)
    here = (submit < end_s) & (end > begin_s)
    done = here & (end >= begin_s) & (end < end_s)
    weight = result.weights
    values = {
        "jobs": float(weight[here].sum()),
        "arrivals": float(weight[(submit >= begin_s) & (submit < end_s)].sum()),
        "ended": float(weight[done].sum()),
        "preemptions": float(((over.stops_s >= begin_s) & (over.stops_s < end_s)).sum()),
        "mean_jobs": float(over.present.means(edges)[0]),
        "mean_waiting_jobs": float(over.waiting.means(edges)[0]),
        "most_waiting_jobs": float(over.waiting.most(edges)[0]),
        "waiting_job_s": float(np.diff(over.waiting.integral(edges))[0]),
        "utilisation": float(over.used.means(edges)[0]) / capacity,
        "load": float(over.demand.means(edges)[0]) / capacity,
        "fragmentation": _idle_gpu_s(over, begin_s, end_s, capacity) / (capacity * (end_s - begin_s)),
    }
    if here.any():
        values["charged_jct_s"] = _mean((np.minimum(end, end_s) - submit)[here], weight[here])
    if done.any():
        jct = (end - submit)[done]
        values |= {"mean_jct_s": _mean(jct, weight[done]), "median_jct_s": percentile(jct, 50, weight[done])}
        values |= {f"p{name}_jct_s": percentile(jct, q, weight[done]) for name, q in _TAILS}
    return values


def _idle_gpu_s(over: JobSeries, begin_s: float, end_s: float, capacity: float) -> float:
    """GPU-seconds of a span that nobody used while somebody waited."""
    moments = np.unique(np.concatenate([[begin_s, end_s], over.waiting.at_s, over.used.at_s]))
    moments = moments[(moments >= begin_s) & (moments <= end_s)]
    waits = over.waiting.at(moments[:-1]) > 1e-9
    return float(np.dot(waits * (capacity - over.used.at(moments[:-1])), np.diff(moments)))


def _mean(values: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    return float(np.average(values, weights=weight)) if weight.sum() > 0 else 0.0


def percentile(values: NDArray[np.float64], q: float, weight: NDArray[np.float64]) -> float:
    """The value below which `q` per cent of the weight lies; with equal weights the same as NumPy's."""
    if (weight == weight[0]).all():
        return float(np.percentile(values, q))
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weight[order])
    # A value of weight w stands for w equal ones: between its first and its last nothing changes.
    first, last = total - weight[order], total - 1.0
    at = q / 100.0 * (total[-1] - 1.0)
    return float(np.interp(at, np.stack([first, np.maximum(last, first)], axis=1).ravel(), np.repeat(values[order], 2)))


def _spent_s(result: Result) -> NDArray[np.float64]:
    """Completion times; for jobs that did not end the time until the run was stopped, or until the last thing that happened."""
    return np.where(result.ended, result.jct_s, np.maximum(0.0, last_moment(result) - result.trace.submit_s))


def waiting_s(result: Result) -> NDArray[np.float64]:
    """Time each job spent without GPUs."""
    return np.maximum(0.0, _spent_s(result) - result.executed_s)


def _placement(result: Result, mask: NDArray[np.bool_]) -> dict[str, float]:
    work = result.trace.duration_s[mask]
    ran = result.executed_s[mask]
    weight = result.weights[mask]
    measurable = (work > 0) & (ran > 0) & result.ended[mask]
    values = {"run_slowdown": _mean(ran[measurable] / work[measurable], weight[measurable]) if measurable.any() else 1.0}
    if "packed_at_s" in result.extra:
        values["packed_share"] = _mean(np.isfinite(result.extra["packed_at_s"][mask]).astype(np.float64), weight)
    if "profiler_wait_s" in result.extra:
        values["profiler_wait_s"] = _mean(result.extra["profiler_wait_s"][mask], weight)
    return values


def rho(result: Result) -> NDArray[np.float64]:
    """Finish-time fairness of each ended job with work: JCT over work under its fair share; NaN for the others.

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
        gpus = (trace.gpus * result.weights)[inside]
        integral = _contention(trace.submit_s[inside], result.end_s[inside], gpus, cluster.nodes_of(vc).gpus)
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
        index = np.clip(np.searchsorted(at, time, side="right") - 1, 0, len(at) - 1)
        sums: NDArray[np.float64] = total[index] + level[index] * (time - at[index])
        return sums

    return integral


def fairness(result: Result, mask: NDArray[np.bool_]) -> dict[str, float]:
    """Shares of fairly treated jobs, strict and forgiving, and how bad it gets."""
    values, weight = rho(result)[mask], result.weights[mask]
    finite = np.isfinite(values)
    values, weight = values[finite], weight[finite]
    if not len(values):
        return {}
    return {
        "fair_share": _mean((values <= 1.0).astype(np.float64), weight),
        "fair_share_forgiving": _mean((values <= TOLERANCE).astype(np.float64), weight),
        "mean_rho": _mean(values, weight),
        "p99_rho": percentile(values, 99, weight),
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

"""What a trace is like, in numbers."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np

from autosched.sim.trace import Trace, examples
from autoscout.common.text import plural

YEAR_S = 365 * 86_400.0
DATED_S = 1e9  # seconds above which a clock is taken for that of the epoch: from 2001 on
MOST_EPOCH_S = 1e11  # of a moment: the year 5138; milliseconds of the epoch have been above it since 1973
MOST_SPAN_S = 20 * YEAR_S  # of the arrivals of one trace


def describe(trace: Trace) -> dict[str, float | str]:
    """Counts, spans, distributions and the load it makes."""
    if not len(trace):
        return {"source": trace.source, "jobs": 0.0}
    span = max(float(trace.submit_s[-1] - trace.submit_s[0]), 1.0)
    hourly, _ = np.histogram(trace.submit_s, bins=max(1, int(np.ceil(span / 3600))))
    facts: dict[str, float | str] = {
        "source": trace.source,
        "jobs": float(len(trace)),
        "first_arrival_s": float(trace.submit_s[0]),
        "last_arrival_s": float(trace.submit_s[-1]),
        **_dates(trace),
        "days": span / 86_400,
        "users": float(len(set(trace.user.codes.tolist()))) if trace.user.names != ("",) else 0.0,
        "virtual_clusters": float(len(set(trace.vc.codes.tolist()))) if trace.vc.names != ("",) else 0.0,
        "mean_duration_s": float(trace.duration_s.mean()),
        "median_duration_s": float(np.median(trace.duration_s)),
        "p99_duration_s": float(np.percentile(trace.duration_s, 99)),
        "mean_gpus": float(trace.gpus.mean()),
        "largest_gpus": float(trace.gpus.max()),
        "gpu_hours": trace.gpu_seconds / 3600,
        "mean_demand_gpus": trace.gpu_seconds / span,
        "busiest_hour_over_mean": float(hourly.max() / hourly.mean()),
    }
    for number, name in enumerate(trace.status.names):
        if name:
            facts[f"share_{name.lower()}"] = float((trace.status.codes == number).mean())
    for number, name in enumerate(trace.kind.names):
        if name and (count := int((trace.kind.codes == number).sum())):
            facts[f"jobs_on_{name}"] = float(count)
    for number, text in enumerate(doubts(trace)):
        facts[f"doubt_{number + 1}"] = text
    for number, text in enumerate(trace.filters):
        facts[f"filter_{number + 1}"] = text
    return facts


def _dates(trace: Trace) -> dict[str, str]:
    """When the first and the last job came, where the trace has dates."""
    ends = {"first_arrival": float(trace.submit_s[0]), "last_arrival": float(trace.submit_s[-1])}
    if not all(DATED_S <= at_s < MOST_EPOCH_S for at_s in ends.values()):
        return {}
    return {name: datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") for name, at_s in ends.items()}


def doubts(trace: Trace) -> list[str]:
    """What no cluster is likely to have seen: columns or units may have been mistaken."""
    if not len(trace):
        return []
    doubts = []
    long = trace.duration_s > YEAR_S
    if np.mean(trace.duration_s >= DATED_S) > 0.5:
        doubts.append("most durations look like dates: are submit_time and duration swapped?")
    elif long.any():
        jobs = f"{plural(int(long.sum()), 'job')} ({examples(trace.job_id[long])})"
        doubts.append(f"{jobs} ran for more than a year: are durations in seconds, and not swapped with submit_time?")
    if trace.submit_s[-1] > MOST_EPOCH_S:
        doubts.append("submit times look like milliseconds: seconds are needed")
    elif (span := float(trace.submit_s[-1] - trace.submit_s[0])) > MOST_SPAN_S:
        doubts.append(f"jobs arrive over {span / YEAR_S:.0f} years: are submit times in seconds?")
    return doubts

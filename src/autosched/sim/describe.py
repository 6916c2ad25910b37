"""What a trace is like, in numbers."""

from __future__ import annotations

import numpy as np

from autosched.sim.trace import Trace


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
    for number, text in enumerate(trace.filters):
        facts[f"filter_{number + 1}"] = text
    return facts

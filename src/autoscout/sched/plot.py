"""Charts of runs and traces as SVG files: lines over time, and distributions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from autoscout.common.draw import HEIGHT, WIDTH, Line, chart, picture_file
from autoscout.common.markup import Markup, tag
from autoscout.sched.metrics import waiting_s
from autoscout.sched.result import Result
from autoscout.sched.series import timeline
from autoscout.sched.trace import Trace


def page(charts: list[Markup], title: str) -> str:
    """Charts one below the other, as one SVG file."""
    rows = [tag("g", body, transform=f"translate(0,{number * HEIGHT})") for number, body in enumerate(charts)]
    return picture_file(*rows, width=WIDTH, height=HEIGHT * len(charts), title=title)


def distribution(values: NDArray[np.float64], points: int = 400) -> Line:
    """The share of values up to each."""
    kept = np.sort(values[np.isfinite(values)])
    if not len(kept):
        return np.zeros(0), np.zeros(0)
    index = np.unique(np.linspace(0, len(kept) - 1, min(points, len(kept))).astype(np.int64))
    return kept[index], (index + 1) / len(kept)


def result_page(results: Mapping[str, Result]) -> str:
    """Timelines and distributions of one or several runs."""
    lines = {name: timeline(result) for name, result in results.items()}
    first = min((float(line["time_s"][0]) for line in lines.values() if len(line["time_s"])), default=0.0)
    days = {name: (line["time_s"] - first) / 86_400 for name, line in lines.items()}
    used = {name: (days[name], line["gpus_used"]) for name, line in lines.items() if "gpus_used" in line}
    charts = [
        *([chart("GPUs in use", used, "days")] if used else []),
        chart("jobs in the system", {name: (days[name], line["jobs"]) for name, line in lines.items()}, "days"),
        chart(
            "completion time, share of jobs", {name: distribution(result.jct_s) for name, result in results.items()}, "seconds", log=True
        ),
        chart(
            "waiting time, share of jobs", {name: distribution(waiting_s(result)) for name, result in results.items()}, "seconds", log=True
        ),
    ]
    return page(charts, "Jobs under a scheduler")


def trace_page(trace: Trace) -> str:
    """Arrivals over time, and the distributions of durations and sizes."""
    hours = np.arange(0.0, max(2.0, (trace.submit_s[-1] - trace.submit_s[0]) / 3600 + 1)) if len(trace) else np.arange(2.0)
    counts, _ = np.histogram(
        (trace.submit_s - trace.submit_s[0]) / 3600 if len(trace) else np.zeros(0), bins=np.append(hours, hours[-1] + 1)
    )
    return page(
        [
            chart("jobs per hour", {"arrivals": (hours / 24, counts.astype(np.float64))}, "days"),
            chart("duration, share of jobs", {"duration": distribution(trace.duration_s)}, "seconds", log=True),
            chart("size, share of jobs", {"GPUs": distribution(trace.gpus)}, "GPUs", log=True),
        ],
        "Jobs of a trace",
    )

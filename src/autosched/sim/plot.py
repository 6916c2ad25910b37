"""Charts of runs and traces as SVG files: lines over time, and distributions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from autosched.sim.metrics import waiting_s
from autosched.sim.result import Result
from autosched.sim.series import timeline
from autosched.sim.trace import Trace
from autoscout.common.draw import HEIGHT, PALETTE, WIDTH, Line, chart, label, line, picture_file
from autoscout.common.markup import Markup, tag

HEAD = 34  # pixels of the title, and of each line of the legend below it
_CAPACITY = "GPUs of the cluster"
_GREY = "#888888"
_PER_LINE = 3  # names of the legend in a line
_LONGEST = 34  # characters of a name in the legend


def page(charts: list[Markup], title: str, legend: Mapping[str, str] | None = None, height: float = 0.0) -> str:
    """A title, a legend (name -> colour) and charts one below the other, as one SVG file; `height` is that of charts of another size."""
    parts: list[Markup] = [label(title[:100], 14, 22, font_size=16, font_weight="bold")]
    names = list((legend or {}).items())
    for number, (name, colour) in enumerate(names):
        x, y = 14 + (number % _PER_LINE) * (WIDTH / _PER_LINE), HEAD + 12 + (number // _PER_LINE) * HEAD / 2
        parts.append(line(x, y - 4, x + 20, y - 4, stroke=colour, stroke_width=3))
        parts.append(label(name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…", x + 26, y, font_size=12))
    top = HEAD + (len(names) + _PER_LINE - 1) // _PER_LINE * HEAD / 2 + 6
    parts += [tag("g", body, transform=f"translate(0,{top + number * HEIGHT:g})") for number, body in enumerate(charts)]
    return picture_file(*parts, width=WIDTH, height=top + (height or HEIGHT * len(charts)), title=title)


def distribution(values: NDArray[np.float64], points: int = 400) -> Line:
    """The share of values up to each."""
    finite = np.sort(values[np.isfinite(values)])
    if not len(finite):
        return np.zeros(0), np.zeros(0)
    index = np.unique(np.linspace(0, len(finite) - 1, min(points, len(finite))).astype(np.int64))
    return finite[index], (index + 1) / len(finite)


def result_page(results: Mapping[str, Result], title: str = "") -> str:
    """Timelines and distributions of one or several runs."""
    lines = {name: timeline(result) for name, result in results.items()}
    first = min((float(line["time_s"][0]) for line in lines.values() if len(line["time_s"])), default=0.0)
    days = {name: (line["time_s"] - first) / 86_400 for name, line in lines.items()}
    colours = {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(results)}

    def over_time(column: str) -> dict[str, Line]:
        return {name: (days[name], line[column]) for name, line in lines.items() if column in line}

    used = over_time("gpus_used")
    charts = []
    legend = dict(colours)
    if used:
        longest = max((float(each[-1]) for each in days.values() if len(each)), default=1.0)
        gpus = float(max(result.cluster.gpus for result in results.values()))
        legend[_CAPACITY] = _GREY
        charts.append(chart("GPUs in use", {_CAPACITY: (np.asarray([0.0, longest]), np.full(2, gpus)), **used}, "days", colours=legend))
    charts.append(chart("jobs in the system", over_time("jobs"), "days", colours=colours))
    if over_time("waiting"):
        charts.append(chart("jobs that wait", over_time("waiting"), "days", colours=colours))
    for what, values in (
        ("completion time, share of jobs", {name: result.jct_s for name, result in results.items()}),
        ("waiting time, share of jobs", {name: waiting_s(result) for name, result in results.items()}),
    ):
        charts.append(chart(what, {name: distribution(each) for name, each in values.items()}, "seconds", log=True, colours=colours))
    return page(charts, title or "Jobs under a scheduler", legend)


def trace_page(trace: Trace) -> str:
    """Arrivals over time, and the distributions of durations and sizes."""
    hours = np.arange(0.0, max(2.0, (trace.submit_s[-1] - trace.submit_s[0]) / 3600 + 1)) if len(trace) else np.arange(2.0)
    counts, _ = np.histogram(
        (trace.submit_s - trace.submit_s[0]) / 3600 if len(trace) else np.zeros(0), bins=np.append(hours, hours[-1] + 1)
    )
    colours = dict.fromkeys(("arrivals", "duration", "GPUs"), PALETTE[0])
    return page(
        [
            chart("jobs per hour", {"arrivals": (hours / 24, counts.astype(np.float64))}, "days", colours=colours),
            chart("duration, share of jobs", {"duration": distribution(trace.duration_s)}, "seconds", log=True, colours=colours),
            chart("size, share of jobs", {"GPUs": distribution(trace.gpus)}, "GPUs", log=True, colours=colours),
        ],
        f"Jobs of {trace.source or 'a trace'}: {len(trace):,}",
    )

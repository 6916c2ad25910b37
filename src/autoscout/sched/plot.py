"""Small charts as SVG, without a plotting library: step lines over time, and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import numpy as np
from numpy.typing import NDArray

from autoscout.sched.metrics import timeline, waiting_s
from autoscout.sched.result import Result
from autoscout.sched.trace import Trace

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 720, 260, 70, 40, 30
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e")
Line = tuple[NDArray[np.float64], NDArray[np.float64]]


def chart(title: str, lines: Mapping[str, Line], across: str, logarithmic: bool = False) -> str:
    """One chart: named lines of (x, y)."""
    shown = {name: (x[np.isfinite(y)], y[np.isfinite(y)]) for name, (x, y) in lines.items()}
    every_x = np.concatenate([x for x, _ in shown.values()]) if shown else np.zeros(1)
    every_y = np.concatenate([y for _, y in shown.values()]) if shown else np.zeros(1)
    if not len(every_x):
        every_x = every_y = np.zeros(1)
    low, high = float(every_x.min()), float(every_x.max())
    low = max(low, 1.0) if logarithmic else low
    high, top = max(high, low * 1.001 + 1e-9), max(float(every_y.max()), 1e-9)
    parts = [f'<text x="{_LEFT}" y="18" font-size="14">{escape(title)}</text>']
    for value in _round_values(0.0, top):
        y = _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - _TOP)
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{value:,.10g}</text>')
    for value in _powers_of_ten(low, high) if logarithmic else _round_values(low, high):
        share = np.log(value / low) / np.log(high / low) if logarithmic else (value - low) / (high - low)
        x = _LEFT + share * (_WIDTH - _LEFT - 10)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" font-size="11" text-anchor="middle">{value:,.10g}</text>')
    parts.append(f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 6}" font-size="12" text-anchor="middle">{escape(across)}</text>')
    for number, (name, (across_values, up_values)) in enumerate(shown.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        place = np.log(np.maximum(across_values, low) / low) / np.log(high / low) if logarithmic else (across_values - low) / (high - low)
        points = " ".join(
            f"{_LEFT + px * (_WIDTH - _LEFT - 10):.1f},{_HEIGHT - _BOTTOM - py / top * (_HEIGHT - _BOTTOM - _TOP):.1f}"
            for px, py in zip(place.tolist(), up_values.tolist(), strict=True)
        )
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.3" points="{points}"/>')
        parts.append(
            f'<text x="{_WIDTH - 14}" y="{_TOP + 14 * number}" font-size="12" text-anchor="end" fill="{colour}">{escape(name)}</text>'
        )
    return "\n".join(parts)


def _round_values(low: float, high: float) -> list[float]:
    """About five multiples of 1, 2 or 5 times a power of ten between two numbers."""
    rough = (high - low) / 5
    power = 10.0 ** np.floor(np.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9)
    return [round(number * step, 12) for number in range(int(first), int(last) + 1)]


def _powers_of_ten(low: float, high: float) -> list[float]:
    """Those between two numbers; where fewer than two are, round values."""
    found = [10.0**power for power in range(int(np.ceil(np.log10(low))), int(np.floor(np.log10(high))) + 1)]
    return found if len(found) > 1 else [value for value in _round_values(low, high) if value > 0]


def page(charts: list[str]) -> str:
    """Charts one below the other, as one SVG file."""
    inside = "\n".join(f'<g transform="translate(0,{number * _HEIGHT})">\n{body}\n</g>' for number, body in enumerate(charts))
    height = _HEIGHT * len(charts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif">\n'
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>\n{inside}\n</svg>\n'
    )


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
        chart("completion time, share of jobs", {name: distribution(result.jct_s) for name, result in results.items()}, "seconds", True),
        chart("waiting time, share of jobs", {name: distribution(waiting_s(result)) for name, result in results.items()}, "seconds", True),
    ]
    return page(charts)


def trace_page(trace: Trace) -> str:
    """Arrivals over time, and the distributions of durations and sizes."""
    hours = np.arange(0.0, max(2.0, (trace.submit_s[-1] - trace.submit_s[0]) / 3600 + 1)) if len(trace) else np.arange(2.0)
    counts, _ = np.histogram(
        (trace.submit_s - trace.submit_s[0]) / 3600 if len(trace) else np.zeros(0), bins=np.append(hours, hours[-1] + 1)
    )
    return page(
        [
            chart("jobs per hour", {"arrivals": (hours / 24, counts.astype(np.float64))}, "days"),
            chart("duration, share of jobs", {"duration": distribution(trace.duration_s)}, "seconds", True),
            chart("size, share of jobs", {"GPUs": distribution(trace.gpus)}, "GPUs", True),
        ]
    )

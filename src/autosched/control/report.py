"""What an operator sees: settings, load, queue, and predicted against measured gains over time; and the week in words."""

from __future__ import annotations

import math
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from autosched.control.explain import ODD, one_line
from autosched.control.ledger import STATES, Entry, Ledger
from autosched.control.overview import MOST_POINTS
from autosched.sim.plot import page
from autosched.tune.explain import moment
from autoscout.common.draw import Line, chart, thin
from autoscout.common.files import write_file, write_folder
from autoscout.core.config import Value
from autoscout.core.errors import StoreError
from autoscout.core.log import logger

log = logger(__name__)

WEEK_S = 7 * 86_400.0
MONDAY_S = 4 * 86_400.0  # the first Monday of the epoch
Sample = tuple[float, dict[str, Any]]


def write_report(ledger: Ledger, folder: Path, from_s: float, to_s: float, *, simulated: bool = False) -> Path:
    """Write report.md and over_time.svg about [from, to), each in one piece; returns the folder. Other files in it stay.

    Args:
        ledger: Of the cluster.
        folder: Made if it is not there.
        from_s: First moment.
        to_s: One past the last.
        simulated: Whether the cluster itself is a simulation.

    Raises:
        StoreError: it cannot be written.
    """
    for name, text in _pages(ledger, from_s, to_s, simulated=simulated).items():
        write_file(folder / name, text)
    return folder


def _pages(ledger: Ledger, from_s: float, to_s: float, *, simulated: bool) -> dict[str, str]:
    entries, samples = ledger.history(from_s, to_s), ledger.samples(from_s, to_s)
    drawn = [samples[index] for index in thin(len(samples), MOST_POINTS)]
    return {
        "over_time.svg": over_time(entries, drawn, ledger.cluster),
        "report.md": told(ledger, entries, samples, from_s, to_s, simulated=simulated),
    }


def write_week(ledger: Ledger, folder: Path, at_s: float, *, simulated: bool = False) -> Path | None:
    """Write the report about the last whole week (Monday to Monday, UTC) into a folder named by its Monday, once.

    The folder appears when all of it is written: one that was cut off would never be completed.

    Returns:
        That folder; None where it is there already, or nothing was decided in that week.
    """
    to_s = at_s - (at_s - MONDAY_S) % WEEK_S
    mine = folder / datetime.fromtimestamp(to_s - WEEK_S, UTC).strftime("%Y-%m-%d")
    if mine.exists() or not ledger.history(to_s - WEEK_S, to_s, most=1):
        return None
    try:
        write_folder(mine, _pages(ledger, to_s - WEEK_S, to_s, simulated=simulated))
    except StoreError as error:  # a disk that is full must not end the controller; tried again in an hour
        log.warning("the weekly report is missing: %s", error)
        return None
    return mine


def over_time(entries: list[Entry], samples: list[Sample], title: str) -> str:
    """Load, queue, every setting that changed, and gains, as one SVG page."""
    moments = np.asarray([at_s for at_s, _ in samples])
    start = float(moments[0]) if len(moments) else 0.0
    hours = (moments - start) / 3_600.0

    def column(name: str) -> Line:
        return hours, np.asarray([float(data.get(name, math.nan)) for _, data in samples])

    charts = [
        chart("GPUs wanted, in times those there are", {"load": column("load")}, "hours"),
        chart("jobs", {"waiting": column("waiting"), "running": column("running")}, "hours"),
    ]
    levels = _settings(samples, hours)
    if levels:
        charts.append(chart("settings that changed: place among the values they had", levels, "hours"))
    gains = {
        "predicted": [(entry.at_s, entry.predicted) for entry in entries if entry.changes],
        "measured": [(entry.at_s, entry.measured) for entry in entries if entry.changes],
    }
    lines: dict[str, Line] = {
        name: ((np.asarray([at_s for at_s, _ in rows]) - start) / 3_600.0, np.asarray([gain for _, gain in rows]))
        for name, rows in gains.items()
        if sum(math.isfinite(gain) for _, gain in rows) > 1
    }
    if lines:
        charts.append(chart("gain of each change, times", lines, "hours"))
    return page(charts, f"{title}: from {moment(start)}")


def _settings(samples: list[Sample], hours: np.ndarray[Any, Any]) -> dict[str, Line]:
    """Every setting that changed, as its place among the values it had, 0 to 1."""
    lines: dict[str, Line] = {}
    names = dict.fromkeys(name for _, data in samples for name in data.get("settings", {}))
    for name in names:
        values: list[Value] = [data.get("settings", {}).get(name) for _, data in samples]
        different = sorted({repr(value): value for value in values if value is not None}.values(), key=_order)
        if len(different) < 2:
            continue
        levels = {repr(value): number / (len(different) - 1) for number, value in enumerate(different)}
        label = f"{name} {different[0]} to {different[-1]}"
        lines[label] = hours, np.asarray([levels.get(repr(value), math.nan) for value in values])
    return lines


def _order(value: Value) -> tuple[int, float, str]:
    return (0, float(value), "") if isinstance(value, (int, float)) else (1, 0.0, str(value))


def told(ledger: Ledger, entries: list[Entry], samples: list[Sample], from_s: float, to_s: float, *, simulated: bool) -> str:
    """The report as Markdown."""
    changes = [entry for entry in entries if math.isfinite(entry.applied_s)]
    judged = [entry for entry in changes if math.isfinite(entry.measured)]
    would = [entry for entry in entries if entry.state == "observed"]
    loads = [data["load"] for _, data in samples if isinstance(data.get("load"), (int, float))]
    lines = [
        f"# {ledger.cluster}, {moment(from_s)} to {moment(to_s)}",
        "",
        *(["The cluster is simulated.", ""] if simulated else []),
        f"{len(entries)} decisions, {len(changes)} changes, {sum(entry.state == 'undone' for entry in entries)} rolled back."
        + (f" Mean load {np.mean(loads):.2f}, at most {np.max(loads):.2f}." if loads else ""),
        "",
        "| state | decisions | meaning |",
        "|---|---|---|",
    ]
    counted = Counter(entry.state for entry in entries)
    lines += [f"| {state} | {counted[state]} | {STATES[state]} |" for state in STATES if counted[state]]
    if judged:
        gains = [math.log(entry.measured) for entry in judged if entry.measured > 0]
        lines += ["", f"Measured gain of {len(judged)} changes: {math.exp(float(np.mean(gains))):.3f} times each (geometric mean)."]
    checked = [entry for entry in [*judged, *would] if math.isfinite(entry.measured) and math.isfinite(entry.low)]
    if checked:
        inside = sum(entry.low <= entry.measured <= entry.high for entry in checked)
        lines += ["", f"{inside} of {len(checked)} gains lay inside the interval that was meant to hold nine in ten."]
    lines += ["", "## Changes and what would have been changed", ""]
    lines += [f"- {one_line(entry)}" for entry in entries if entry.changes] or ["None."]
    odd = [line for line in ledger.log(from_s, to_s) if line[3] in ODD]
    if odd:
        lines += ["", "## What to look at", ""]
        lines += [f"- {moment(at_s)} {event}: {words.splitlines()[0] if words else ''}" for _, at_s, _, event, words in odd[-40:]]
    lines += ["", "![over time](over_time.svg)", ""]
    return "\n".join(lines)

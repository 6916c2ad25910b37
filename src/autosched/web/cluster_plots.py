"""A controlled cluster over time, drawn: load, queue, settings, and gains as they were predicted and measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from autosched.control.ledger import Entry
from autosched.control.overview import Overview
from autoscout.analysis.labels import shorten
from autoscout.common.draw import HEIGHT, WIDTH, Scale, box, chart, label, line, picture
from autoscout.common.markup import Markup, tag
from autoscout.common.text import show
from autoscout.core.config import Value

MOST_GAINS = 120
"""Changes that are drawn, the newest."""
_WIDTH, _LEFT, _RIGHT, _TOP = 900, 190, 880, 10
_LANE, _TALL = 26, 260
_LETTER = 6.6  # pixels of a letter, about


def load_plot(overview: Overview) -> Markup | None:
    """GPUs wanted, in times those there are."""
    return _lines(overview, "load: GPUs wanted, in times those there are", {"load": overview.load})


def queue_plot(overview: Overview) -> Markup | None:
    """Jobs that wait and that run."""
    return _lines(overview, "jobs", {"waiting": overview.waiting, "running": overview.running})


def _lines(overview: Overview, title: str, columns: dict[str, Sequence[float]] | dict[str, Sequence[int]]) -> Markup | None:
    if len(overview.at_s) < 2:
        return None
    hours = (np.asarray(overview.at_s) - span(overview)[0]) / 3_600.0
    lines = {name: (hours, np.asarray(values, dtype=float)) for name, values in columns.items()}
    body = chart(title, lines, "hours")
    return picture(body, width=WIDTH, height=HEIGHT, title=f"{title}, over time", class_="plot compare", style=f"--wide:{WIDTH}px")


def settings_plot(overview: Overview) -> Markup | None:
    """A lane for every setting that changed, cut where it did, with its values; None when none did."""
    knobs = overview.changed_knobs
    if not knobs:
        return None
    scale, height = _time(overview), _TOP + _LANE * len(knobs) + 32
    parts = _moments(scale, height)
    for row, (name, values) in enumerate(knobs.items()):
        y = _TOP + _LANE * row
        parts.append(label(shorten(name, 26), _LEFT - 10, y + 17, class_="tick", text_anchor="end"))
        for number, (begin_s, end_s, value) in enumerate(_pieces(overview.at_s, values)):
            start, end = scale.place(_hours(overview, begin_s)), scale.place(_hours(overview, end_s))
            piece = box(start, y + 3, max(1.5, end - start), _LANE - 6, class_=f"setting {'odd' if number % 2 else 'even'}")
            fits = len(show(value)) * _LETTER < end - start - 6
            words = label(show(value), (start + end) / 2, y + 17, text_anchor="middle") if fits else ""
            parts.append(tag("g", tag("title", f"{name} = {show(value)}"), piece, words))
    return picture(
        *parts,
        width=_WIDTH,
        height=height,
        title="Every setting that changed, and its values over time",
        class_="plot settings",
        style=f"--wide:{_WIDTH}px",
    )


def gains_plot(overview: Overview) -> Markup | None:
    """What each change was predicted to gain, with its interval, and what it gained; None when nothing was predicted."""
    predictions = overview.predictions[-MOST_GAINS:]
    if not predictions:
        return None
    ends = [
        1.0,
        *(value for entry in predictions for value in (entry.low, entry.high, entry.predicted, entry.measured) if math.isfinite(value)),
    ]
    across, up = _time(overview), Scale.over(ends, _TALL - 36, _TOP + 14)
    parts = _moments(across, _TALL)
    for tick in up.ticks(4):
        y = up.place(tick)
        parts += [line(_LEFT, y, _RIGHT, y, "grid"), label(f"{tick:g}x", _LEFT - 10, y + 4, class_="tick", text_anchor="end")]
    parts += [line(_LEFT, up.place(1.0), _RIGHT, up.place(1.0), "default"), label("gain", 12, _TOP + 12, class_="axis-name")]
    for entry in predictions:
        parts.append(_gain(entry, across.place(_hours(overview, entry.at_s)), up))
    title = "Predicted gain of each change with its interval, and the gain that was measured"
    return picture(*parts, width=_WIDTH, height=_TALL, title=title, class_="plot gains", style=f"--wide:{_WIDTH}px")


def _gain(entry: Entry, x: float, up: Scale) -> Markup:
    measured = math.isfinite(entry.measured)
    title = f"decision {entry.id}: predicted {entry.predicted:.3f}x" + (f", measured {entry.measured:.3f}x" if measured else "")
    parts: list[object] = [tag("title", title)]
    if math.isfinite(entry.low) and math.isfinite(entry.high):
        parts.append(line(x, up.place(entry.low), x, up.place(entry.high), "predicted"))
    parts.append(tag("circle", cx=f"{x:.1f}", cy=f"{up.place(entry.predicted):.1f}", r=4, class_="predicted"))
    if measured:
        kind = "measured" if entry.measured >= 1.0 else "measured worse"
        parts.append(tag("circle", cx=f"{x:.1f}", cy=f"{up.place(entry.measured):.1f}", r=4, class_=kind))
    return tag("g", *parts)


def span(overview: Overview) -> tuple[float, float]:
    """First and last moment that is known of the cluster."""
    moments = [*overview.at_s[:1], *overview.at_s[-1:], *(entry.at_s for entry in (*overview.entries[:1], *overview.entries[-1:]))]
    return (min(moments), max(moments)) if moments else (0.0, 0.0)


def _hours(overview: Overview, at_s: float) -> float:
    return (at_s - span(overview)[0]) / 3_600.0


def _time(overview: Overview) -> Scale:
    return Scale(low=0.0, high=max(_hours(overview, span(overview)[1]), 1e-6), start=_LEFT, end=_RIGHT)


def _moments(scale: Scale, height: float) -> list[Markup]:
    parts: list[Markup] = []
    for tick in scale.ticks(6):
        x = scale.place(tick)
        parts += [line(x, _TOP, x, height - 30, "grid"), label(f"{tick:g} h", x, height - 12, class_="tick", text_anchor="middle")]
    return parts


def _pieces(at_s: Sequence[float], values: Sequence[Value | None]) -> Iterator[tuple[float, float, Value]]:
    """Spans of time in which a setting kept its value; nothing where it was not told."""
    begin = 0
    for number in range(1, len(values) + 1):
        if number == len(values) or repr(values[number]) != repr(values[begin]):
            value = values[begin]
            if value is not None:
                yield at_s[begin], at_s[min(number, len(at_s) - 1)], value
            begin = number


__all__ = ["gains_plot", "load_plot", "queue_plot", "settings_plot", "span"]

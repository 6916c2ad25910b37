"""The objective along one knob, and over two: what was measured, and what a model makes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

import numpy as np

from autoscout.analysis.curves import ordered
from autoscout.analysis.importance import MIN_CONFIGS, observations, response
from autoscout.analysis.labels import shorten
from autoscout.common.draw import Axis, Scale, box, label, line, middle, text_width, thin
from autoscout.common.forest import Forest, ForestEncoder, Matrix
from autoscout.common.markup import Markup, join, tag
from autoscout.common.text import show, show_number
from autoscout.core.config import Config, Value
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Trial
from autoscout.report.elements import lead_line, plot
from autoscout.report.meanings import axis_name
from autoscout.report.sections.coordinates import drawn
from autoscout.report.view import StudyView

MOST_DOTS = 800
MOST_SLICED = 5_000
"""Trials that the medians of the page of a report are of."""
SHOWN = 4
"""Knobs that the page of a report shows, the most important first."""
_WIDTH, _HEIGHT = 440, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 424, 24, 212
_STEPS = 14  # cells of a map along an axis that has a scale
_MOST_FIT = 400  # configurations that the model of a map learns from
_TREES = 24


def slice_plot(
    task: Task, trials: Sequence[Trial], knob: str, default_config: Config, best: Config | None = None, *, unit: str = ""
) -> Markup | None:
    """Every trial that ran by its value of one knob, with a line through the medians; None where the knob took fewer than two values."""
    dots = [(i, t) for i, t in enumerate(ordered(trials)) if knob in t.config and task.objective.value(t.measurement) is not None]
    values = [trial.config[knob] for _, trial in dots]
    if len({repr(value) for value in values}) < 2:
        return None
    across = Axis.of(knob, values, _LEFT + 12, _RIGHT - 8, absent=_RIGHT, unit=unit)
    measured = [trial.measurement.metrics[task.objective.metric] for _, trial in dots]
    up = Scale.over(measured, _BOTTOM, _TOP)
    parts = [*_frame(up, across, task.objective.metric), _medians(values, measured, across, up)]
    marked = [index for index, (_, trial) in enumerate(dots) if trial.config in (default_config, best)]
    for index in thin(len(dots), MOST_DOTS, marked):
        number, trial = dots[index][1].number, dots[index][1]
        role = " is-default" if trial.config == default_config else " is-best" if trial.config == best else ""
        broken = "" if task.objective.loss(trial.measurement) != float("inf") else " broken"
        x, y = across.place(trial.config[knob]), up.place(measured[index])
        tip = tag("title", f"#{number}: {knob}={show(trial.config[knob])}, {show_number(measured[index])}")
        kind = f"dot small {trial.measurement.fidelity.label}{broken}{role}"
        parts.append(tag("circle", tip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=4.5 if role else 2.8, class_=kind, data_n=number))
    title = f"{task.objective.metric} of every trial by {knob}"
    return plot(*parts, width=_WIDTH, height=_HEIGHT, title=title, kind="slice")


def contour_plot(
    task: Task, trials: Sequence[Trial], across: str, up: str, base: Config, *, units: Mapping[str, str] | None = None
) -> Markup | None:
    """The objective over two knobs as a model predicts it, the other knobs as in `base`, with the trials on top.

    None where a knob took fewer than two values or too few configurations ran.
    """
    observed = {config: value for config, value in observations(task, trials).items() if across in config and up in config}
    configs = list(observed)
    if len(configs) < MIN_CONFIGS or any(len({repr(config[name]) for config in configs}) < 2 for name in (across, up)):
        return None
    units = units or {}
    x_axis = Axis.of(across, [config[across] for config in configs], _LEFT + 16, _RIGHT - 16, absent=_RIGHT, unit=units.get(across, ""))
    y_axis = Axis.of(up, [config[up] for config in configs], _BOTTOM - 12, _TOP + 12, absent=_TOP)
    xs, ys = _stops(x_axis, [config[across] for config in configs]), _stops(y_axis, [config[up] for config in configs])
    standing = _predicted(task, observed, base, across, up, xs, ys)
    cells = [
        box(start, top, right - start, bottom - top, class_="cell", style=f"--standing:{standing[row, column]:.2f}")
        for column, (start, right) in enumerate(_edges([x_axis.place(value) for value in xs], _LEFT, _RIGHT))
        for row, (top, bottom) in enumerate(_edges([y_axis.place(value) for value in ys], _TOP, _BOTTOM))
    ]
    dots = []
    for index in thin(len(configs), MOST_DOTS):
        config = configs[index]
        tip = tag("title", f"{across}={show(config[across])}, {up}={show(config[up])}: {show_number(observed[config])}")
        x, y = x_axis.place(config[across]), y_axis.place(config[up])
        dots.append(tag("circle", tip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=2.4, class_="trial-dot"))
    words = [label(shorten(text, 9), _LEFT - 8, y + 4, class_="tick", text_anchor="end") for text, y in y_axis.marks]
    words += [label(axis_name(up, units.get(up, "")), 6, 14, class_="axis-name")]
    title = f"Predicted {task.objective.metric} over {across} and {up}; dots are configurations that ran"
    parts = [*cells, *dots, *words, *_below(x_axis)]
    return plot(*parts, width=_WIDTH, height=_HEIGHT, title=title, kind="contour")


def slices_section(view: StudyView) -> Markup:
    """The most important knobs one by one, and the first two together; nothing where no knob varied."""
    result, task = view.result, view.summary.task
    knobs, default, best = result.varied, result.reference, result.best_config
    units = result.units
    trials = [view.trials[index] for index in drawn(view, MOST_SLICED)]
    drawings = [slice_plot(task, trials, knob, default, best, unit=units.get(knob, "")) for knob in knobs[:SHOWN]]
    plots = [drawing for drawing in drawings if drawing]
    if not plots:
        return Markup("")
    both = contour_plot(task, trials, knobs[0], knobs[1], best or default, units=units) if len(knobs) > 1 else None
    figures = [tag("figure", drawing) for drawing in plots]
    if both is not None:
        words = (
            "Predicted by the model that ranks the knobs, the others as in the best; greener is better, dots are configurations that ran."
        )
        figures.append(tag("figure", both, tag("figcaption", words, class_="quiet small")))
    lead = "Every trial by the value of one knob; the line joins the medians. Other knobs differ between the trials of a column."
    return join([lead_line(lead), tag("div", *figures, class_="figures")])


def _frame(up: Scale, across: Axis, metric: str) -> list[Markup]:
    parts = []
    for tick in up.ticks():
        y = up.place(tick)
        parts += [line(_LEFT, y, _RIGHT, y, "grid"), label(f"{tick:g}", _LEFT - 8, y + 4, text_anchor="end", class_="tick")]
    parts.append(label(axis_name(metric, log=up.log), 6, 14, class_="axis-name"))
    return [*parts, *_below(across)]


def _below(axis: Axis) -> list[Markup]:
    """Marks and name of the axis across; words that would overlap are left out."""
    parts, last = [], -1e9
    for text, x in sorted(axis.marks, key=lambda mark: mark[1]):
        word = shorten(text, 11)
        half, at = text_width(word) / 2, middle(word, x, 0, _WIDTH)
        if at - half > last:
            parts.append(label(word, at, _BOTTOM + 18, class_="tick", text_anchor="middle"))
            last = at + half
    name = axis_name(axis.name, axis.unit)
    return [*parts, label(name, middle(name, (_LEFT + _RIGHT) / 2, 0, _WIDTH), _BOTTOM + 40, class_="axis-name", text_anchor="middle")]


def _medians(values: Sequence[Value], measured: Sequence[float], across: Axis, up: Scale) -> Markup:
    gathered: dict[float, list[float]] = {}
    for value, value_up in zip(values, measured, strict=True):
        gathered.setdefault(round(across.place(value), 1), []).append(value_up)
    if across.scale is not None:  # many different values: medians of equal parts of the axis
        wide = (_RIGHT - _LEFT) / _STEPS
        parts: dict[float, list[float]] = {}
        for x, those in gathered.items():
            parts.setdefault(_LEFT + (int((x - _LEFT) / wide) + 0.5) * wide, []).extend(those)
        gathered = parts
    steps = [f"{'L' if index else 'M'}{x:.1f} {up.place(median(some)):.1f}" for index, (x, some) in enumerate(sorted(gathered.items()))]
    return tag("path", d="".join(steps), class_="medians")


def _stops(axis: Axis, values: Sequence[Value]) -> list[Value]:
    """The values that the cells of a map stand for, in the order of the axis."""
    if axis.scale is None:
        return sorted({repr(value): value for value in values}.values(), key=axis.place)
    low, high = axis.scale.low, axis.scale.high
    return [float(value) for value in (np.geomspace(low, high, _STEPS) if axis.scale.log else np.linspace(low, high, _STEPS))]


def _edges(positions: Sequence[float], start: float, end: float) -> list[tuple[float, float]]:
    """Beginning and end of the cell around each position, in the order given."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    middles = [(positions[one] + positions[other]) / 2 for one, other in pairwise(order)]
    ends = [start, *middles, end]
    spans = {index: (ends[rank], ends[rank + 1]) for rank, index in enumerate(order)}
    return [spans[index] for index in range(len(positions))]


def _predicted(
    task: Task, observed: dict[Config, float], base: Config, across: str, up: str, xs: Sequence[Value], ys: Sequence[Value]
) -> Matrix:
    """How good each cell is, 0 to 1, as a forest predicts it; rows are values of `up`."""
    rng = stream(0, "report", "contour")
    configs = list(observed)
    if len(configs) > _MOST_FIT:
        configs = [configs[i] for i in sorted(rng.choice(len(configs), _MOST_FIT, replace=False))]
    encoder = ForestEncoder([*configs, base])
    forest = Forest(encoder.encode(configs), response([observed[config] for config in configs]), encoder.categorical, rng, trees=_TREES)
    cells = [base.extend({across: x, up: y}) for y in ys for x in xs]
    means: Matrix = forest.predict_each(encoder.encode(cells)).mean(axis=0).reshape(len(ys), len(xs))
    good: Matrix = (means - means.min()) / (float(np.ptp(means)) or 1.0)
    return good if task.objective.direction is Direction.MAXIMIZE else 1.0 - good


__all__ = ["contour_plot", "slice_plot", "slices_section"]

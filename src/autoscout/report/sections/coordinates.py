"""All configurations at a glance: the parallel coordinates, and what their tooltips say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from autoscout.analysis.labels import one_line, shorten
from autoscout.common.draw import Axis, Scale, label, line, text_width, thin
from autoscout.common.markup import Markup, clean, join, tag
from autoscout.common.text import show, show_number
from autoscout.core.config import Config
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Status, Trial
from autoscout.report.elements import lead_line, legend, plot, scrolled
from autoscout.report.meanings import axis_name
from autoscout.report.view import MOST_LINES, StudyView

MOST_AXES = 12
_AXIS_TOP, _AXIS_BOTTOM, _ABSENT_Y = 46.0, 300.0, 326.0


def coordinates_section(view: StudyView) -> Markup:
    """The inside of the section; nothing where no knob varied or fewer than two trials can be drawn."""
    return view.once("coordinates", lambda: _coordinates(view))[0]


def crossings(view: StudyView) -> dict[int, list[float]]:
    """Where each trial that the section draws crosses the axes, by its index."""
    return view.once("coordinates", lambda: _coordinates(view))[1]


def _coordinates(view: StudyView) -> tuple[Markup, dict[int, list[float]]]:
    result, task, trials = view.result, view.summary.task, view.trials
    knobs = result.varied[:MOST_AXES]
    chosen = {index: trials[index] for index in drawn(view, view.most_lines)}
    axes = axes_of(task, list(chosen.values()), knobs, result.units)
    if not knobs or len(axes) == len(knobs) or len(chosen) < 2:
        return Markup(""), {}
    values = {index: value for index, trial in chosen.items() if (value := task.objective.value(trial.measurement)) is not None}
    ranked = sorted(values, key=lambda index: values[index], reverse=task.objective.direction is Direction.MAXIMIZE)
    standing = {index: 1.0 - rank / max(1, len(ranked) - 1) for rank, index in enumerate(ranked)}
    drawing = parallel_plot(task, chosen, axes, standing, result.reference, result.best_config)
    hint = tag("p", "Drag along an axis to keep only the lines that cross it there. ", tag("button", "clear", type="button", id="clear"))
    keys = [("is-best", "best"), ("is-default", view.summary.reference_name), ("good", "better"), ("poor", "worse"), ("failed", "failed")]
    keys += [("bounded", "stopped early")] if view.summary.spent.bounded else []
    words = legend([(f"stroke {kind}", text) for kind, text in keys])
    note = f" Shown: {len(chosen)} of {len(trials)} trials." if len(chosen) < len(trials) else ""
    lead = f"Each line is a trial; the last axis is {task.objective.metric}, better is up.{note}"
    inside = join([lead_line(lead), words, hint, scrolled(drawing)])
    return inside, {index: places_of(task, trial, axes) for index, trial in chosen.items()}


def drawn(view: StudyView, most: int = MOST_LINES) -> list[int]:
    """Indices of the trials to draw: all, or in a huge study an even choice with the default, the best and what improved on it."""
    trials, ends = view.trials, (view.result.reference, view.result.best_config)
    chosen = [index for index, point in enumerate(view.summary.points) if point.improved]
    if len(trials) > most:
        chosen += [index for index, trial in enumerate(trials) if trial.config in ends][:most]
    return thin(len(trials), most, chosen)


def tooltips(
    view: StudyView, trials: Mapping[int, Trial], knobs: Sequence[str] = (), lines: Mapping[int, list[float]] | None = None
) -> dict[int, dict[str, Any]]:
    """What hovering and brushing know of each trial, by its index.

    Args:
        view: The study.
        trials: By index.
        knobs: Those whose values are told.
        lines: From `crossings`, for trials that are drawn as lines.
    """
    task, texts = view.summary.task, {}
    for index, trial in trials.items():
        answer = trial.measurement
        value = task.objective.value(answer)
        says = show_number(value) if value is not None else f"{answer.status.value}: {one_line(answer.reason) or 'no reason given'}"
        settings = [[clean(name), clean(show(trial.config[name]))] for name in knobs[:MOST_AXES] if name in trial.config]
        title = f"#{trial.number} {clean(view.result.name_of(trial.config))}"
        texts[index] = {
            "title": title,
            "text": clean(says),
            "knobs": settings,
            "places": (lines or {}).get(index),
            "number": trial.number,
        }
    return texts


def axes_of(task: Task, trials: Sequence[Trial], knobs: Sequence[str], units: Mapping[str, str] | None = None) -> list[Axis]:
    """An axis for each knob and one for the objective, better always up.

    Args:
        task: For the objective.
        trials: Whose values the axes hold.
        knobs: The knobs that get one.
        units: Of the knobs that have one.
    """
    axes = []
    for name in knobs:
        values = [trial.config[name] for trial in trials if name in trial.config]
        unit = (units or {}).get(name, "")
        axes.append(Axis.of(name, values, _AXIS_BOTTOM, _AXIS_TOP, _ABSENT_Y, gaps=len(values) < len(trials), unit=unit))
    outcomes = [value for trial in trials if (value := task.objective.value(trial.measurement)) is not None]
    if outcomes:
        upward = task.objective.direction is Direction.MAXIMIZE
        start, end = (_AXIS_BOTTOM, _AXIS_TOP) if upward else (_AXIS_TOP, _AXIS_BOTTOM)
        scale = Scale.over(outcomes, start, end, margin=0.0)
        marks = tuple((f"{tick:g}", scale.place(tick)) for tick in scale.ticks())
        axes.append(Axis(name=task.objective.metric, marks=marks, scale=scale, absent=_ABSENT_Y, gaps=len(outcomes) < len(trials)))
    return axes


def places_of(task: Task, trial: Trial, axes: Sequence[Axis]) -> list[float]:
    """Where a trial crosses each axis."""
    places = []
    for axis in axes[:-1]:
        places.append(round(axis.place(trial.config[axis.name]) if axis.name in trial.config else axis.absent, 1))
    value = task.objective.value(trial.measurement)
    places.append(round(axes[-1].place(value) if value is not None else axes[-1].absent, 1))
    return places


def parallel_plot(
    task: Task,
    trials: Mapping[int, Trial],
    axes: Sequence[Axis],
    standing: Mapping[int, float],
    default_config: Config,
    best: Config | None,
) -> Markup:
    """A line per trial across all axes; JavaScript adds hovering and brushing.

    Args:
        task: For the objective.
        trials: What to draw, by the index that the page knows each trial by.
        axes: From `axes_of`, the objective last.
        standing: Index -> how good it is among those that ran, 0 to 1.
        default_config: Drawn dashed.
        best: Drawn thick.
    """
    names = [axis_name(axis.name, axis.unit) for axis in axes]
    halves = [text_width(name, 14.0) / 2 for name in names]  # they are bold
    gap = max(86.0, 860.0 / max(1, len(axes) - 1), *((one + other + 8) / 2 for one, other in zip(halves, halves[2:], strict=False)))
    xs = [max(44.0, halves[0] + 2, halves[min(1, len(axes) - 1)] + 2 - gap) + gap * i for i in range(len(axes))]
    width = xs[-1] + max(76.0, halves[-1] + 2)
    lines = []
    for index, trial in sorted(trials.items(), key=lambda item: standing.get(item[0], -1.0)):
        points = list(zip(xs, places_of(task, trial, axes), strict=True))
        path = f"M{points[0][0]:.1f} {points[0][1]}" + "".join(_curve(one, other) for one, other in pairwise(points))
        ended = Status.BOUNDED.value if trial.measurement.status is Status.BOUNDED else "failed"
        kind = "line" + ("" if index in standing else f" {ended}")
        kind += " is-default" if trial.config == default_config else " is-best" if trial.config == best else ""
        lines.append(tag("path", d=path, class_=kind, data_i=index, style=f"--standing:{standing.get(index, 0.0):.2f}"))
    parts = [tag("g", *lines, class_="lines")]
    for number, (axis, x) in enumerate(zip(axes, xs, strict=True)):
        parts.append(_axis(axis, x, number, last=number == len(axes) - 1))
    return plot(*parts, width=width, height=350, title="Every configuration as a line across the knobs", kind="parallel")


def _curve(one: tuple[float, float], other: tuple[float, float]) -> str:
    middle = (one[0] + other[0]) / 2
    return f"C{middle:.1f} {one[1]} {middle:.1f} {other[1]} {other[0]:.1f} {other[1]}"


def _axis(axis: Axis, x: float, number: int, *, last: bool) -> Markup:
    parts: list[object] = [line(x, _AXIS_TOP, x, _AXIS_BOTTOM, "axis")]
    parts.append(
        tag(
            "text",
            axis_name(axis.name, axis.unit),
            tag("title", axis.name),
            x=f"{x:.1f}",
            y=26 if number % 2 else 12,
            class_="axis-name",
            text_anchor="middle",
        )
    )
    for text, y in axis.marks:
        parts.append(label(shorten(text, 11), x + 6, y + 4, class_="tick on-lines"))
    if axis.gaps:
        parts.append(label("no result" if last else "not used", x, _ABSENT_Y + 16, class_="tick absent", text_anchor="middle"))
    parts.append(
        tag("rect", x=f"{x - 16:.1f}", y=_AXIS_TOP - 6, width=32, height=_ABSENT_Y + 8 - _AXIS_TOP, class_="brush-area", data_axis=number)
    )
    return tag("g", join(parts), class_="axis-group" + (" objective" if last else ""))


__all__ = ["axes_of", "coordinates_section", "crossings", "drawn", "parallel_plot", "places_of", "tooltips"]

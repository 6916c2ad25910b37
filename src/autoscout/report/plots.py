"""The plots of the page as SVG: convergence, intervals, importance, parallel coordinates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from autoscout.analysis.curves import Point
from autoscout.analysis.importance import Importance, KnobShare
from autoscout.analysis.labels import shorten
from autoscout.analysis.verdict import Finalist
from autoscout.common.draw import Axis, Scale, label, line, picture, thin
from autoscout.common.markup import Markup, join, tag
from autoscout.common.text import show_gain
from autoscout.core.config import Config
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Status, Trial

BOUNDED = Status.BOUNDED.value
MOST_DOTS = 2500
"""Trials that the curve of a study draws one by one."""
_WIDTH, _HEIGHT = 900, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 838, 22, 250
_FAILED_Y = 270


def _svg(*children: object, width: float, height: float, title: str, kind: str) -> Markup:
    return picture(*children, width=width, height=height, title=title, class_=f"plot {kind}", style=f"--wide:{width:g}px")


def convergence(task: Task, points: Sequence[Point], default_value: float | None) -> Markup | None:
    """Every trial and the best so far; failures in a row of their own below. None when nothing ran."""
    values = [point.value for point in points if point.value is not None]
    if not values:
        return None
    scale = Scale.over([*values, *([default_value] if default_value is not None else [])], _BOTTOM, _TOP)
    across = (_RIGHT - _LEFT) / max(1, len(points) - 1) if len(points) > 1 else 0.0
    places = [_LEFT + 8 + i * (across * (1 - 16 / (_RIGHT - _LEFT))) for i in range(len(points))]
    bands = [part for phase in ("simplify", "final") for part in _band(points, places, phase)]
    parts = [*_grid(scale, task.objective.metric), *bands, *_numbers(points, places)]
    if default_value is not None:
        y = scale.place(default_value)
        parts += [line(_LEFT, y, _RIGHT, y, "default"), label("default", _RIGHT + 6, y + 4, class_="default-label")]
    for fidelity in sorted({point.fidelity for point in points}):
        parts.append(_best_path(points, places, scale, fidelity))
    chosen = thin(len(points), MOST_DOTS, (i for i, point in enumerate(points) if point.improved))
    parts += [_dot(i, points[i], places[i], scale) for i in chosen]
    title = f"{task.objective.metric} of each trial and the best so far ({task.objective.direction.value})"
    return _svg(*parts, width=_WIDTH, height=_HEIGHT, title=title, kind="convergence")


def _grid(scale: Scale, metric: str) -> list[Markup]:
    parts = []
    for tick in scale.ticks():
        y = scale.place(tick)
        parts += [line(_LEFT, y, _RIGHT, y, "grid"), label(f"{tick:g}", _LEFT - 8, y + 4, text_anchor="end", class_="tick")]
    parts.append(label(metric + (" (log)" if scale.log else ""), _LEFT, _TOP - 8, class_="axis-name"))
    return parts


def _numbers(points: Sequence[Point], places: Sequence[float]) -> list[Markup]:
    every = max(1, len(points) // 10)
    parts = [label(f"#{points[i].number}", places[i], 296, class_="tick", text_anchor="middle") for i in range(0, len(points), every)]
    parts.append(label("trial", (_LEFT + _RIGHT) / 2, 314, class_="axis-name", text_anchor="middle"))
    without = {point.status for point in points if point.value is None}
    if without:
        word = "stopped" if without == {BOUNDED} else "no result" if BOUNDED in without else "failed"
        parts.append(label(word, _LEFT - 8, _FAILED_Y + 4, class_="tick", text_anchor="end"))
    return parts


def _band(points: Sequence[Point], places: Sequence[float], phase: str) -> list[Markup]:
    inside = [i for i, point in enumerate(points) if point.phase == phase]
    if not inside:
        return []
    gap = (places[1] - places[0]) / 2 if len(places) > 1 else 8.0
    start, end = places[inside[0]] - gap, places[inside[-1]] + gap
    band = tag("rect", x=f"{start:.1f}", y=_TOP, width=f"{end - start:.1f}", height=_FAILED_Y + 8 - _TOP, class_="band")
    return [band, label(phase, (start + end) / 2, _FAILED_Y + 4, class_="tick", text_anchor="middle")]


def _best_path(points: Sequence[Point], places: Sequence[float], scale: Scale, fidelity: str) -> Markup:
    steps: list[str] = []
    for x, point in zip(places, points, strict=True):
        if point.fidelity == fidelity and point.best is not None:
            y = scale.place(point.best)
            if not steps or point.improved:
                steps.append(f"H{x:.1f}V{y:.1f}" if steps else f"M{x:.1f} {y:.1f}")
    if steps:
        steps.append(f"H{places[-1]:.1f}")
    return tag("path", d="".join(steps) or "M0 0", class_=f"best {fidelity}")


def _dot(index: int, point: Point, x: float, scale: Scale) -> Markup:
    if point.value is None:
        arms = f"M{x - 3.5:.1f} {_FAILED_Y - 3.5}l7 7m0 -7l-7 7"
        return tag("path", d=arms, class_=f"dot {BOUNDED if point.status == BOUNDED else 'failed'}", data_i=index)
    kind = "dot" + ("" if point.allowed else " broken") + (" improved" if point.improved else "") + f" {point.fidelity}"
    return tag("circle", cx=f"{x:.1f}", cy=f"{scale.place(point.value):.1f}", r=5 if point.improved else 3.6, class_=kind, data_i=index)


def intervals(finalists: Sequence[Finalist]) -> Markup | None:
    """Each finalist's gain with its interval, and the line of the default; None when there is no interval."""
    shown = [finalist for finalist in finalists if finalist.gain.enough][:6]
    if not shown:
        return None
    ends = [1.0]
    for finalist in shown:
        ends += [bound for bound in (finalist.gain.low, finalist.gain.high) if bound is not None]
    scale = Scale.over(ends, 16, 444, margin=0.08)
    height = 44 + 40 * len(shown)
    parts = []
    for tick in scale.ticks(5):
        x = scale.place(tick)
        parts += [line(x, 8, x, height - 30, "grid"), label(f"{tick:g}x", x, height - 14, class_="tick", text_anchor="middle")]
    one = scale.place(1.0)
    parts += [line(one, 4, one, height - 26, "default"), label("default", one, height - 2, class_="default-label", text_anchor="middle")]
    for row, finalist in enumerate(shown):
        gain = finalist.gain
        if gain.low is None or gain.high is None or gain.ratio is None:
            continue
        y = 32 + 40 * row
        kind = "range" + (" better" if gain.better and finalist.eligible else "")
        parts += [line(scale.place(gain.low), y, scale.place(gain.high), y, kind)]
        parts += [tag("circle", cx=f"{scale.place(gain.ratio):.1f}", cy=y, r=6, class_=kind)]
        text = f"{shorten(finalist.side.name, 46)}  {show_gain(gain.ratio)}"
        half = 4.4 * len(text)  # about half of its width in pixels: the whole of it stays inside
        middle = min(max(scale.place(gain.ratio), half), 460.0 - half)
        parts.append(label(text, middle, y - 12, class_="range-label", text_anchor="middle"))
    return _svg(*parts, width=460, height=height, title="Gain over the default with 95 % intervals", kind="intervals")


def importance_bars(importance: Importance) -> Markup | None:
    """A bar per knob with its 90 % interval; None when nothing is known."""
    shown = importance.knobs[:14]
    if not shown:
        return None
    parts = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = _share_place(tick)
        parts += [line(x, 4, x, 8 + 26 * len(shown), "grid")]
        parts.append(label(f"{tick:.0%}", x, 24 + 26 * len(shown), class_="tick", text_anchor="middle"))
    for row, knob in enumerate(shown):
        parts += _bar(knob, 8 + 26 * row)
    height = 30 + 26 * len(shown)
    return _svg(*parts, width=600, height=height, title="Share of the variation that each knob accounts for", kind="importance")


def _share_place(share: float) -> float:
    return 190.0 + share * 390.0


def _bar(knob: KnobShare, y: float) -> list[Markup]:
    start, end = _share_place(0.0), _share_place(knob.share)
    bar = tag(
        "rect", x=start, y=y + 3, width=f"{max(1.5, end - start):.1f}", height=14, rx=2, class_="bar" + (" certain" if knob.certain else "")
    )
    tip = tag("title", f"{knob.name}: {knob.share:.0%}, 90 % interval {knob.low:.0%} to {knob.high:.0%}")
    whisker = line(_share_place(knob.low), y + 10, _share_place(knob.high), y + 10, "whisker")
    return [tag("g", tip, label(shorten(knob.name, 22), start - 8, y + 14, text_anchor="end", class_="knob"), bar, whisker)]


_AXIS_TOP, _AXIS_BOTTOM, _ABSENT_Y = 46.0, 300.0, 326.0


def axes_of(task: Task, trials: Sequence[Trial], knobs: Sequence[str]) -> list[Axis]:
    """An axis for each knob and one for the objective, better always up."""
    axes = []
    for name in knobs:
        values = [trial.config[name] for trial in trials if name in trial.config]
        axes.append(Axis.of(name, values, _AXIS_BOTTOM, _AXIS_TOP, _ABSENT_Y, gaps=len(values) < len(trials)))
    found = [value for trial in trials if (value := task.objective.value(trial.measurement)) is not None]
    if found:
        upward = task.objective.direction is Direction.MAXIMIZE
        start, end = (_AXIS_BOTTOM, _AXIS_TOP) if upward else (_AXIS_TOP, _AXIS_BOTTOM)
        scale = Scale.over(found, start, end, margin=0.0)
        marks = tuple((f"{tick:g}", scale.place(tick)) for tick in scale.ticks())
        axes.append(Axis(name=task.objective.metric, marks=marks, scale=scale, absent=_ABSENT_Y, gaps=len(found) < len(trials)))
    return axes


def places_of(task: Task, trial: Trial, axes: Sequence[Axis]) -> list[float]:
    """Where a trial crosses each axis."""
    places = []
    for axis in axes[:-1]:
        places.append(round(axis.place(trial.config[axis.name]) if axis.name in trial.config else axis.absent, 1))
    value = task.objective.value(trial.measurement)
    places.append(round(axes[-1].place(value) if value is not None else axes[-1].absent, 1))
    return places


def parallel(
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
    gap = max(86.0, 860.0 / max(1, len(axes) - 1))
    xs = [44.0 + gap * i for i in range(len(axes))]
    width = xs[-1] + 76.0
    lines = []
    for index, trial in sorted(trials.items(), key=lambda item: standing.get(item[0], -1.0)):
        points = list(zip(xs, places_of(task, trial, axes), strict=True))
        path = f"M{points[0][0]:.1f} {points[0][1]}" + "".join(_curve(one, other) for one, other in pairwise(points))
        ended = BOUNDED if trial.measurement.status is Status.BOUNDED else "failed"
        kind = "line" + ("" if index in standing else f" {ended}")
        kind += " is-default" if trial.config == default_config else " is-best" if trial.config == best else ""
        lines.append(tag("path", d=path, class_=kind, data_i=index, style=f"--standing:{standing.get(index, 0.0):.2f}"))
    parts = [tag("g", *lines, class_="lines")]
    for number, (axis, x) in enumerate(zip(axes, xs, strict=True)):
        parts.append(_axis(axis, x, number, last=number == len(axes) - 1))
    return _svg(*parts, width=width, height=350, title="Every configuration as a line across the knobs", kind="parallel")


def _curve(one: tuple[float, float], other: tuple[float, float]) -> str:
    middle = (one[0] + other[0]) / 2
    return f"C{middle:.1f} {one[1]} {middle:.1f} {other[1]} {other[0]:.1f} {other[1]}"


def _axis(axis: Axis, x: float, number: int, *, last: bool) -> Markup:
    parts: list[object] = [line(x, _AXIS_TOP, x, _AXIS_BOTTOM, "axis")]
    parts.append(
        tag(
            "text",
            shorten(axis.name, 17),
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

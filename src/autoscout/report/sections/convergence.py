"""How the search went: every trial, and the best so far."""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.analysis.curves import CurvePoint
from autoscout.common.draw import Scale, label, line, thin
from autoscout.common.markup import Markup, join, tag
from autoscout.core.task import Task
from autoscout.core.trial import Status
from autoscout.report.elements import lead_line, legend, plot, scrolled
from autoscout.report.meanings import axis_name
from autoscout.report.view import StudyView

BOUNDED = Status.BOUNDED.value
MOST_DOTS = 1500
"""Trials that the curve of a study draws one by one."""
_WIDTH, _HEIGHT = 900, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 838, 22, 250
_FAILED_Y = 270


def convergence_section(view: StudyView) -> Markup:
    """The inside of the section; nothing when nothing ran."""
    summary = view.summary
    drawing = convergence_plot(summary.task, summary.points, summary.reference.value if summary.reference else None, summary.reference_name)
    if drawing is None:
        return Markup("")
    points = summary.points
    kinds = [
        ("measured", "one measurement", any(point.fidelity == "measured" and point.value is not None for point in points)),
        ("improved", "new best", True),
        ("broken", "breaks a limit", any(point.value is not None and not point.allowed for point in points)),
        ("failed", "failed", any(point.value is None for point in points)),
        ("simulated", "simulated", any(point.fidelity == "simulated" for point in points)),
    ]
    lead = "The line follows the best single measurement, which flatters it; the verdict above rests on the final alone."
    return join([lead_line(lead), legend([(kind, text) for kind, text, is_there in kinds if is_there]), scrolled(drawing)])


def convergence_plot(task: Task, points: Sequence[CurvePoint], default_value: float | None, name: str = "default") -> Markup | None:
    """Every trial and the best so far; failures in a row of their own below. None when nothing ran."""
    values = [point.value for point in points if point.value is not None]
    if not values:
        return None
    scale = Scale.over([*values, *([default_value] if default_value is not None else [])], _BOTTOM, _TOP)
    across = (_RIGHT - _LEFT) / max(1, len(points) - 1) if len(points) > 1 else 0.0
    xs = [_LEFT + 8 + i * (across * (1 - 16 / (_RIGHT - _LEFT))) for i in range(len(points))]
    bands = [part for phase in ("simplify", "final") for part in _band(points, xs, phase)]
    parts = [*_grid(scale, task.objective.metric), *bands, *_numbers(points, xs)]
    if default_value is not None:
        y = scale.place(default_value)
        parts += [line(_LEFT, y, _RIGHT, y, "default"), label(name, _RIGHT + 6, y + 4, class_="default-label")]
    for fidelity in sorted({point.fidelity for point in points}):
        parts.append(_best_path(points, xs, scale, fidelity))
    parts += [_dot(i, points[i], xs[i], scale) for i in dotted(points)]
    title = f"{task.objective.metric} of each trial and the best so far ({task.objective.direction.value})"
    return plot(*parts, width=_WIDTH, height=_HEIGHT, title=title, kind="convergence")


def dotted(points: Sequence[CurvePoint]) -> list[int]:
    """Indices of the trials that get a dot: all, or of very many an even choice with those that improved on what was there."""
    return thin(len(points), MOST_DOTS, (i for i, point in enumerate(points) if point.improved))


def _grid(scale: Scale, metric: str) -> list[Markup]:
    parts = []
    for tick in scale.ticks():
        y = scale.place(tick)
        parts += [line(_LEFT, y, _RIGHT, y, "grid"), label(f"{tick:g}", _LEFT - 8, y + 4, text_anchor="end", class_="tick")]
    parts.append(label(axis_name(metric, log=scale.log), _LEFT, _TOP - 8, class_="axis-name"))
    return parts


def _numbers(points: Sequence[CurvePoint], xs: Sequence[float]) -> list[Markup]:
    every = max(1, len(points) // 10)
    parts = [label(f"#{points[i].number}", xs[i], 296, class_="tick", text_anchor="middle") for i in range(0, len(points), every)]
    parts.append(label("trial", (_LEFT + _RIGHT) / 2, 314, class_="axis-name", text_anchor="middle"))
    without = {point.status for point in points if point.value is None}
    if without:
        word = "stopped" if without == {BOUNDED} else "no result" if BOUNDED in without else "failed"
        parts.append(label(word, _LEFT - 8, _FAILED_Y + 4, class_="tick", text_anchor="end"))
    return parts


def _band(points: Sequence[CurvePoint], xs: Sequence[float], phase: str) -> list[Markup]:
    inside = [i for i, point in enumerate(points) if point.phase == phase]
    if not inside:
        return []
    gap = (xs[1] - xs[0]) / 2 if len(xs) > 1 else 8.0
    start, end = xs[inside[0]] - gap, xs[inside[-1]] + gap
    band = tag("rect", x=f"{start:.1f}", y=_TOP, width=f"{end - start:.1f}", height=_FAILED_Y + 8 - _TOP, class_="band")
    return [band, label(phase, (start + end) / 2, _FAILED_Y + 4, class_="tick", text_anchor="middle")]


def _best_path(points: Sequence[CurvePoint], xs: Sequence[float], scale: Scale, fidelity: str) -> Markup:
    steps: list[str] = []
    for x, point in zip(xs, points, strict=True):
        if point.fidelity == fidelity and point.best is not None:
            y = scale.place(point.best)
            if not steps or point.improved:
                steps.append(f"H{x:.1f}V{y:.1f}" if steps else f"M{x:.1f} {y:.1f}")
    if steps:
        steps.append(f"H{xs[-1]:.1f}")
    return tag("path", d="".join(steps) or "M0 0", class_=f"best {fidelity}")


def _dot(index: int, point: CurvePoint, x: float, scale: Scale) -> Markup:
    if point.value is None:
        arms = f"M{x - 3.5:.1f} {_FAILED_Y - 3.5}l7 7m0 -7l-7 7"
        return tag("path", d=arms, class_=f"dot {BOUNDED if point.status == BOUNDED else 'failed'}", data_i=index)
    kind = "dot" + ("" if point.allowed else " broken") + (" improved" if point.improved else "") + f" {point.fidelity}"
    return tag("circle", cx=f"{x:.1f}", cy=f"{scale.place(point.value):.1f}", r=5 if point.improved else 3.6, class_=kind, data_i=index)


__all__ = ["MOST_DOTS", "convergence_plot", "convergence_section", "dotted"]

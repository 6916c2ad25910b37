"""Throughput against latency: every trial, the front, the limits and the default, as a picture and a part of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autoscout.analysis.front import Front, FrontPoint, Standing
from autoscout.analysis.price import direction_of
from autoscout.common.draw import Scale, label, line
from autoscout.common.fields import natural_direction
from autoscout.common.front import on_front
from autoscout.common.markup import Markup, join, number_cell, table, tag
from autoscout.common.text import show_number
from autoscout.core.config import Config
from autoscout.core.task import Direction, Goal, Objective
from autoscout.core.trial import Fidelity, Trial
from autoscout.report.elements import lead_line, legend, plot, scrolled
from autoscout.report.meanings import axis_name
from autoscout.report.sections.pairs import pair_chooser
from autoscout.report.view import StudyView

_WIDTH, _HEIGHT = 900, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 860, 26, 340
_MOST_DOTS = 2000  # more hide each other
_THROUGHPUTS = ("output_throughput", "total_token_throughput", "request_throughput", "request_goodput")
_LATENCIES = tuple(
    f"{statistic}_{kind}_ms" for kind in ("ttft", "e2el", "e2e", "tpot", "itl") for statistic in ("p95", "p99", "median", "mean")
)
_KINDS = {Standing.ON_FRONT: "good", Standing.UNSURE: "warn", Standing.DOMINATED: "bad"}


def axes(objective: Objective, trials: Sequence[Trial]) -> tuple[Goal, Goal] | None:
    """What goes across and what goes up: the first two goals, else a latency and a throughput; None where there is no such pair."""
    if objective.several:
        up, across = objective.goals[:2]
        return across, up
    reported = {name for trial in trials if trial.ok for name in trial.measurement.metrics}
    named = [objective.metric, *(limit.metric for limit in objective.limits), *(guard.metric for guard in objective.guards)]
    rates = [name for name in named if natural_direction(name) is Direction.MAXIMIZE]
    times = [name for name in named if name in _LATENCIES or _is_latency(name)]
    up_name = next((name for name in (*rates, *_THROUGHPUTS) if name in reported), None)
    across_name = next((name for name in (*times, *_LATENCIES) if name in reported), None)
    if up_name is None or across_name is None:
        return None
    across = Goal(metric=across_name, direction=direction_of(across_name, objective) or Direction.MINIMIZE)
    return across, Goal(metric=up_name, direction=direction_of(up_name, objective) or Direction.MAXIMIZE)


def _is_latency(metric: str) -> bool:
    return metric.endswith(("_ms", "_us")) and natural_direction(metric) is Direction.MINIMIZE


def front_section(view: StudyView) -> Markup:
    """With several goals: the front as a picture and a table."""
    front = view.summary.front
    if front is None:
        return Markup("")
    return join([lead_line(front.note), tag("p", front.headline), *_figure(view), front_table(front)])


def tradeoff_section(view: StudyView) -> Markup:
    """With one goal: the picture, where a throughput and a latency can be set against each other."""
    pair = axes(view.summary.task.objective, view.trials)
    figure = _figure(view) if view.summary.front is None else []
    if pair is None or not figure:
        return Markup("")
    lead = f"Every trial by {pair[1].metric} and {pair[0].metric}; the line joins those of which none is better in both."
    return join([lead_line(lead), *figure])


def _figure(view: StudyView) -> list[Markup]:
    """The picture with its legend; nothing where two metrics cannot be set against each other."""
    objective, result = view.summary.task.objective, view.result
    pair = axes(objective, view.trials)
    if pair is None:
        return []
    drawing = tradeoff(objective, view.trials, result.references.titles, *pair, front=view.summary.front, best=result.best_config)
    if drawing is None:
        return []
    keys = [("improved", "front"), ("measured", "trial"), ("broken", "breaks a limit"), ("simulated", "simulated")]
    kinds = _kinds(objective, view.trials)
    return [legend([(kind, text) for kind, text in keys if kind in kinds]), scrolled(drawing), pair_chooser(view, *pair)]


def front_table(front: Front) -> Markup:
    """The points and what they are compared with, goal by goal."""
    rows = []
    for point in front.compared:
        cells = [number_cell(str(point.values[goal.metric])) for goal in front.goals]
        where = tag("code", f"front/{point.name}/") if point in front.handed_over else point.name
        name = tag("th", where, tag("div", point.title, class_="quiet small"), scope="row")
        word = tag("td", tag("span", point.remark, class_=f"badge {_KINDS[point.standing]}"))
        rows.append([name, *cells, word])
    head = ["point", *(tag("th", f"{goal.metric} ({goal.direction.value})", scope="col", class_="number") for goal in front.goals), ""]
    return table(head, rows, f"Points of the front and the {front.title}")


def tradeoff(
    objective: Objective,
    trials: Sequence[Trial],
    titles: Mapping[Config, str],
    across: Goal,
    up: Goal,
    *,
    front: Front | None = None,
    best: Config | None = None,
) -> Markup | None:
    """The picture; None where fewer than two trials report both metrics.

    Args:
        objective: Its limits are drawn.
        trials: All trials.
        titles: Marked with these names.
        across: Metric of the axis across.
        up: Metric of the axis up.
        front: Its points are joined; without one, the trials of which none is better in both.
        best: Marked too where there is no front.
    """
    dots = [trial for trial in trials if trial.ok and {across.metric, up.metric} <= trial.measurement.metrics.keys()][-_MOST_DOTS:]
    dots = [trial for trial in dots if trial.measurement.fidelity is not Fidelity.PREDICTED]
    if len(dots) < 2:
        return None
    limits = {goal.metric: [limit.value for limit in objective.limits if limit.metric == goal.metric] for goal in (across, up)}
    ends = [_inside([trial.measurement.metrics[goal.metric] for trial in dots], limits[goal.metric]) for goal in (across, up)]
    x_scale, y_scale = Scale.over(ends[0], _LEFT, _RIGHT), Scale.over(ends[1], _BOTTOM, _TOP)
    parts = [*_grid(x_scale, y_scale, across, up), *_limits(x_scale, y_scale, limits[across.metric], limits[up.metric])]
    if front is not None:
        chain = [(point.values[across.metric].value, point.values[up.metric].value) for point in front.handed_over]
    else:
        chain = _leading(objective, dots, across, up)
    parts.append(_path([(x_scale.place(x), y_scale.place(y)) for x, y in sorted(chain)]))
    parts += [_dot(objective, trial, x_scale, y_scale, across, up) for trial in dots]
    for point in [point for point in front.points if point.config not in titles] if front else ():  # which has a mark of its own
        parts += _point(point, x_scale, y_scale, across, up)
    marks = {**({best: "best"} if best and not front else {}), **titles}
    parts += [mark for config, text in marks.items() for mark in _marked(config, text, dots, x_scale, y_scale, across, up)]
    title = f"{up.metric} ({up.direction.value}) against {across.metric} ({across.direction.value}) of every trial"
    return plot(*parts, width=_WIDTH, height=_HEIGHT, title=title, kind="tradeoff")


def _inside(values: Sequence[float], limits: Sequence[float]) -> list[float]:
    """What an axis must hold: the values, and limits that are not far off."""
    low, high = min(values), max(values)
    near = [limit for limit in limits if low > 0 < limit and low / 3.0 <= limit <= high * 3.0]
    return [*values, *near]


def _grid(x_scale: Scale, y_scale: Scale, across: Goal, up: Goal) -> list[Markup]:
    parts = []
    for tick in y_scale.ticks():
        y = y_scale.place(tick)
        parts += [line(_LEFT, y, _RIGHT, y, "grid"), label(f"{tick:g}", _LEFT - 8, y + 4, text_anchor="end", class_="tick")]
    for tick in x_scale.ticks():
        x = x_scale.place(tick)
        parts += [line(x, _TOP, x, _BOTTOM, "grid"), label(f"{tick:g}", x, _BOTTOM + 18, text_anchor="middle", class_="tick")]
    names = [axis_name(goal.metric, log=scale.log) for goal, scale in ((across, x_scale), (up, y_scale))]
    parts.append(label(names[0], (_LEFT + _RIGHT) / 2, _BOTTOM + 40, class_="axis-name", text_anchor="middle"))
    parts.append(label(names[1], _LEFT, _TOP - 10, class_="axis-name"))
    return parts


def _limits(x_scale: Scale, y_scale: Scale, across: Sequence[float], up: Sequence[float]) -> list[Markup]:
    parts = []
    for value in across:
        if x_scale.low <= value <= x_scale.high:
            x = x_scale.place(value)
            parts += [line(x, _TOP, x, _BOTTOM, "limit"), label("limit", x + 4, _TOP + 10, class_="tick")]
    for value in up:
        if y_scale.low <= value <= y_scale.high:
            y = y_scale.place(value)
            parts += [line(_LEFT, y, _RIGHT, y, "limit"), label("limit", _RIGHT - 4, y - 4, class_="tick", text_anchor="end")]
    return parts


def _leading(objective: Objective, trials: Sequence[Trial], across: Goal, up: Goal) -> list[tuple[float, float]]:
    """The trials within the limits of which none is better in both metrics."""
    rows = [trial.measurement.metrics for trial in trials if math.isfinite(objective.loss(trial.measurement))]
    if not rows:
        return []
    losses = np.array([[goal.sign * metrics[goal.metric] for goal in (across, up)] for metrics in rows])
    return [(rows[row][across.metric], rows[row][up.metric]) for row in np.flatnonzero(on_front(losses))]


def _path(corners: Sequence[tuple[float, float]]) -> Markup:
    steps = [f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(corners)]
    return tag("path", d="".join(steps) or "M0 0", class_="best")


def _dot(objective: Objective, trial: Trial, x_scale: Scale, y_scale: Scale, across: Goal, up: Goal) -> Markup:
    metrics = trial.measurement.metrics
    allowed = math.isfinite(objective.loss(trial.measurement))
    kind = "dot" + ("" if allowed else " broken") + f" {trial.measurement.fidelity.label}"
    tip = tag("title", f"#{trial.number}: {show_number(metrics[up.metric])}, {show_number(metrics[across.metric])}")
    x, y = x_scale.place(metrics[across.metric]), y_scale.place(metrics[up.metric])
    return tag("circle", tip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.2, class_=kind)


def _point(point: FrontPoint, x_scale: Scale, y_scale: Scale, across: Goal, up: Goal) -> list[Markup]:
    """A point of the front with its intervals."""
    one, other = point.values[across.metric], point.values[up.metric]
    x, y = x_scale.place(one.value), y_scale.place(other.value)
    parts = []
    if one.low is not None and one.high is not None:
        parts.append(line(x_scale.place(one.low), y, x_scale.place(one.high), y, "whisker"))
    if other.low is not None and other.high is not None:
        parts.append(line(x, y_scale.place(other.low), x, y_scale.place(other.high), "whisker"))
    kind = "dot improved" if point.standing is not Standing.DOMINATED else "dot"
    parts.append(tag("circle", tag("title", f"{point.name}: {point.remark}"), cx=f"{x:.1f}", cy=f"{y:.1f}", r=5.5, class_=kind))
    anchor = "end" if x > (_LEFT + _RIGHT) / 2 else "start"
    parts.append(label(point.name, x - 9 if anchor == "end" else x + 9, y - 9, class_="range-label on-lines", text_anchor=anchor))
    return parts


def _marked(config: Config, text: str, trials: Sequence[Trial], x_scale: Scale, y_scale: Scale, across: Goal, up: Goal) -> list[Markup]:
    """A ring around the median of a configuration's trials, with its name."""
    mine = [trial.measurement.metrics for trial in trials if trial.config == config]
    if not mine:
        return []
    x = x_scale.place(float(np.median([metrics[across.metric] for metrics in mine])))
    y = y_scale.place(float(np.median([metrics[up.metric] for metrics in mine])))
    ring = tag("circle", cx=f"{x:.1f}", cy=f"{y:.1f}", r=8, class_=f"ring {text}")
    return [ring, label(text, x + 11, y + 16, class_="default-label on-lines")]


def _kinds(objective: Objective, trials: Sequence[Trial]) -> set[str]:
    """Which kinds of dots there are."""
    ran = [trial for trial in trials if trial.ok]
    broken = {"broken"} if any(math.isinf(objective.loss(trial.measurement)) for trial in ran) else set()
    return {"improved", *(trial.measurement.fidelity.label for trial in ran), *broken}


__all__ = ["axes", "front_section", "front_table", "tradeoff", "tradeoff_section"]

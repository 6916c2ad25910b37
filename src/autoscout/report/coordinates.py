"""All configurations at a glance: the parallel coordinates as a part of the page, and what its tooltips say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from autoscout.analysis.importance import Importance
from autoscout.analysis.labels import KnobNote, one_line
from autoscout.analysis.summary import Summary
from autoscout.common.draw import thin
from autoscout.common.markup import Markup, clean, tag
from autoscout.common.text import show, show_number
from autoscout.core.config import Config
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Trial
from autoscout.report.plots import axes_of, parallel, places_of
from autoscout.report.sections import legend, section

MOST_AXES = 12
MOST_LINES = 1500
"""Lines drawn; more hide each other and slow the browser down."""


def varied_knobs(trials: Sequence[Trial], knobs: Sequence[KnobNote], importance: Importance | None) -> list[str]:
    """Knobs that took more than one value (being inactive is one), the important ones first, then as declared."""
    seen: dict[str, set[str]] = {}
    for trial in trials:
        for name, value in trial.config.items():
            seen.setdefault(name, set()).add(repr(value))
    everywhere = set.intersection(*(set(trial.config) for trial in trials)) if trials else set()
    order = [*(knob.name for knob in knobs if knob.name in seen), *seen]
    moving = [name for name in dict.fromkeys(order) if len(seen[name]) + (name not in everywhere) > 1]
    ranked = [knob.name for knob in importance.knobs] if importance else []
    return [name for name in ranked if name in moving] + [name for name in moving if name not in ranked]


def coordinates_section(
    summary: Summary, trials: Sequence[Trial], knobs: Sequence[str], default_config: Config, most: int = MOST_LINES
) -> tuple[Markup, dict[int, list[float]]]:
    """The parallel coordinates, and where each trial that is drawn crosses the axes.

    Args:
        summary: Of the study.
        trials: All trials in order.
        knobs: The axes, the most important first.
        default_config: Drawn dashed.
        most: Lines to draw.
    """
    task, best = summary.task, summary.best.config if summary.best else None
    chosen = drawn(summary, trials, default_config, most)
    shown = {index: trials[index] for index in chosen}
    axes = axes_of(task, list(shown.values()), knobs[:MOST_AXES])
    if not knobs or len(axes) == len(knobs[:MOST_AXES]) or len(shown) < 2:
        return Markup(""), {}
    values = {index: value for index, trial in shown.items() if (value := task.objective.value(trial.measurement)) is not None}
    ranked = sorted(values, key=lambda index: values[index], reverse=task.objective.direction is Direction.MAXIMIZE)
    standing = {index: 1.0 - place / max(1, len(ranked) - 1) for place, index in enumerate(ranked)}
    plot = parallel(task, shown, axes, standing, default_config, best)
    hint = tag("p", "Drag along an axis to keep only the lines that cross it there. ", tag("button", "clear", type="button", id="clear"))
    keys = [("is-best", "best"), ("is-default", "default"), ("good", "better"), ("poor", "worse"), ("failed", "failed")]
    keys += [("bounded", "stopped early")] if summary.spent.bounded else []
    words = legend([(f"stroke {kind}", text) for kind, text in keys])
    note = f" Shown: {len(shown)} of {len(trials)} trials." if len(shown) < len(trials) else ""
    lead = f"Each line is a trial; the last axis is {task.objective.metric}, better is up.{note}"
    crossing = {index: places_of(task, trial, axes) for index, trial in shown.items()}
    return section("parallel", "All configurations at a glance", words, hint, tag("div", plot, class_="scroll"), lead=lead), crossing


def drawn(summary: Summary, trials: Sequence[Trial], default_config: Config, most: int = MOST_LINES) -> list[int]:
    """Indices of the trials to draw: all, or in a huge study an even choice with the default, the best and what improved on it."""
    best = summary.best.config if summary.best else None
    kept = [index for index, point in enumerate(summary.points) if point.improved]
    if len(trials) > most:
        kept += [index for index, trial in enumerate(trials) if trial.config in (default_config, best)][:most]
    return thin(len(trials), most, kept)


def tooltips(
    task: Task, trials: Mapping[int, Trial], name_of: Callable[[Config], str], knobs: Iterable[str], lines: Mapping[int, list[float]]
) -> dict[int, dict[str, Any]]:
    """What hovering and brushing know of each trial, by its index."""
    axes, found = list(knobs)[:MOST_AXES], {}
    for index, trial in trials.items():
        answer = trial.measurement
        value = task.objective.value(answer)
        says = show_number(value) if value is not None else f"{answer.status.value}: {one_line(answer.reason) or 'no reason given'}"
        settings = [[clean(name), clean(show(trial.config[name]))] for name in axes if name in trial.config]
        title = f"#{trial.number} {clean(name_of(trial.config))}"
        found[index] = {"title": title, "text": clean(says), "knobs": settings, "places": lines.get(index), "number": trial.number}
    return found


__all__ = ["coordinates_section", "drawn", "tooltips", "varied_knobs"]

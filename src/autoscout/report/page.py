"""`report.html`: one file with everything in it; opens without network, works without JavaScript, prints."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import Any

from autoscout.common.markup import Markup, clean, embedded_json, join, tag
from autoscout.common.text import show, show_number
from autoscout.core.config import Config
from autoscout.core.task import Direction
from autoscout.core.trial import Trial
from autoscout.report.ablation import Ablation
from autoscout.report.contributions import Contribution
from autoscout.report.curves import ordered
from autoscout.report.importance import Importance
from autoscout.report.labels import KnobNote, namer, one_line
from autoscout.report.plots import axes_of, parallel, places_of
from autoscout.report.predicted import Predictions, predicted_section
from autoscout.report.sections import (
    comparison,
    convergence_section,
    environment,
    explanation,
    failures,
    header,
    how_to_run,
    section,
    trials_table,
)
from autoscout.report.summary import Summary
from autoscout.report.tradeoff import tradeoff_section

_MAX_AXES = 12
_MAX_LINES = 1500  # more lines than this hide each other and slow the browser down


def page(
    summary: Summary,
    trials: Sequence[Trial],
    default_config: Config,
    *,
    knobs: Iterable[KnobNote] = (),
    importance: Importance | None = None,
    ablation: Ablation | None = None,
    contributions: Sequence[Contribution] = (),
    commands: Sequence[str] = (),
    predictions: Predictions | None = None,
    name_of: Callable[[Config], str] | None = None,
) -> str:
    """The whole page.

    Args:
        summary: From `summarise`.
        trials: The trials it was made from.
        default_config: The engine's default.
        knobs: The space's knobs.
        importance: From `knob_importance`, if wanted.
        ablation: From `ablate`, if wanted.
        contributions: From `contributions`, if wanted.
        commands: How to run the answer, line by line.
        predictions: What a simulator had predicted, where one was used.
        name_of: Gives configurations their readable names.
    """
    kept = ordered(trials)
    declared = tuple(knobs)
    name_of = name_of or namer([default_config, *(trial.config for trial in kept)], declared)
    names = {trial.config: name_of(trial.config) for trial in kept}
    varied = _varied(kept, declared, importance)
    best = summary.best.config if summary.best else None
    drawing, lines = _drawing(summary, kept, varied[:_MAX_AXES], default_config, best)
    body = tag(
        "main",
        header(summary),
        how_to_run(commands if summary.answer is not None else ()),
        tradeoff_section(summary, kept, default_config) if summary.front else "",
        comparison(summary, contributions),
        "" if summary.front else tradeoff_section(summary, kept, default_config),
        convergence_section(summary),
        predicted_section(predictions),
        explanation(importance, ablation),
        drawing,
        failures(summary),
        trials_table(summary.task, kept, varied, names, default_config, best) if kept else "",
        environment(summary.task),
        id="content",
    )
    return _document(summary.study or summary.task.system, body, _data(summary, kept, names, varied, lines))


def _varied(trials: Sequence[Trial], knobs: Sequence[KnobNote], importance: Importance | None) -> list[str]:
    """Knobs that took more than one value (being inactive is one), the important ones first, then as declared."""
    seen: dict[str, set[str]] = {}
    for name in dict.fromkeys([*(knob.name for knob in knobs), *(name for trial in trials for name in trial.config)]):
        seen[name] = {repr(trial.config[name]) if name in trial.config else "" for trial in trials}
    moving = [name for name, values in seen.items() if len(values) > 1]
    ranked = [knob.name for knob in importance.knobs] if importance else []
    return [name for name in ranked if name in moving] + [name for name in moving if name not in ranked]


def _drawing(
    summary: Summary, trials: Sequence[Trial], knobs: Sequence[str], default_config: Config, best: Config | None
) -> tuple[Markup, dict[int, list[float]]]:
    """The parallel coordinates, and where each trial crosses the axes."""
    task = summary.task
    chosen = _chosen(summary, trials, default_config, best)
    shown = {index: trials[index] for index in chosen}
    axes = axes_of(task, list(shown.values()), knobs)
    if not knobs or len(axes) == len(knobs) or len(shown) < 2:
        return Markup(""), {}
    values = {index: value for index, trial in shown.items() if (value := task.objective.value(trial.measurement)) is not None}
    ranked = sorted(values, key=lambda index: values[index], reverse=task.objective.direction is Direction.MAXIMIZE)
    standing = {index: 1.0 - place / max(1, len(ranked) - 1) for place, index in enumerate(ranked)}
    plot = parallel(task, shown, axes, standing, default_config, best)
    hint = tag("p", "Drag along an axis to keep only the lines that cross it there. ", tag("button", "clear", type="button", id="clear"))
    keys = [("is-best", "best"), ("is-default", "default"), ("good", "better"), ("poor", "worse"), ("failed", "failed")]
    keys += [("bounded", "stopped early")] if summary.spent.bounded else []
    legend = tag("ul", *(tag("li", tag("i", class_=f"key stroke {kind}"), text) for kind, text in keys), class_="legend")
    note = f" Shown: {len(shown)} of {len(trials)} trials." if len(shown) < len(trials) else ""
    lead = f"Each line is a trial; the last axis is {task.objective.metric}, better is up.{note}"
    crossing = {index: places_of(task, trial, axes) for index, trial in shown.items()}
    return section("parallel", "All configurations at a glance", legend, hint, tag("div", plot, class_="scroll"), lead=lead), crossing


def _chosen(summary: Summary, trials: Sequence[Trial], default_config: Config, best: Config | None) -> list[int]:
    """Indices of the trials to draw: all, or in a huge study an even choice with the default and the best."""
    everyone = range(len(trials))
    if len(trials) <= _MAX_LINES:
        return list(everyone)
    step = len(trials) / _MAX_LINES
    marked = {i for i in everyone if trials[i].config in (default_config, best)}
    improved = {i for i, point in enumerate(summary.points) if point.improved}
    return sorted({int(step * i) for i in range(_MAX_LINES)} | marked | improved)


def _data(
    summary: Summary, trials: Sequence[Trial], names: dict[Config, str], knobs: Sequence[str], lines: dict[int, list[float]]
) -> dict[str, Any]:
    """What the tooltips and the brushes read."""
    metric = summary.task.objective.metric
    rows = []
    for index, trial in enumerate(trials):
        answer = trial.measurement
        value = summary.task.objective.value(answer)
        says = show_number(value) if value is not None else f"{answer.status.value}: {one_line(answer.reason) or 'no reason given'}"
        settings = [[clean(name), clean(show(trial.config[name]))] for name in knobs[:_MAX_AXES] if name in trial.config]
        rows.append(
            {"title": f"#{trial.number} {clean(names[trial.config])}", "text": clean(says), "knobs": settings, "places": lines.get(index)}
        )
    return {"metric": clean(metric), "trials": rows}


def _document(title: str, body: Markup, data: dict[str, Any]) -> str:
    static = files("autoscout.report") / "static"
    style = (static / "page.css").read_text(encoding="utf-8")
    script = (static / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # Nothing is fetched, and no script runs but ours, even if some text slipped through unescaped.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = join(
        [
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="generator", content="AutoScout"),
            tag("title", f"{title}: AutoScout report"),
            tag("style", Markup(style)),
        ]
    )
    tail = join([tag("script", embedded_json(data), type="application/json", id="data"), tag("script", Markup(script))])
    skip = tag("a", "Skip to the result", href="#content", class_="skip")
    tip = tag("div", "", id="tip", role="status", aria_live="off", hidden=True)
    return f"<!DOCTYPE html>\n{tag('html', tag('head', head), tag('body', skip, body, tip, tail), lang='en')}\n"

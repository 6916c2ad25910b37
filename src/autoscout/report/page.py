"""`report.html`: one file with everything in it; opens without network, works without JavaScript, prints."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

from autoscout.analysis.ablation import Ablation
from autoscout.analysis.contributions import Contribution
from autoscout.analysis.curves import ordered
from autoscout.analysis.importance import Importance
from autoscout.analysis.labels import KnobNote, namer
from autoscout.analysis.predicted import Predictions
from autoscout.analysis.summary import Summary
from autoscout.common.markup import Markup, clean, embedded_json, join, tag
from autoscout.core.config import Config
from autoscout.core.trial import Trial
from autoscout.report.coordinates import coordinates_section, tooltips, varied_knobs
from autoscout.report.predicted import predicted_section
from autoscout.report.sections import (
    comparison,
    convergence_section,
    environment,
    explanation,
    failures,
    header,
    how_to_run,
    trials_table,
)
from autoscout.report.slices import slices_section
from autoscout.report.timeline import timeline_section
from autoscout.report.tradeoff import tradeoff_section

MOST_ROWS = 5000
"""Trials that the table of the page lists; all are in summary.csv."""


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
    starts: Mapping[str, str] | None = None,
    logs: Mapping[int, str] | None = None,
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
        starts: What starts the system, by configuration: the command lines of the default and of the best.
        logs: Number of a trial -> where its log lies, relative to the page.
        predictions: What a simulator had predicted, where one was used.
        name_of: Gives configurations their readable names.
    """
    kept, logs = ordered(trials), logs or {}
    declared = tuple(knobs)
    name_of = name_of or namer(default_config, declared)
    varied = varied_knobs(kept, declared, importance)
    best = summary.best.config if summary.best else None
    drawing, lines = coordinates_section(summary, kept, varied, default_config)
    listed = kept[-MOST_ROWS:]
    first = len(kept) - len(listed)
    body = tag(
        "main",
        header(summary),
        how_to_run(commands if summary.answer is not None else (), starts or {}),
        tradeoff_section(summary, kept, default_config) if summary.front else "",
        comparison(summary, contributions),
        "" if summary.front else tradeoff_section(summary, kept, default_config),
        convergence_section(summary),
        timeline_section(summary.task, kept),
        predicted_section(predictions),
        explanation(importance, ablation),
        slices_section(summary.task, kept, varied, default_config, best),
        drawing,
        failures(summary, logs),
        trials_table(summary.task, listed, varied, name_of, default_config, best, logs=logs, first=first) if kept else "",
        environment(summary.task),
        id="content",
    )
    told = tooltips(summary.task, dict(enumerate(kept)), name_of, varied, lines)
    data = {"metric": clean(summary.task.objective.metric), "trials": list(told.values())}
    return _document(summary.study or summary.task.system, body, data)


def _document(title: str, body: Markup, data: dict[str, Any]) -> str:
    style, script = asset("page.css"), asset("page.js")
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


def asset(name: str) -> str:
    """A style sheet or script of the page."""
    return (files("autoscout.report") / "static" / name).read_text(encoding="utf-8")

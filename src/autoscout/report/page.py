"""`report.html`: one file with everything in it; opens without network, works without JavaScript, prints."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

from autoscout.common.markup import Markup, clean, embedded_json, join, tag
from autoscout.report.sections import SECTIONS
from autoscout.report.sections.convergence import dotted
from autoscout.report.sections.coordinates import crossings, tooltips
from autoscout.report.sections.header import header
from autoscout.report.sections.trials import listed
from autoscout.report.view import StudyView


def page(view: StudyView) -> str:
    """The whole page of a study."""
    summary = view.summary
    body = tag("main", header(summary), *(section.draw(view) for section in SECTIONS), id="content")
    lines = crossings(view)
    pointed = sorted({*lines, *dotted(summary.points), *listed(view)})  # nothing else can be pointed at
    texts = tooltips(view, {index: view.trials[index] for index in pointed}, view.result.varied, lines)
    data = {"metric": clean(summary.task.objective.metric), "trials": texts}
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

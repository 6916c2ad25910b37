"""The pages of single trials: one with its launch and log, and two next to each other."""

from __future__ import annotations

import re
from pathlib import Path

from autoscout.analysis.labels import short_worker, show_spent
from autoscout.analysis.price import mark
from autoscout.common.markup import Markup, badge, join, number_cell, table, tag
from autoscout.common.text import show, show_number
from autoscout.core.secrecy import HIDDEN, hide_secrets
from autoscout.core.trial import Trial
from autoscout.report.elements import command, section, status_badge
from autoscout.report.meanings import meaning
from autoscout.web.api import diff_document
from autoscout.web.frame import document
from autoscout.web.guard import Session
from autoscout.web.library import StudyEntry
from autoscout.web.live import LiveView
from autoscout.web.parts import field, form
from autoscout.web.studies import moment

TAIL_BYTES = 64 * 1024
"""Of a log that a page shows; the whole is one click away."""


def trial_page(entry: StudyEntry, view: LiveView, trial: Trial, session: Session | None) -> str:
    """One trial: what it set, what it measured, how it was launched, what it said."""
    here, answer, number = f"/studies/{entry.key}", trial.measurement, trial.number
    invalid = number in view.invalid
    words: list[object] = [status_badge(view.summary.task, trial)]
    words += [" ", badge(f"marked invalid: {view.invalid[number]}".rstrip(": "), "warn")] if invalid else []
    around = [
        tag("a", text, href=f"{here}/trials/{to}") for text, to in (("previous", number - 1), ("next", number + 1)) if to in view.by_number
    ]
    said = [
        ("proposed by", trial.proposal.origin.by or "unknown"),
        ("phase", trial.proposal.origin.phase.value),
        ("repeat", str(trial.proposal.repeat)),
    ]
    said += [
        ("began", moment(trial.started_s)),
        ("worker", short_worker(trial.worker)),
        ("cost", f"{show_number(answer.cost_s)} s {show_spent(answer)}"),
    ]
    head = tag(
        "header",
        tag("p", f"trial of {entry.title}", class_="kicker"),
        tag("h1", f"#{number} {view.name_of(trial.config)}"),
        tag("p", *words),
        tag("p", answer.reason, class_="reason") if answer.reason else "",
        tag("dl", *(tag("div", tag("dt", name), tag("dd", text)) for name, text in said if text), class_="facts small"),
        tag("p", *around, class_="links"),
    )
    compare = [(f"the {name}", side) for name, side in view.summary.sides.items()]
    links = [
        tag("a", f"compare with {name}", href=f"{here}/diff?trial={side.trials[0]}&trial={number}")
        for name, side in compare
        if side and side.trials and side.trials[0] != number
    ]
    body = [
        head,
        tag("div", _metrics(view, trial), _config(view, trial), class_="columns"),
        tag("p", *links, class_="links"),
        _launch(entry, view, trial),
        _mark_invalid(entry, trial, session) if session is not None and session.csrf and not invalid else "",
    ]
    trail = [(entry.title, here), ("trials", f"{here}/trials"), (f"#{number}", f"{here}/trials/{number}")]
    return document(f"#{number} of {entry.title}", join(body), session=session, trail=trail)


def _metrics(view: LiveView, trial: Trial) -> Markup:
    default, objective = view.summary.reference, view.summary.task.objective
    rows = []
    for name, value in sorted(trial.measurement.metrics.items(), key=lambda item: (item[0] != objective.metric, item[0])):
        before = default.metrics.get(name) if default else None
        word = mark(name, before, value, objective)
        change = f"{(value / before - 1.0) * 100.0:+.1f} % {word}".strip() if before else ""
        head_cell = tag("th", name, scope="row", title=meaning(name) or None)
        rows.append([head_cell, number_cell(show_number(value)), number_cell(tag("span", change, class_=word or None))])
    for name, value in sorted(trial.measurement.bounds.items()):
        rows.append([tag("th", name, scope="row"), number_cell(f"at best {show_number(value)}"), number_cell("")])
    for name, value in sorted(trial.measurement.conditions.items()):
        rows.append([tag("th", name, scope="row", class_="quiet"), number_cell(show_number(value)), number_cell("")])
    head = ["metric", *(tag("th", text, scope="col", class_="number") for text in ("value", f"against the {view.summary.reference_name}"))]
    return section(
        "metrics", "Metrics", table(head, rows, "Metrics and conditions") if rows else tag("p", "It reported nothing.", class_="quiet")
    )


def _config(view: LiveView, trial: Trial) -> Markup:
    units = {knob.name: knob for knob in view.about.knobs}
    order = [*(name for name in units if name in trial.config), *(name for name in trial.config if name not in units)]
    rows = []
    for name in order:
        default = view.result.reference
        changed = name not in default or repr(default[name]) != repr(trial.config[name])
        value = show(trial.config[name])
        before = show(default[name]) if name in default else "not used"
        rows.append(
            [
                tag("th", tag("code", name), scope="row"),
                number_cell(tag("ins", value) if changed else value),
                number_cell(tag("del", before) if changed else before),
            ]
        )
    head = ["knob", *(tag("th", text, scope="col", class_="number") for text in ("value", view.summary.reference_name))]
    return section("config", "Configuration", table(head, rows, "Every knob; changed ones are marked"))


def _launch(entry: StudyEntry, view: LiveView, trial: Trial) -> Markup:
    """Command, variables and logs of the last launch; the end of the log that the store keeps where the folder is not here."""
    files = {path.name: path for path in view.folder.launch_files(trial.measurement.folder)} if view.folder else {}
    blocks: list[object] = []
    if "command.txt" in files:
        blocks.append(command("this trial's launch", _tail(files["command.txt"]).strip()))
    if "env.txt" in files and (text := variable_names(_tail(files["env.txt"]).strip())):
        blocks.append(tag("details", tag("summary", "variables"), tag("pre", text, tabindex="0")))
    for name, path in files.items():
        if name.endswith(".log") and path.stat().st_size:
            link = tag("a", "whole file", href=f"/studies/{entry.key}/trials/{trial.number}/files/{name}")
            blocks.append(tag("h3", name, " ", link, class_="log-name"))
            blocks.append(tag("pre", hide_secrets(_tail(path), view.secrets), tabindex="0", class_="log"))
    if not any(name.endswith(".log") for name in files) and trial.measurement.log_tail:
        blocks += [
            tag("h3", "end of the log"),
            tag("pre", hide_secrets(trial.measurement.log_tail, view.secrets), tabindex="0", class_="log"),
        ]
    return section("launch", "Launch and log", *(blocks or [tag("p", "No files of this launch are here.", class_="quiet")]))


def variable_names(text: str) -> str:
    """The file of a launch's variables without their values."""
    return re.sub(r"^(export [^=\n]*=)(?s:.*?)(?=\nexport |\Z)", rf"\g<1>{HIDDEN}", text, flags=re.MULTILINE)


def _tail(path: Path) -> str:
    """The end of a file, from the beginning of a line on."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - TAIL_BYTES))
        raw = file.read(TAIL_BYTES)
    if size > TAIL_BYTES:
        raw = raw[raw.find(b"\n") + 1 :]
    return raw.decode("utf-8", errors="replace")


def _mark_invalid(entry: StudyEntry, trial: Trial, session: Session) -> Markup:
    number = tag("input", type="hidden", name="trial", value=trial.number)
    words = "Its number cannot be trusted: leave it out of the search and of the result. It stays in the store."
    inner = form(entry, session, "invalid", "Mark invalid", number, field("reason", "why", "another job ran", wide=True))
    return section("invalid", "Mark invalid", inner, lead=words)


def diff_page(entry: StudyEntry, view: LiveView, one: Trial, other: Trial, session: Session | None) -> str:
    """Two trials next to each other."""
    here, difference = f"/studies/{entry.key}", diff_document(view, one, other)
    titles = [
        join([tag("a", f"#{trial.number}", href=f"{here}/trials/{trial.number}"), " ", status_badge(view.summary.task, trial)])
        for trial in (one, other)
    ]
    heads = [tag("th", title, scope="col", class_="number") for title in titles]
    knobs = []
    for name in (row["knob"] for row in difference["knobs"]):
        cells = [number_cell(show(trial.config[name]) if name in trial.config else "not used") for trial in (one, other)]
        knobs.append([tag("th", tag("code", name), scope="row"), *cells])
    metrics = []
    for name, row in difference["metrics"].items():
        change = f"{row['change'] * 100.0:+.1f} % {row['mark']}".strip() if row["change"] is not None else ""
        cells = [number_cell(show_number(row[side])) for side in ("one", "other")]
        metrics.append([tag("th", name, scope="row"), *cells, number_cell(tag("span", change, class_=row["mark"] or None))])
    same = f"{difference['same_knobs']} knobs are the same."
    parts = [
        tag("h1", f"#{one.number} and #{other.number} of {entry.title}"),
        section(
            "knobs",
            "Knobs that differ",
            table(["knob", *heads], knobs, "Knobs that differ") if knobs else tag("p", "None.", class_="quiet"),
            lead=same,
        ),
        section(
            "metrics", "Metrics", table(["metric", *heads, tag("th", "change", scope="col", class_="number")], metrics, "Metrics of both")
        ),
    ]
    return document(
        f"#{one.number} and #{other.number}", join(parts), session=session, trail=[(entry.title, here), ("trials", f"{here}/trials")]
    )

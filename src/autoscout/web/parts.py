"""The parts of a study's page that a report does not have: its state, what can be asked of it, the list of trials."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from autoscout.analysis.labels import one_line, short_worker, show_metric
from autoscout.analysis.verdict import Verdict
from autoscout.common.markup import Markup, badge, join, number_cell, table, tag
from autoscout.common.text import show, show_duration, show_gain, show_number
from autoscout.core.trial import Status
from autoscout.report.elements import section, status_badge
from autoscout.report.sections.header import KINDS, facts, goal_lines, hero
from autoscout.web.actions import describe_actions
from autoscout.web.guard import Session
from autoscout.web.library import StudyEntry
from autoscout.web.live import LiveView
from autoscout.web.trials import FAILED, TrialQuery, list_trials

MOST_KNOBS = 8
"""Knobs that get a column in the list of trials."""


def moment(at_s: float) -> str:
    """A date for people, in UTC."""
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%d %H:%M UTC") if at_s > 0 else ""


def top(entry: StudyEntry, view: LiveView) -> Markup:
    """Name, goal, state, verdict and figures."""
    summary = view.summary
    judged = bool(summary.gain.pairs) or view.about.exact
    kicker = f"{summary.task.system} study, begun {moment(view.record.created_s)}"
    return tag(
        "header",
        tag("p", kicker, class_="kicker"),
        tag("h1", view.record.name),
        goal_lines(summary),
        state(entry, view),
        hero(summary, so_far=bool(view.running) and not judged)
        if view.valid_trials
        else tag("p", "No trial has ended yet.", class_="hero"),
        facts(summary),
    )


def state(entry: StudyEntry, view: LiveView) -> Markup:
    """Whether somebody works on it, and how much of the budget is used."""
    if view.running:
        names = sorted({short_worker(worker) for worker in view.pulse.workers})
        word = badge(f"running: {view.running} under way", "good")
        who = tag("span", ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else ""), class_="quiet small")
    else:
        word, who = badge("nobody is working on it", "plain"), Markup("")
    bounds = view.budget
    told_of = [f"{view.searched} of {bounds.trials} trials of the search"] if bounds.trials else [f"{view.searched} trials of the search"]
    told_of += [f"{show_duration(view.summary.spent.wall_s)} of {show_duration(bounds.wall_s)}"] if bounds.wall_s else []
    bar = tag("progress", f"{view.used:.0%}", max="1", value=f"{view.used:.3f}", aria_label="budget used")
    return tag("div", word, " ", who, tag("p", bar, " ", "; ".join(told_of), class_="quiet small"), class_="state", id=f"state-{entry.key}")


def actions_part(entry: StudyEntry, view: LiveView, session: Session | None, can_act: bool) -> Markup:
    """What can be asked of the study, and what was."""
    asked = [tag("li", tag("b", what), ": ", answer) for what, answer in describe_actions(view.actions)[:20]]
    history = tag("ul", *asked, class_="asked") if asked else ""
    lead = "The process that runs the study reads these between two trials; without one they wait until it is resumed."
    if not entry.steerable:
        return section("actions", "Steer the study", tag("p", "Its store keeps no actions.", class_="quiet"), history)
    if not can_act:
        words = "Read-only: start the dashboard with --token-file to stop a study, add budget, try a configuration or mark a trial invalid."
        return section("actions", "Steer the study", tag("p", words, class_="quiet"), history)
    if session is None or not session.csrf:
        return section("actions", "Steer the study", tag("p", tag("a", "Sign in with the token", href="/login"), " to steer it."), history)
    forms = [
        form(entry, session, "stop", "Stop", tag("p", "Finish the trials under way and end.", class_="quiet small")),
        form(entry, session, "budget", "Add budget", field("trials", "trials to add", "10"), field("time", "time to add", "30m")),
        form(entry, session, "try", "Try it", field("settings", "configuration to try", _example(view), wide=True)),
    ]
    return section("actions", "Steer the study", tag("div", *forms, class_="forms"), history, lead=lead)


def _example(view: LiveView) -> str:
    knob = next((knob for knob in view.about.knobs if len(knob.values) > 1), None)
    return f"{knob.name}={show(knob.values[-1])}" if knob else "knob=value"


def form(entry: StudyEntry, session: Session, kind: str, title: str, *fields: object) -> Markup:
    """A form that asks for an action."""
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in (("kind", kind), ("csrf", session.csrf))]
    button = tag("button", title, type="submit", class_="act")
    return tag("form", *hidden, *fields, button, method="post", action=f"/studies/{entry.key}/actions", class_=f"act-{kind}")


def field(name: str, label: str, example: str, *, wide: bool = False) -> Markup:
    """A labelled field of a form."""
    return tag(
        "label", label, tag("input", type="text", name=name, placeholder=example, autocomplete="off"), class_="wide" if wide else None
    )


def trials_part(entry: StudyEntry, view: LiveView, query: TrialQuery) -> Markup:
    """A page of the list of trials, with links to sort, to filter and to compare two."""
    listing, task = list_trials(view, query), view.summary.task
    metrics = list(dict.fromkeys([*(goal.metric for goal in task.objective.goals), *(limit.metric for limit in task.objective.limits)]))
    knobs = view.result.varied[:MOST_KNOBS] if view.valid_trials else []
    here = f"/studies/{entry.key}/trials"

    def sorter(name: str, title: str, *, right: bool = False) -> Markup:
        down = not query.down if query.sort == name else name in metrics
        state = ("descending" if query.down else "ascending") if query.sort == name else None
        link = tag("a", title, href=here + query.link(sort=name, down=down, page=1))
        return tag("th", link, scope="col", class_="number" if right else None, aria_sort=state)

    head = [
        tag("th", tag("span", "compare", class_="unseen"), scope="col"),
        sorter("number", "#", right=True),
        tag("th", "changes", scope="col"),
    ]
    head += [sorter("status", "status"), sorter("phase", "phase"), *(sorter(metric, metric, right=True) for metric in metrics)]
    head += [sorter("cost_s", "cost s", right=True), *(sorter(knob, knob) for knob in knobs), tag("th", "reason", scope="col")]
    rows = []
    for trial in listing.trials:
        answer, name = trial.measurement, view.name_of(trial.config)
        invalid = [" ", badge("invalid", "warn")] if trial.number in view.invalid else []
        reason = one_line(answer.reason, 300)
        cells = [
            tag("td", tag("input", type="checkbox", name="trial", value=trial.number, aria_label=f"compare trial {trial.number}")),
            number_cell(tag("a", f"#{trial.number}", href=f"{here}/{trial.number}")),
            tag("td", tag("span", name, class_="name", title=name)),
            tag("td", status_badge(task, trial), *invalid),
            tag("td", trial.proposal.origin.phase.value),
            *(number_cell(show_metric(answer, metric)) for metric in metrics),
            number_cell(show_number(answer.cost_s)),
            *(tag("td", show(trial.config[knob]) if knob in trial.config else "-") for knob in knobs),
            tag("td", tag("span", reason, class_="reason", title=reason)),
        ]
        role = " default" if trial.config == view.result.default_config else " best" if trial.config == view.result.best_config else ""
        rows.append(tag("tr", *cells, class_=f"status-{answer.status.value}{role}"))
    body = tag(
        "table", tag("caption", "Trials", class_="quiet"), tag("thead", tag("tr", *head)), tag("tbody", *rows), id="trials", class_="paged"
    )
    scrolled = tag("div", body, class_="scroll tall", tabindex="0", role="region", aria_label="Trials")
    compare = tag(
        "form",
        tag("p", tag("button", "Compare the two that are ticked", type="submit")),
        scrolled,
        method="get",
        action=f"/studies/{entry.key}/diff",
    )
    return section("all", "Trials", _filter(here, query), _pager(here, query, listing.page, listing.pages, listing.count), compare)


def _filter(here: str, query: TrialQuery) -> Markup:
    choices = [("", "all"), (FAILED, "all failures"), *((status.value, status.value) for status in Status if status is not Status.ABORTED)]
    options = [tag("option", title, value=value, selected=value == query.status) for value, title in choices]
    parts = [
        tag("label", "status ", tag("select", *options, name="status")),
        tag("label", "contains ", tag("input", type="search", name="text", value=query.text)),
        tag("input", type="hidden", name="sort", value=query.sort),
        tag("input", type="hidden", name="down", value=int(query.down)),
        tag("button", "Show", type="submit"),
    ]
    return tag("form", *parts, method="get", action=here, class_="controls filter", role="search")


def _pager(here: str, query: TrialQuery, page: int, pages: int, count: int) -> Markup:
    steps = [("first", 1), ("previous", page - 1), ("next", page + 1), ("last", pages)]
    links: list[object] = []
    for title, to in steps:
        there = 1 <= to <= pages and to != page
        links += [tag("a", title, href=here + query.link(page=to)) if there else tag("span", title, class_="quiet"), " "]
    return tag("nav", f"{count:,} trials, page {page:,} of {pages:,} ", *links, class_="pager", aria_label="Pages of trials")


def studies_table(rows: list[dict[str, object]], caption: str) -> Markup:
    """A list of studies; each may be ticked for a comparison."""
    head = [tag("th", tag("span", "compare", class_="unseen"), scope="col"), "study", "system", "state", "result"]
    head += [tag("th", title, scope="col", class_="number") for title in ("trials", "failed", "time")] + ["begun"]
    return table(head, [_study_cells(row) for row in rows], caption)


def _study_cells(row: dict[str, object]) -> list[object]:
    key, name = str(row["key"]), str(row["name"])
    running = int(str(row["running"]))
    word: object = badge(f"running: {running}", "good") if running else badge("idle", "plain")
    result: object = tag("span", "not read yet", class_="quiet")
    if "verdict" in row:
        best = f"{row['metric']} {show_number(row['best'])}" if isinstance(row["best"], float) else ""
        changes = tag("div", f"{best}  {row['best_name'] or ''}", class_="quiet small") if best else ""
        verdict = Verdict(str(row["verdict"]))
        text = _gain_words(row) if verdict is Verdict.GAIN else "so far" if running else verdict.value
        simulated = [" ", badge("simulated", "simulated")] if row["simulated"] else []
        result = join([badge(text, "plain" if running and verdict is not Verdict.GAIN else KINDS[verdict]), *simulated, changes])
    return [
        tag("td", tag("input", type="checkbox", name="study", value=key, aria_label=f"compare {name}")),
        tag("th", tag("a", name, href=f"/studies/{quote(key)}"), scope="row"),
        str(row["system"]),
        tag("td", word),
        tag("td", result),
        number_cell(f"{row['trials']:,}"),
        number_cell(row.get("failed", "")),
        number_cell(show_duration(float(str(row["spent_s"]))) if "spent_s" in row else ""),
        moment(float(str(row["created_s"]))),
    ]


def _gain_words(row: dict[str, object]) -> str:
    gain = row["gain"]
    ratio = gain.get("ratio") if isinstance(gain, dict) else None
    return f"gain {show_gain(ratio)}" if isinstance(ratio, float) else "gain"


__all__ = ["actions_part", "field", "form", "moment", "state", "studies_table", "top", "trials_part"]

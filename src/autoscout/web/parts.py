"""The parts of a study's page that a report does not have: its state, what can be asked of it, the list of trials."""

from __future__ import annotations

from autoscout.analysis.labels import one_line, short_worker, show_metric
from autoscout.common.markup import Markup, badge, join, number_cell, tag
from autoscout.common.text import show, show_duration, show_number
from autoscout.core.trial import Status
from autoscout.report.elements import section, status_badge
from autoscout.report.sections.header import facts, goal_lines, hero
from autoscout.web.actions import describe_actions
from autoscout.web.guard import Session
from autoscout.web.library import StudyEntry
from autoscout.web.live import LiveView
from autoscout.web.studies import STANDS, moment, state_badge, tag_links
from autoscout.web.trials import FAILED, TrialQuery, list_trials

MOST_KNOBS = 8
"""Knobs that get a column in the list of trials."""


def top(entry: StudyEntry, view: LiveView) -> Markup:
    """Name, goal, state, verdict and figures."""
    summary = view.summary
    judged = bool(summary.gain.pairs) or view.about.exact
    kicker = f"{summary.task.system} study, begun {moment(view.record.created_s)}"
    return tag(
        "header",
        tag("p", kicker, class_="kicker"),
        tag("h1", entry.title),
        words_of(entry),
        goal_lines(summary),
        state(entry, view),
        hero(summary, so_far=bool(view.running) and not judged)
        if view.valid_trials
        else tag("p", "No trial has ended yet.", class_="hero"),
        facts(summary),
    )


def state(entry: StudyEntry, view: LiveView) -> Markup:
    """Whether somebody works on it or how it ended, and how much of the budget is used."""
    names = sorted({short_worker(worker) for worker in view.pulse.workers})
    who = tag("span", ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else ""), class_="quiet small")
    word = state_badge(entry.state, len(view.pulse.workers))
    bounds = view.budget
    told_of = [f"{view.searched} of {bounds.trials} trials of the search"] if bounds.trials else [f"{view.searched} trials of the search"]
    told_of += [f"{show_duration(view.summary.spent.wall_s)} of {show_duration(bounds.wall_s)}"] if bounds.wall_s else []
    bar = tag("progress", f"{view.used:.0%}", max="1", value=f"{view.used:.3f}", aria_label="budget used")
    said = tag("p", STANDS[entry.state], class_="quiet small")
    return tag(
        "div", word, " ", who, said, tag("p", bar, " ", "; ".join(told_of), class_="quiet small"), class_="state", id=f"state-{entry.key}"
    )


def words_of(entry: StudyEntry) -> Markup:
    """What people say of it: tags and a note, and the study's own name where they gave it another."""
    said = entry.description
    name = tag("p", f"study {entry.record.name}", class_="quiet small") if said.title else ""
    tags = tag("p", *tag_links(said.tags), badge("archived", "plain") if said.archived else "", class_="tags")
    note = tag("p", said.note, class_="words") if said.note else ""
    return join([name, tags if said.tags or said.archived else "", note])


def _words_form(entry: StudyEntry, session: Session) -> Markup:
    """A form for the title, the tags and the note, and a button that puts the study away."""
    said = entry.description
    note = tag("label", "note", tag("textarea", said.note, name="note", rows=4), class_="wide")
    fields = [
        field("title", "title", entry.record.name, said.title, wide=True),
        field("tags", "tags", "nightly, h100", ", ".join(said.tags)),
        note,
    ]
    archive = "no" if said.archived else "yes"
    put = tag("p", "Bring it back into the list." if said.archived else "Lists leave it out; nothing is lost.", class_="quiet small")
    hidden = tag("input", type="hidden", name="archived", value=archive)
    forms = [
        form(entry, session, "describe", "Save", *fields),
        form(entry, session, "describe", "Unarchive" if said.archived else "Archive", put, hidden),
    ]
    return section("words", "Title, tags and note", tag("div", *forms, class_="forms"))


def actions_part(entry: StudyEntry, view: LiveView, session: Session | None, can_act: bool) -> Markup:
    """What can be asked of the study, and what was."""
    asked = [tag("li", tag("b", what), ": ", answer) for what, answer in describe_actions(view.actions)[:20]]
    history = tag("ul", *asked, class_="asked") if asked else ""
    lead = "The process that runs the study reads these between two trials; without one they wait until it is resumed."
    if not entry.steerable:
        return section("actions", "Steer the study", tag("p", "Its store keeps no actions.", class_="quiet"), history)
    if not can_act:
        words = (
            "Read-only: start the dashboard with --token-file to stop a study, add budget, try a configuration, mark a trial invalid,"
            " or write a title, tags and a note."
        )
        return section("actions", "Steer the study", tag("p", words, class_="quiet"), history)
    if session is None or not session.csrf:
        return section("actions", "Steer the study", tag("p", tag("a", "Sign in with the token", href="/login"), " to steer it."), history)
    forms = [
        form(entry, session, "stop", "Stop", tag("p", "Finish the trials under way and end.", class_="quiet small")),
        form(entry, session, "budget", "Add budget", field("trials", "trials to add", "10"), field("time", "time to add", "30m")),
        form(entry, session, "try", "Try it", field("settings", "configuration to try", _example(view), wide=True)),
    ]
    steer = section("actions", "Steer the study", tag("div", *forms, class_="forms"), history, lead=lead)
    return join([steer, _words_form(entry, session)])


def _example(view: LiveView) -> str:
    knob = next((knob for knob in view.about.knobs if len(knob.values) > 1), None)
    return f"{knob.name}={show(knob.values[-1])}" if knob else "knob=value"


def form(entry: StudyEntry, session: Session, kind: str, title: str, *fields: object) -> Markup:
    """A form that asks for an action."""
    hidden = [tag("input", type="hidden", name=name, value=value) for name, value in (("kind", kind), ("csrf", session.csrf))]
    button = tag("button", title, type="submit", class_="act")
    return tag("form", *hidden, *fields, button, method="post", action=f"/studies/{entry.key}/actions", class_=f"act-{kind}")


def field(name: str, label: str, example: str, value: str = "", *, wide: bool = False) -> Markup:
    """A labelled field of a form."""
    return tag(
        "label",
        label,
        tag("input", type="text", name=name, placeholder=example, value=value or None, autocomplete="off"),
        class_="wide" if wide else None,
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
        role = " default" if trial.config == view.result.reference else " best" if trial.config == view.result.best_config else ""
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


__all__ = ["actions_part", "field", "form", "state", "top", "trials_part"]

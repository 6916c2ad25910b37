"""Every trial as a table."""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.analysis.labels import one_line, show_metric, show_spent
from autoscout.common.markup import Markup, badge, join, number_cell, tag
from autoscout.common.text import show, show_number
from autoscout.core.trial import Trial
from autoscout.report.elements import lead_line, status_badge
from autoscout.report.view import StudyView

MOST_ROWS = 2000
"""Trials that the table lists; all are in summary.csv."""


def trials_section(view: StudyView) -> Markup:
    """The inside of the section; JavaScript sorts and filters the rows."""
    if not view.trials:
        return Markup("")
    objective, knobs = view.summary.task.objective, view.result.varied
    metrics = list(dict.fromkeys([*(goal.metric for goal in objective.goals), *(limit.metric for limit in objective.limits)]))
    columns = [("#", True), ("name", False), ("status", False), ("phase", False), *((metric, True) for metric in metrics), ("cost s", True)]
    columns += [(knob, False) for knob in knobs]
    has_reasons = any(view.trials[index].measurement.reason for index in listed(view))
    columns += [("reason", False)] if has_reasons else []
    head = [tag("th", tag("button", text, type="button"), scope="col", class_="number" if right else None) for text, right in columns]
    rows = [_row(view, index, view.trials[index], metrics, knobs, has_reasons) for index in listed(view)]
    body = tag("table", tag("caption", "All trials", class_="quiet"), tag("thead", tag("tr", *head)), tag("tbody", *rows), id="trials")
    search = tag("input", type="search", id="filter", placeholder="filter: text, status or knob value", aria_label="Filter the trials")
    controls = tag("p", search, tag("span", "", id="shown", class_="quiet", role="status"), class_="controls")
    lead = f"The newest {len(rows)} of {len(view.trials)}; all are in summary.csv." if len(rows) < len(view.trials) else ""
    return join([lead_line(lead), controls, tag("div", body, class_="scroll tall", tabindex="0", role="region", aria_label="All trials")])


def listed(view: StudyView) -> range:
    """Indices of the trials that the table lists: the newest."""
    return range(max(0, len(view.trials) - MOST_ROWS), len(view.trials))


def _row(view: StudyView, index: int, trial: Trial, metrics: Sequence[str], knobs: Sequence[str], has_reason: bool) -> Markup:
    answer, name, result = trial.measurement, view.result.name_of(trial.config), view.result
    role = " default" if trial.config == result.reference else " best" if trial.config == result.best_config else ""
    log = [" ", tag("a", "log", href=view.links[trial.number])] if trial.number in view.links else []
    cells = [
        number_cell(trial.number, data_sort=trial.number),
        tag("td", tag("span", name, class_="name", title=name), badge(role.strip(), "plain") if role and name != role.strip() else ""),
        tag("td", status_badge(view.summary.task, trial), *log),
        tag("td", trial.proposal.origin.phase.value),
        *(number_cell(show_metric(answer, each), data_sort=answer.bounds.get(each, answer.metrics.get(each))) for each in metrics),
        number_cell(show_number(answer.cost_s), data_sort=answer.cost_s, title=show_spent(answer) or None),
        *(tag("td", show(trial.config[knob]) if knob in trial.config else "-", data_sort=trial.config.get(knob)) for knob in knobs),
    ]
    if has_reason:
        cells.append(tag("td", tag("span", one_line(answer.reason, 300), class_="reason", title=one_line(answer.reason, 300))))
    return tag("tr", *cells, data_i=index, class_=f"status-{answer.status.value}{role}")


__all__ = ["MOST_ROWS", "listed", "trials_section"]

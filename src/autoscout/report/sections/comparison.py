"""Default and best, metric by metric, and the knobs that differ."""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.analysis.contributions import Contribution, shown_contributions
from autoscout.analysis.labels import show_limit
from autoscout.analysis.limits import LimitState
from autoscout.analysis.pooled import PooledRuns
from autoscout.analysis.price import mark
from autoscout.analysis.summary import Summary
from autoscout.common.markup import Markup, badge, join, number_cell, table, tag
from autoscout.common.text import enumeration, show_number
from autoscout.report.elements import lead_line
from autoscout.report.meanings import meaning
from autoscout.report.metrics import show_change
from autoscout.report.view import StudyView

_STATES = {LimitState.KEPT: "good", LimitState.UNSURE: "warn", LimitState.BROKEN: "bad", LimitState.MISSING: "bad"}


def comparison_section(view: StudyView) -> Markup:
    """The inside of the section; nothing where neither ran."""
    summary = view.summary
    titles, sides = list(summary.sides), list(summary.sides.values())
    if not any(side and side.runs for side in sides):
        return Markup("")
    objective = summary.task.objective
    limited = list(dict.fromkeys(limit.metric for limit in objective.limits))
    others = sorted({name for side in sides if side for name in side.metrics} - {objective.metric, *limited})
    rows = []
    for name in dict.fromkeys([objective.metric, *limited, *others]):
        values = [side.metrics.get(name) if side else None for side in sides]
        one, other = (side.metrics.get(name) if side else None for side in (summary.reference, summary.best))
        change = show_change(summary, name)
        word = mark(name, one, other, objective)
        cells = [
            number_cell(join([show_number(value), _spread(side, name, objective.metric)]))
            for side, value in zip(sides, values, strict=True)
        ]
        head_cell = tag("th", name, scope="row", title=meaning(name) or None)
        rows.append([head_cell, *cells, number_cell(tag("span", f"{change} {word}".strip(), class_=word or None))])
    for limit in objective.limits:
        marks = [next((check for check in side.limits if check.limit == limit), None) if side else None for side in sides]
        cells = [number_cell("-" if mark is None else badge(mark.word.lower(), _STATES[mark.state])) for mark in marks]
        rows.append([tag("th", f"limit {show_limit(limit)}", scope="row"), *cells, number_cell("")])
    rows.append([tag("th", "runs", scope="row"), *(number_cell(side.runs if side else 0) for side in sides), number_cell("")])
    head = ["metric", *(tag("th", text, scope="col", class_="number") for text in (*titles, "change"))]
    metrics = table(head, rows, f"{enumeration(titles).capitalize()}, metric by metric")
    body = tag("div", metrics, changes(summary, view.result.contributions), class_="columns wide")
    lead = (
        f"The {summary.contender} did best when measured again together with the {summary.reference_name}; values are medians of the runs."
    )
    if not summary.gain.pairs:
        lead = "Single measurements of the search, which make the best look better than it is: there was no final."
    return join([lead_line(lead), body])


def _spread(side: PooledRuns | None, name: str, metric: str) -> object:
    if side is None or side.spread is None or name != metric:
        return ""
    return tag("span", f" ± {side.spread * 100:.1f} %", class_="quiet")


def changes(summary: Summary, contributions: Sequence[Contribution] = ()) -> Markup:
    """The knobs to turn, and what each contributes."""
    worth = shown_contributions(contributions)
    if not summary.changes:
        return tag("p", "There is no other configuration to hand over." if summary.best is None else "No knob differs.", class_="quiet")
    rows = []
    for change in summary.changes:
        after = "not used" if change.best_absent else change.after
        unit = tag("span", f" {change.unit}", class_="quiet") if change.unit else ""
        warning = tag("div", f"gives up: {change.warning}", class_="worse small") if change.warning else ""
        note = join([tag("div", change.help, class_="quiet small") if change.help else "", warning])
        name = tag("th", tag("code", change.knob), note, scope="row")
        rows.append(
            [
                name,
                number_cell("not used" if change.default_absent else tag("del", change.before)),
                number_cell(join([tag("ins", after), unit])),
                *([number_cell(worth.get(change.knob, ""))] if worth else []),
            ]
        )
    titles = (summary.reference_name, summary.contender, *(["contributes"] if worth else []))
    head = ["knob", *(tag("th", text, scope="col", class_="number") for text in titles)]
    return table(head, rows, f"Knobs that differ from the {summary.reference_name}")


__all__ = ["changes", "comparison_section"]

"""The windows that a study did not judge on: how far the answer and the default stand from each limit there."""

from __future__ import annotations

from autoscout.analysis.unseen import UnseenLimit
from autoscout.common.markup import Markup, badge, join, number_cell, table, tag
from autoscout.common.text import show_number
from autoscout.report.elements import lead_line
from autoscout.report.view import StudyView

COLUMNS = ("value", "of the limit", "at requests/s", "capacity there")


def unseen_section(view: StudyView) -> Markup:
    """The inside of the section; nothing for a study without such windows."""
    unseen = view.unseen
    if unseen is None:
        return Markup("")
    lead = lead_line(f"{unseen.sentence}.")
    if unseen.unknown:
        return lead
    numbers = (tag("th", text, scope="col", class_="number") for text in COLUMNS)
    head = ["configuration", "window", "limit", *numbers, ""]
    return join([lead, table(head, [_cells(row) for row in unseen.rows], "Limits in windows not judged on; simulated, not measured")])


def _cells(row: UnseenLimit) -> list[object]:
    share = "-" if row.share is None else f"{row.share:.0%}"
    rate, capacity = ("-" if value is None else show_number(value) for value in (row.rate, row.capacity))
    state = badge("holds", "good") if row.holds else badge("broken", "bad")
    value = "-" if row.value is None else show_number(row.value)
    return [row.name, row.window, row.limit, *map(number_cell, (value, share, rate, capacity)), state]


__all__ = ["unseen_section"]

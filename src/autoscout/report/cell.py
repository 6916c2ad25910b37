"""The result as a cell of a notebook shows it: the verdict, the changed knobs and the curve, without style sheet or script."""

from __future__ import annotations

from typing import Protocol

from autoscout.analysis.summary import Summary
from autoscout.common.markup import Markup, tag
from autoscout.common.text import plural, show_duration, show_number


def result_cell(summary: Summary) -> Markup:
    """HTML of a few lines; everything that engines and people wrote is escaped."""
    objective = summary.task.objective
    rows = [tag("tr", *(tag("th", text) for text in ("", *summary.sides)))]
    values = [show_number(side.value) if side else "-" for side in summary.sides.values()]
    columns = [title for title in summary.sides if title in (summary.reference_name, summary.contender)]
    rows.append(tag("tr", tag("th", objective.metric), *(tag("td", value) for value in values)))
    for change in summary.changes:
        sides = dict(zip(columns, (change.before, change.after), strict=False))
        rows.append(tag("tr", tag("th", change.knob), *(tag("td", sides.get(title, "")) for title in summary.sides)))
    spent = summary.spent
    cost = f"{plural(spent.trials, 'trial')} of {plural(spent.configs, 'configuration')} in {show_duration(spent.wall_s)}"
    title = f"{summary.study or summary.task.system}: {summary.verdict.value}"
    return tag("div", tag("strong", title), tag("p", summary.headline), tag("table", *rows), tag("p", tag("small", cost)))


class _HasSummary(Protocol):
    @property
    def summary(self) -> Summary: ...


def show_in_notebooks(*classes: type[_HasSummary]) -> None:
    """Let notebooks show objects of these classes as such a cell; the classes themselves lie below this package and know no HTML."""
    for kind in classes:
        kind._repr_html_ = lambda self: result_cell(self.summary)  # type: ignore[attr-defined]


__all__ = ["result_cell", "show_in_notebooks"]

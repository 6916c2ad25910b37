"""Predictions of a simulator next to what was measured, as a picture and a table."""

from __future__ import annotations

from autoscout.analysis.predicted import PredictedTrial, Predictions
from autoscout.common.draw import Scale, label, line, thin
from autoscout.common.markup import Markup, badge, join, number_cell, table, tag
from autoscout.common.text import show_number, show_percent
from autoscout.report.elements import lead_line, plot, scrolled
from autoscout.report.meanings import axis_name
from autoscout.report.view import StudyView

MOST_DOTS = 1500
MEMBER_COLUMNS = ("weight", "error", "R²", "rank agreement")
SHOWN = 60
"""Rows of the table in the page; the rest is in the journal."""


def predicted_section(view: StudyView) -> Markup:
    """The inside of the section; nothing for a study without a simulator."""
    predictions = view.predictions
    if predictions is None or not (predictions.rows or predictions.members):
        return Markup("")
    head = ["trial", "name", *(tag("th", text, scope="col", class_="number") for text in ("predicted", "measured", "error"))]
    drawing = predicted_plot(predictions)
    parts: list[object] = [lead_line(f"{predictions.sentence}."), scrolled(drawing) if drawing is not None else ""]
    if predictions.members:
        columns = ["simulator", *(tag("th", text, scope="col", class_="number") for text in MEMBER_COLUMNS)]
        rows = [[name, *map(number_cell, rest)] for name, *rest in predictions.cells]
        parts.append(table(columns, rows, "Simulators by weight; errors are on trials that each was not fitted to"))
    parts += [table(head, [_cells(row) for row in predictions.rows[-SHOWN:]], f"{predictions.metric}, predicted and measured")]
    if len(predictions.rows) > SHOWN:
        parts.append(tag("p", f"Shown: the last {SHOWN} of {len(predictions.rows)}.", class_="quiet small"))
    # the pictures are ours, made from numbers and escaped names
    return join([*parts, *(scrolled(Markup(picture)) for picture in predictions.pictures)])


def predicted_plot(predictions: Predictions) -> Markup | None:
    """Predicted across, measured up, and the line on which both are the same; None for fewer than two points."""
    good = [(row, row.measured) for row in predictions.good if row.measured is not None and row.predicted > 0 and row.measured > 0]
    if len(good) < 2:
        return None
    both = [value for row, measured in good for value in (row.predicted, measured)]
    across, up = Scale.over(both, 70, 440), Scale.over(both, 330, 20)
    parts = []
    for tick in across.ticks():
        x, y = across.place(tick), up.place(tick)
        parts += [line(x, 20, x, 330, "grid"), line(70, y, 440, y, "grid")]
        parts.append(label(f"{tick:g}", x, 348, class_="tick", text_anchor="middle"))
        parts.append(label(f"{tick:g}", 62, y + 4, class_="tick", text_anchor="end"))
    parts.append(line(across.place(across.low), up.place(up.low), across.place(across.high), up.place(up.high), "default"))
    for index in thin(len(good), MOST_DOTS):
        row, measured = good[index]
        tip = tag("title", f"#{row.trial} {row.name}: predicted {show_number(row.predicted)}, measured {show_number(measured)}")
        x, y = across.place(row.predicted), up.place(measured)
        parts.append(tag("circle", tip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.6, class_="dot measured", data_n=row.trial))
    parts.append(label(axis_name("measured", log=up.log), 8, 14, class_="axis-name"))
    parts.append(label("predicted", 255, 370, class_="axis-name", text_anchor="middle"))
    title = f"{predictions.metric}: predicted against measured; on the line both are the same"
    return plot(*parts, width=460, height=380, title=title, kind="predicted")


def _cells(row: PredictedTrial) -> list[object]:
    measured: object = show_number(row.measured) if row.measured is not None else badge(row.status, "bad")
    error = show_percent(1.0 + row.error) if row.error is not None else ""
    return [f"#{row.trial}", row.name, number_cell(show_number(row.predicted)), number_cell(measured), number_cell(error)]


__all__ = ["predicted_section"]

"""What a simulator predicted, compared with what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoscout.common.draw import Scale, label, line, picture
from autoscout.common.markup import Markup, badge, number_cell, table, tag
from autoscout.common.stats import kendall
from autoscout.common.text import show_number, show_percent
from autoscout.report.sections import section
from autoscout.report.thin import thin

MOST_DOTS = 1500
SHOWN = 60
"""Rows of the table in the page; the rest is in the journal."""


@dataclass(frozen=True, kw_only=True)
class PredictedTrial:
    """One measured configuration and its prediction."""

    trial: int
    name: str
    predicted: float
    measured: float | None  # None when it failed
    status: str = "ok"

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0 if self.measured else None


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """Predictions of a study, in the order of measuring; `pictures` are SVG of where the predicted time goes."""

    simulator: str
    metric: str
    rows: tuple[PredictedTrial, ...]
    pictures: tuple[str, ...] = ()

    @property
    def good(self) -> list[PredictedTrial]:
        return [row for row in self.rows if row.error is not None]

    @property
    def mean_error(self) -> float | None:
        errors = [abs(row.error) for row in self.good if row.error is not None]
        return float(np.mean(errors)) if errors else None

    @property
    def rank(self) -> float | None:
        """Kendall's tau; None for fewer than three."""
        if len(self.good) < 3:
            return None
        return kendall(np.array([row.predicted for row in self.good]), np.array([row.measured for row in self.good], dtype=np.float64))

    @property
    def sentence(self) -> str:
        """The whole in one line."""
        if self.mean_error is None:
            return f"{self.simulator}: no measured configuration to compare its predictions with"
        agreement = f", rank agreement {self.rank:.2f}" if self.rank is not None else ""
        failed = len(self.rows) - len(self.good)
        failures = f"; {failed} failed" if failed else ""
        count, error = len(self.good), f"{self.mean_error:.0%}"
        return f"{self.simulator} predicted {count} measured configurations with a mean error of {error}{agreement}{failures}"

    def to_json(self) -> dict[str, Any]:
        rows = [{**vars(row), "error": row.error} for row in self.rows]
        return {"simulator": self.simulator, "mean_error": self.mean_error, "rank": self.rank, "rows": rows}


def predicted_section(predictions: Predictions | None) -> Markup:
    """The part of the page; nothing for a study without a simulator."""
    if predictions is None or not predictions.rows:
        return Markup("")
    head = ["trial", "name", *(tag("th", text, scope="col", class_="number") for text in ("predicted", "measured", "error"))]
    plot = predicted_plot(predictions)
    parts: list[object] = [tag("div", plot, class_="scroll")] if plot is not None else []
    parts += [table(head, [_cells(row) for row in _shown(predictions.rows)], f"{predictions.metric}, predicted and measured")]
    if len(predictions.rows) > SHOWN:
        parts.append(tag("p", f"Shown: the last {SHOWN} of {len(predictions.rows)}.", class_="quiet small"))
    # the pictures are ours, made from numbers and escaped names
    parts += [tag("div", Markup(picture), class_="scroll") for picture in predictions.pictures]
    return section("predicted", "Predicted and measured", *parts, lead=f"{predictions.sentence}.")


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
    for place in thin(len(good), MOST_DOTS):
        row, measured = good[place]
        tip = tag("title", f"#{row.trial} {row.name}: predicted {show_number(row.predicted)}, measured {show_number(measured)}")
        x, y = across.place(row.predicted), up.place(measured)
        parts.append(tag("circle", tip, cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.6, class_="dot measured", data_n=row.trial))
    parts.append(label("measured" + (" (log)" if up.log else ""), 8, 14, class_="axis-name"))
    parts.append(label("predicted", 255, 370, class_="axis-name", text_anchor="middle"))
    title = f"{predictions.metric}: predicted against measured; on the line both are the same"
    return picture(*parts, width=460, height=380, title=title, class_="plot predicted", style="--wide:460px")


def _shown(rows: Sequence[PredictedTrial]) -> Sequence[PredictedTrial]:
    return rows[-SHOWN:]


def _cells(row: PredictedTrial) -> list[object]:
    measured: object = show_number(row.measured) if row.measured is not None else badge(row.status, "bad")
    error = show_percent(1.0 + row.error) if row.error is not None else ""
    return [f"#{row.trial}", row.name, number_cell(show_number(row.predicted)), number_cell(measured), number_cell(error)]

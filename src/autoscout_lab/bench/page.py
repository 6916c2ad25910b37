"""The scores of a race as text, as a page that needs nothing else (HTML with SVG), and as pictures (PNG)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autoscout.common.draw import HEIGHT, PALETTE, WIDTH, Line, chart, picture
from autoscout.common.markup import Markup, join, number_cell, table, tag
from autoscout.core.errors import Fault, PluginError
from autoscout_lab.bench.score import WITHIN, Score, Scores

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;background:#fff}
table{border-collapse:collapse;margin:1rem 0}th,td{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:left}
td.number{text-align:right;font-variant-numeric:tabular-nums}.scroll{overflow-x:auto}.quiet{color:#666;text-align:left}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(22rem,1fr));gap:1rem}svg{width:100%;height:auto}
svg text{font:11px system-ui,sans-serif;fill:#444}
@media(prefers-color-scheme:dark){body{background:#16181b;color:#e6e6e6}svg text{fill:#bbb}th,td{border-color:#333}}
"""
HEAD = ("searcher", "mean rank", "95 %", "area", "to 1 %", "to 5 %", "to 10 %", "within 5 %", "failures", "ms", "ms late")


def cells(score: Score) -> list[str]:
    """One row of the table for people, under `HEAD`."""
    return [
        score.searcher,
        f"{score.rank:.2f}",
        f"{score.rank_low:.2f}-{score.rank_high:.2f}",
        f"{score.area:.4f}",
        *(f"{score.evaluations_to[within]:.1f}" for within in WITHIN),
        f"{100 * score.reached[0.05]:.0f} %",
        "-" if score.failures is None else f"{100 * score.failures:.1f} %",
        f"{score.median_ms:.2f}",
        f"{score.late_ms:.2f}",
    ]


_MARKS = (1, 5, 10, 25, 50, 100, 200, 400, 800)


def as_text(scores: Scores) -> str:
    """The figures over all tables, then the mean regret after some evaluations, in aligned columns."""
    marks = [mark for mark in _MARKS if mark <= scores.budget]
    curves = [[line.searcher, *(f"{line.curve[mark - 1]:.4f}" for mark in marks)] for line in scores.overall]
    return "\n\n".join(
        (
            f"budget {scores.budget}, {scores.seeds} seeds; `to x %`: evaluations to within x % of the optimum",
            aligned([list(HEAD), *(cells(line) for line in scores.overall)]),
            "mean regret (0 optimum, 1 median) after evaluations",
            aligned([["searcher", *map(str, marks)], *curves]),
        )
    )


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of one width, all but the first to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(text.rjust(width) if column else text.ljust(width) for column, (text, width) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    )


def as_page(scores: Scores, title: str = "Searchers on recorded tables", note: str = "") -> str:
    """One HTML file with all figures and curves; `note` says what else a reader must know of the race."""
    colours = {score.searcher: PALETTE[index % len(PALETTE)] for index, score in enumerate(scores.overall)}
    names = list(dict.fromkeys(score.table for score in scores.by_table))
    grouped = {name: [score for score in scores.by_table if score.table == name] for name in names}
    plots = [_plot("all tables", scores.overall, colours), *(_plot(name, grouped[name], colours) for name in names)]
    body = [
        tag("p", f"Budget {scores.budget}, {scores.seeds} seeds, {len(names)} tables. Regret is 0 at the optimum, 1 at the median."),
        *([tag("p", note)] if note else []),
        _figures(scores.overall, "All tables", colours),
        tag("div", *plots, class_="plots"),
        *(_figures(sorted(grouped[name], key=lambda score: score.area), name, colours) for name in names),
    ]
    return document(title, body)


def document(title: str, body: Sequence[Markup]) -> str:
    """A page that needs nothing else."""
    head = join([tag("meta", charset="utf-8"), tag("title", title), tag("style", Markup(_STYLE))])
    return "<!doctype html>\n" + tag("html", tag("head", head), tag("body", tag("h1", title), *body), lang="en")


def _figures(scores: Sequence[Score], caption: str, colours: dict[str, str]) -> Markup:
    rows = []
    for score in scores:
        first, *others = cells(score)
        mark = tag("span", "■ ", style=f"color:{colours[score.searcher]}")
        rows.append([join([mark, first]), *(number_cell(text) for text in others)])
    return table(HEAD, rows, caption)


def _plot(name: str, scores: Sequence[Score], colours: dict[str, str]) -> Markup:
    """Mean regret over evaluations."""
    lines = {score.searcher: (np.arange(1.0, len(score.curve) + 1), np.asarray(score.curve, dtype=np.float64)) for score in scores}
    return lines_plot(name, lines, "evaluations", f"Mean regret on {name}", colours)


def lines_plot(name: str, lines: dict[str, Line], across: str, title: str = "", colours: dict[str, str] | None = None) -> Markup:
    """A chart as part of a page."""
    return picture(chart(name, lines, across, colours=colours), width=WIDTH, height=HEIGHT, title=title or name)


def write_png(scores: Scores, path: Path) -> None:
    """Mean regret over all tables as a picture.

    Raises:
        PluginError: matplotlib is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib's own, about its dependencies
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            rule = "PNG plots need the package matplotlib"
            raise PluginError(Fault(where=str(path), rule=rule, fix="pip install 'autoscout[bench]', or read the HTML page")) from error
        figure = Figure(figsize=(8, 5), dpi=120)
        axes = figure.add_subplot()
        for index, score in enumerate(scores.overall):
            axes.plot(range(1, len(score.curve) + 1), score.curve, label=score.searcher, color=PALETTE[index % len(PALETTE)])
        axes.set(xlabel="evaluations", ylabel="mean regret", yscale="log")
        axes.legend(fontsize=8)
        figure.tight_layout()
        figure.savefig(path)

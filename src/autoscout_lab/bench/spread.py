"""How good and bad configurations are spread in recorded tables: Figures 1 and 2 of the AutoScout paper, on measurements of anybody's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from autoscout.analysis.distribution import NEAR, Distribution, Spread, distribution_of
from autoscout.common.draw import Line
from autoscout.common.markup import number_cell, tag
from autoscout.common.markup import table as table_of
from autoscout.common.text import show_number
from autoscout.core.origin import Origin
from autoscout.core.trial import Proposal, Trial
from autoscout_lab.bench.page import aligned, document, lines_plot
from autoscout_lab.bench.table import Table

_NOTE = "All rows of a table count. What it does not hold, because nobody measured it, is not spoken for."
_CHOSEN = "A searcher may have chosen the rows of a past study: they are no sample of its space. `autoscout report` tells them apart."
_HEAD = ("table", "configurations", *(f"within {share:.0%}" for share in NEAR), "failed", "best over worst")
_MIDDLE = NEAR[1]


def distribution_of_table(table: Table, *, by_searcher: bool = False) -> Distribution | None:
    """The distribution of all rows of a table; None where values at or below zero have no ratio.

    Args:
        table: Changes of knobs are counted from its default.
        by_searcher: Whether a searcher chose its rows, as in a past study.
    """
    origin = Origin(by="grid")  # which lists, too
    trials = [
        Trial(proposal=Proposal(config=config, origin=origin), measurement=table.measurement(row))
        for row, config in enumerate(table.configs)
    ]
    whole = distribution_of(table.task, trials, table.space.default())
    if whole is None or whole.sample is None:
        return None
    return replace(whole, sample=replace(whole.sample, title="of the table"), note=_CHOSEN if by_searcher else _NOTE)


def as_text(distributions: Mapping[str, Distribution | None]) -> str:
    """A line a table, the sentence of each, and how the shares change with the number of changed knobs."""
    rows = [_row(name, each.counted) if each else [name, *["-"] * (len(_HEAD) - 1)] for name, each in distributions.items()]
    parts = [aligned([list(_HEAD), *rows])]
    for name, each in distributions.items():
        if each is None:
            parts.append(f"{name}: values at or below zero have no ratio, so nothing is said of it.")
            continue
        lines = [f"{name}: {each.sentence}."]
        if len(each.by_changes) > 1:
            groups = [["", "configurations", f"within {_MIDDLE:.0%}", "failed"], *(_group(spread) for spread in each.by_changes.values())]
            lines.append(aligned(groups))
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *_notes(distributions)])


def _notes(distributions: Mapping[str, Distribution | None]) -> list[str]:
    return list(dict.fromkeys(each.note for each in distributions.values() if each is not None))


def as_page(distributions: Mapping[str, Distribution | None]) -> str:
    """One HTML file: the same table, and of each table the curve of its configurations from the best to the worst."""
    complete = {name: each for name, each in distributions.items() if each is not None}
    curves = {name: _curve(each.counted) for name, each in complete.items()}
    axis = "share of the configurations, the best first"
    body = [
        *(tag("p", note) for note in _notes(distributions)),
        table_of(
            _HEAD, [[name, *map(number_cell, cells)] for name, *cells in (_row(name, each.counted) for name, each in complete.items())], ""
        ),
        tag("div", *(lines_plot(name, {"of the best's value": curve}, axis) for name, curve in curves.items()), class_="plots"),
        *(tag("p", f"{name}: {each.sentence}.") for name, each in complete.items()),
    ]
    return document("Good and bad configurations of recorded tables", body)


def _curve(spread: Spread) -> Line:
    """How good the configurations are that work, from the best to the worst, over their share of all."""
    values = 1.0 / np.asarray(spread.ratios)
    return (np.arange(len(values)) + 1.0) / spread.configs, values


def _row(name: str, spread: Spread) -> list[str]:
    near = [f"{spread.near(share)} ({spread.near(share) / spread.configs:.1%})" for share in NEAR]
    worst = "-" if spread.worst is None else f"{show_number(spread.worst)}x"
    return [name, str(spread.configs), *near, f"{spread.failed} ({spread.failed / spread.configs:.1%})", worst]


def _group(spread: Spread) -> list[str]:
    shares: Sequence[float] = (spread.near(_MIDDLE) / spread.configs, spread.failed / spread.configs)
    return [spread.title, str(spread.configs), *(f"{share:.1%}" for share in shares)]


__all__ = ["as_page", "as_text", "distribution_of_table"]

"""Good and bad configurations: how many lie near the best, and how many fail, by the number of knobs that are changed."""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.analysis.distribution import NEAR, Distribution, Spread
from autoscout.common.draw import Scale, label, line
from autoscout.common.markup import Markup, join, number_cell, table, tag
from autoscout.common.text import show_number
from autoscout.report.elements import lead_line, plot, scrolled
from autoscout.report.view import StudyView

MOST_GROUPS = 16
"""Rows of the table by changed knobs; those with more changes are in `report.json`."""

MIDDLE = NEAR[len(NEAR) // 2]  # of the shares that count as near, the one that the table by changed knobs shows


def distribution_section(view: StudyView) -> Markup:
    """The inside of the section; nothing where no configuration can be compared with another."""
    distribution = view.result.distribution
    if distribution is None:
        return Markup("")
    kinds = [spread for spread in (distribution.sample, distribution.searched) if spread is not None]
    groups = list(distribution.by_changes.values())
    parts: list[object] = [lead_line(f"{distribution.sentence}."), tag("p", distribution.caveat, class_="note")]
    drawing = ranked_plot(distribution)
    parts += [scrolled(drawing)] if drawing is not None else []
    parts += [_kinds_table(kinds)]
    if len(groups) > 1:
        caption = f"Those {distribution.counted.title}, by how many knobs differ from the {view.summary.reference_name}"
        parts += [_groups_table(groups[:MOST_GROUPS], caption)]
    if any(spread.bounded for spread in kinds):
        parts += [tag("p", "What was stopped early counts as near nothing: its number is not known.", class_="quiet small")]
    return join(parts)


def ranked_plot(found: Distribution) -> Markup | None:
    """How good the configurations are that ran, from the best to the worst; None for fewer than two."""
    ratios = found.counted.ratios
    if len(ratios) < 2:
        return None
    shares = [1.0 / ratio for ratio in ratios]
    across, up = Scale(low=0.0, high=1.0, start=70, end=620), Scale(low=0.0, high=1.0, start=240, end=20)
    parts: list[object] = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = across.place(tick), up.place(tick)
        parts += [line(70, y, 620, y, "grid"), label(f"{tick:.0%}", 62, y + 4, class_="tick", text_anchor="end")]
        parts += [label(f"{tick:.0%}", x, 258, class_="tick", text_anchor="middle")]
    total = found.counted.configs
    points = [(across.place((rank + 1) / total), up.place(share)) for rank, share in enumerate(shares)]
    path = "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    parts += [tag("path", d=path, class_="best")]
    parts += [label("of the best's value", 8, 14, class_="axis-name")]
    parts += [label("share of all configurations tried, the best first", 345, 280, class_="axis-name", text_anchor="middle")]
    title = f"{found.metric} of the configurations {found.counted.title}, the best first; the line ends where the rest failed"
    return plot(*parts, width=640, height=290, title=title, kind="distribution")


def _shares(spread: Spread) -> list[tuple[str, str]]:
    """What is shown of configurations, in words and as shares of all that were tried."""
    counts = [(f"within {share:.0%} of the best", spread.near(share)) for share in NEAR]
    counts += [("failed", spread.failed), ("break a limit", spread.broken)]
    worst = "" if spread.worst is None else f"{show_number(spread.worst)}x"
    shares = [(title, f"{count} ({count / spread.configs:.0%})") for title, count in counts]
    return [("tried", str(spread.configs)), *shares, ("best over worst", worst)]


def _kinds_table(spreads: Sequence[Spread]) -> Markup:
    head = ["configurations", *(tag("th", spread.title, scope="col", class_="number") for spread in spreads)]
    columns = [_shares(spread) for spread in spreads]
    rows = [[cells[0][0], *(number_cell(text) for _, text in cells)] for cells in zip(*columns, strict=True)]
    return table(head, rows, "Shares of all that were tried; failures and broken limits are near nothing")


def _groups_table(spreads: Sequence[Spread], caption: str) -> Markup:
    titles = ["tried", f"within {MIDDLE:.0%}", "failed"]
    head = ["knobs", *(tag("th", title, scope="col", class_="number") for title in titles)]
    rows = []
    for spread in spreads:
        shares = [f"{count / spread.configs:.0%}" for count in (spread.near(MIDDLE), spread.failed)]
        rows.append([spread.title, number_cell(spread.configs), *(number_cell(share) for share in shares)])
    return table(head, rows, caption)


__all__ = ["distribution_section"]

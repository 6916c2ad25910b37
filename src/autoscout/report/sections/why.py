"""Which knobs mattered, and the way from the default to the best."""

from __future__ import annotations

from collections.abc import Sequence

from autoscout.analysis.ablation import Ablation
from autoscout.analysis.contributions import Contribution, shown_contributions
from autoscout.analysis.importance import Importance, KnobShare
from autoscout.common.draw import Scale, box, label, line, text_width
from autoscout.common.markup import Markup, join, number_cell, table, tag
from autoscout.report.elements import lead_line, plot, scrolled
from autoscout.report.view import StudyView


def why_section(view: StudyView) -> Markup:
    """The inside of the section."""
    ablation = view.result.ablation
    parts = [_importance(view.result.importance)]
    if ablation is not None:
        parts.append(
            tag("div", tag("h3", f"From the {view.summary.reference_name} to the best"), _steps(ablation, view.result.contributions))
        )
    lead = "Shares say how much of the variation goes away when a knob is fixed; those of knobs that work together overlap."
    return join([lead_line(lead), tag("div", *parts, class_="columns")])


def _importance(importance: Importance) -> Markup:
    bars = importance_bars(importance)
    fit = f"{max(0.0, importance.fit):.0%}"
    lead = f"From {importance.configs} configurations; the model explains {fit} of the variation of trials it has not seen."
    inner: list[object] = [tag("h3", "Knob importance")]
    inner += [tag("p", lead, class_="quiet"), scrolled(bars)] if bars else []
    inner += [tag("p", importance.note, class_="note")] if importance.note else []
    if importance.unvaried:
        inner.append(tag("p", f"Never varied: {', '.join(importance.unvaried)}.", class_="quiet small"))
    return tag("div", *inner)


def _steps(ablation: Ablation, contributions: Sequence[Contribution]) -> Markup:
    """The changes in the order in which they help; the number of a knob is the one that stands wherever it is shown."""
    if not ablation.steps:
        return tag("p", ablation.note, class_="note")
    worth = shown_contributions(contributions)
    rows = []
    for step in ablation.steps:
        cells = [number_cell(worth.get(step.knobs[0], "") if len(step.knobs) == 1 else "")] if worth else []
        rows.append([tag("td", tag("code", step.change)), *cells])
    head = ["change", *([tag("th", "contributes", scope="col", class_="number")] if worth else [])]
    return table(head, rows, "One change at a time, the most helpful first")


def importance_bars(importance: Importance) -> Markup | None:
    """A bar per knob with its 90 % interval; None when nothing is known."""
    bars = importance.knobs[:14]
    if not bars:
        return None
    parts = []
    start = max(text_width(knob.name, 13.0) for knob in bars) + 10.0
    scale = Scale(low=0.0, high=1.0, start=start, end=start + 370.0)
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = scale.place(tick)
        parts += [line(x, 4, x, 8 + 26 * len(bars), "grid")]
        parts.append(label(f"{tick:.0%}", x, 24 + 26 * len(bars), class_="tick", text_anchor="middle"))
    for row, knob in enumerate(bars):
        parts += _bar(knob, 8 + 26 * row, scale)
    height = 30 + 26 * len(bars)
    return plot(*parts, width=start + 400.0, height=height, title="Share of the variation that each knob accounts for", kind="importance")


def _bar(knob: KnobShare, y: float, scale: Scale) -> list[Markup]:
    start, end = scale.place(0.0), scale.place(knob.share)
    kind = "bar certain" if knob.certain else "bar"
    bar = box(start, y + 3, max(1.5, end - start), 14, rx=2, class_=kind)
    tip = tag("title", f"{knob.name}: {knob.share:.0%}, 90 % interval {knob.low:.0%} to {knob.high:.0%}")
    whisker = line(scale.place(knob.low), y + 10, scale.place(knob.high), y + 10, "whisker")
    return [tag("g", tip, label(knob.name, start - 8, y + 14, text_anchor="end", class_="knob"), bar, whisker)]


__all__ = ["importance_bars", "why_section"]

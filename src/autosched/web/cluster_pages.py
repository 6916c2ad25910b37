"""The pages of a controlled cluster: how it went, and one decision with its reasons."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from autosched.control.explain import ODD, explanation, late
from autosched.control.ledger import STATES, Entry
from autosched.control.overview import Overview
from autosched.tune.explain import DATED_S, moment
from autosched.web.cluster_plots import gains_plot, load_plot, queue_plot, settings_plot, span
from autosched.web.clusters import ClusterEntry
from autoscout.common.markup import Markup, badge, join, number_cell, table, tag
from autoscout.common.text import show, show_number
from autoscout.core.secrecy import hide_secrets
from autoscout.report.elements import legend, section
from autoscout.web.frame import document, part
from autoscout.web.guard import Session

ROWS = 100
"""Decisions in a list, the newest first."""
MOST_ODD = 20
"""Lines of the audit log that are shown, the newest."""
_KINDS = {"kept": "good", "applied": "good", "undone": "bad", "failed": "bad", "unsure": "warn", "proposed": "warn"}


def clusters_section(entries: Sequence[ClusterEntry]) -> Markup:
    """The part of the first page; nothing where no cluster is controlled."""
    if not entries:
        return Markup("")
    rows = []
    for entry in entries:
        row = cluster_row(entry)
        simulated = [" ", badge("simulated", "simulated")] if row.get("simulated") else []
        newest = row.get("last")
        rows.append(
            [
                tag("th", tag("a", entry.name, href=f"/clusters/{entry.key}"), *simulated, scope="row"),
                number_cell(show_number(row.get("load"))),
                *(number_cell(row.get(name, "")) for name in ("waiting", "decisions", "changes")),
                f"{newest['state']}, {moment(newest['at_s'])}" if newest else "",
            ]
        )
    right = [tag("th", title, scope="col", class_="number") for title in ("load", "waiting", "decisions", "changes made")]
    return section(
        "clusters",
        "Schedulers under control",
        table(["cluster", *right, "last decision"], rows, "Clusters whose scheduler a controller watches"),
    )


def cluster_row(entry: ClusterEntry) -> dict[str, Any]:
    """One cluster in a list: its name, and what was seen where somebody has read it already."""
    overview = entry.loaded
    row: dict[str, Any] = {"key": entry.key, "name": entry.name}
    if overview is None:
        return row
    last = overview.entries[-1] if overview.entries else None
    return row | {
        "simulated": overview.simulated,
        "load": overview.load[-1] if overview.load else None,
        "waiting": overview.waiting[-1] if overview.waiting else 0,
        "decisions": len(overview.entries),
        "changes": sum(math.isfinite(each.applied_s) for each in overview.entries),
        "last": {"id": last.id, "state": last.state, "at_s": last.at_s} if last else None,
    }


def cluster_page(entry: ClusterEntry, session: Session | None, before: int = 0, *, everything: bool = False) -> str:
    """Settings, load, queue, decisions, and predicted against measured gains.

    Args:
        entry: The cluster.
        session: Of whoever has signed in.
        before: List only decisions before this one; 0: the newest.
        everything: List also decisions to change nothing, of which there are many each day.
    """
    overview, here = entry.overview(), f"/clusters/{entry.key}"
    plots = [plot for plot in (load_plot(overview), queue_plot(overview)) if plot is not None]
    course = [tag("div", plot, class_="scroll") for plot in plots] or [tag("p", "Nothing was seen of it yet.", class_="quiet")]
    body = [
        part("top", _top(overview, entry.clock.now_s())),
        part("odd", _odd(overview)),
        part("gains", _gains(overview)),
        part("settings", _settings(overview)),
        part("course", section("course", "Load and queue", *course)),
        part("decisions", _decisions(overview, here, before, everything)),
    ]
    return document(entry.name, join(body), live=entry.key, session=session, trail=[(entry.name, here)])


def _top(overview: Overview, now_s: float) -> Markup:
    changes = [entry for entry in overview.entries if math.isfinite(entry.applied_s)]
    gains = [math.log(entry.measured) for entry in changes if entry.measured > 0]
    inside = [entry.low <= entry.measured <= entry.high for entry in overview.predictions if math.isfinite(entry.measured + entry.low)]
    cells = [("decisions", str(len(overview.entries))), ("changes made", str(len(changes)))]
    cells += [("rolled back", str(sum(entry.state == "undone" for entry in overview.entries)))]
    cells += [("measured gain of a change", f"{math.exp(sum(gains) / len(gains)):.3f}x")] if gains else []
    cells += [("inside the predicted interval", f"{sum(inside)} of {len(inside)}")] if inside else []
    first, last = span(overview)
    words = f"From {moment(first)} to {moment(last)}{' UTC' if last >= DATED_S else ''}." if overview.at_s or overview.entries else ""
    gap_s = overview.at_s[-1] - overview.at_s[-2] if len(overview.at_s) > 1 else 0.0
    warning = late(overview.at_s[-1], gap_s, now_s) if overview.at_s and not overview.simulated else ""
    label = badge("simulated cluster", "simulated") if overview.simulated else ""
    figures = tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in cells), class_="facts")
    return tag(
        "header",
        tag("p", "Scheduler under control", class_="kicker"),
        tag("h1", overview.cluster),
        tag("p", words, " ", label),
        tag("p", badge("late", "warn"), " ", warning) if warning else "",
        figures,
    )


def _odd(overview: Overview) -> Markup:
    """What an operator should look at; nothing where there is nothing."""
    lines = [line for line in overview.log if line[3] in ODD][-MOST_ODD:]
    rows = [
        [moment(at_s), tag("td", badge(event, "warn")), hide_secrets(words.partition("\n")[0])]
        for _, at_s, _, event, words in reversed(lines)
    ]
    return (
        section("odd", "What to look at", table(["when", "what", "words"], rows, "From the audit log, the newest first"))
        if rows
        else Markup("")
    )


def _gains(overview: Overview) -> Markup:
    plot = gains_plot(overview)
    if plot is None:
        return Markup("")
    keys = [
        ("gain-predicted", "predicted, with the interval for nine in ten"),
        ("gain-measured", "measured"),
        ("gain-worse", "measured, worse"),
    ]
    lead = "Each change, or what would have been changed, against the settings before it. Predictions come from simulations."
    return section("gains", "Predicted and measured gains", legend(keys), tag("div", plot, class_="scroll"), lead=lead)


def _settings(overview: Overview) -> Markup:
    plot = settings_plot(overview)
    now = {name: values[-1] for name, values in overview.knobs.items() if values and values[-1] is not None}
    listed = tag("details", tag("summary", f"All {len(now)} settings now"), _pairs(now)) if now else ""
    drawn = tag("div", plot, class_="scroll") if plot is not None else tag("p", "None has changed.", class_="quiet")
    return section("settings", "Settings over time", drawn, listed) if overview.knobs else Markup("")


def _pairs(values: dict[str, Any]) -> Markup:
    return tag("dl", *(join([tag("dt", name), tag("dd", show(value))]) for name, value in values.items()), class_="plain")


def _decisions(overview: Overview, here: str, before: int, everything: bool) -> Markup:
    if not overview.entries:
        return section("decisions", "Decisions", tag("p", "None yet.", class_="quiet"))
    listing = [entry for entry in overview.entries if everything or entry.changes]
    older = [entry for entry in listing if not before or entry.id < before]
    rows = [_decision_cells(entry, here) for entry in reversed(older[-ROWS:])]
    changing = sum(bool(entry.changes) for entry in overview.entries)
    other = ("", "Only those") if everything else ("?all=1", "All decisions")
    lead = tag(
        "p",
        f"{changing} of {len(overview.entries)} would change something. ",
        tag("a", other[1], href=f"{here}{other[0]}#decisions") if changing < len(overview.entries) else "",
    )
    counted = Counter(entry.state for entry in overview.entries)
    states = tag("ul", *(tag("li", f"{counted[state]} {state}: {words}") for state, words in STATES.items() if counted[state]))
    right = [tag("th", title, scope="col", class_="number") for title in ("predicted", "measured")]
    listed = table(["decision", "when", "kind", "state", "changes", *right], rows, "Decisions, the newest first") if rows else ""
    further = f"{here}?before={older[-ROWS].id}{'&all=1' if everything else ''}#decisions" if len(older) > ROWS else ""
    more = tag("p", tag("a", "Older ones", href=further), class_="more") if further else ""
    return section("decisions", "Decisions", lead, listed, more, tag("details", tag("summary", "What the states mean"), states))


def _decision_cells(entry: Entry, here: str) -> list[object]:
    return [
        tag("th", tag("a", f"{entry.id}", href=f"{here}/decisions/{entry.id}"), scope="row"),
        moment(entry.at_s),
        entry.kind + (f" by {entry.by}" if entry.by else ""),
        tag("td", badge(entry.state, _KINDS.get(entry.state, "plain"))),
        ", ".join(f"{name} {show(old)} → {show(new)}" for name, (old, new) in entry.changes.items()) or "none",
        number_cell(_times(entry.predicted, entry.low, entry.high) if entry.changes else ""),
        number_cell(_times(entry.measured)),
    ]


def _times(value: float, low: float = math.nan, high: float = math.nan) -> str:
    if not math.isfinite(value):
        return ""
    return f"{value:.3f}x" + (f" [{low:.3f}, {high:.3f}]" if math.isfinite(low) and math.isfinite(high) else "")


def decision_page(entry: ClusterEntry, decision: Entry, session: Session | None) -> str:
    """Why a decision was made, what each change does by itself, and what became of it."""
    here = f"/clusters/{entry.key}"
    lines = [each for each in entry.overview().log if each[2] == decision.id]
    rows = [
        [
            tag("th", name, scope="row"),
            tag("td", tag("del", show(old))),
            tag("td", tag("ins", show(new))),
            number_cell(_alone(decision, name)),
        ]
        for name, (old, new) in decision.changes.items()
    ]
    head = ["setting", "before", "after", tag("th", "taken back alone, jobs take", scope="col", class_="number")]
    body = [
        tag("header", tag("p", entry.name, class_="kicker"), tag("h1", f"Decision {decision.id}")),
        tag("p", badge(decision.state, _KINDS.get(decision.state, "plain")), " ", STATES.get(decision.state, "")),
        section("changes", "What it changes", table(head, rows, "Settings that differ")) if rows else "",
        section("why", "Why, and what became of it", tag("pre", hide_secrets(explanation(decision, lines)))),
    ]
    return document(
        f"Decision {decision.id} of {entry.name}",
        part("decision", join(body)),
        live=entry.key,
        session=session,
        trail=[(entry.name, here), (f"decision {decision.id}", f"{here}/decisions/{decision.id}")],
    )


def _alone(decision: Entry, name: str) -> str:
    effect = decision.contributions.get(name)
    return f"{effect:.3f} times as long" if effect is not None else ""


__all__ = ["cluster_page", "cluster_row", "clusters_section", "decision_page"]

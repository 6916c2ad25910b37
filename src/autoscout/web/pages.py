"""The pages, as HTML. Everything that engines, logs and people write goes through `common.markup`, which escapes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autoscout.common.draw import HEIGHT, WIDTH, Line, chart, picture
from autoscout.common.markup import Markup, clean, embedded_json, join, tag
from autoscout.report.coordinates import coordinates_section, drawn, tooltips
from autoscout.report.plots import MOST_DOTS
from autoscout.report.predicted import predicted_section
from autoscout.report.sections import (
    MOST_NUMBERS,
    comparison,
    convergence_section,
    environment,
    explanation,
    failures,
    section,
)
from autoscout.report.slices import contour_plot, slice_plot, slices_section
from autoscout.report.timeline import timeline_section
from autoscout.report.tradeoff import tradeoff_section
from autoscout.web.api import compare_document, entry_row
from autoscout.web.frame import document, part
from autoscout.web.guard import Session
from autoscout.web.library import Entry, Library
from autoscout.web.parts import actions_part, studies_table, top, trials_part
from autoscout.web.trials import TrialQuery
from autoscout.web.view import View

LINES = 600
"""Lines of the parallel coordinates: a page that changes while one looks must stay light."""


def studies_page(library: Library, session: Session | None) -> str:
    """All studies, those of some systems in lists of their own, and what extensions show."""
    rows = [entry_row(entry) for entry in library.entries()]
    lists = {system: heading for extension in library.extensions for system, heading in extension.systems.items()}
    blocks: list[object] = [tag("p", problem, class_="note") for problem in library.problems]
    if not library.all_followed():
        words = "No study here yet. Start one with `autoscout tune`; it appears by itself."
        blocks.append(section("studies", "Studies", tag("p", words, class_="quiet")))
    for name, title in dict.fromkeys([("studies", "Studies"), *lists.values()]):
        some = [row for row in rows if lists.get(row["system"], ("studies", "Studies")) == (name, title)]
        if some:
            button = tag("p", tag("button", "Compare those that are ticked", type="submit"))
            inner = tag(
                "form",
                studies_table(some, f"{len(some)} {'study' if len(some) == 1 else 'studies'}, the newest first"),
                button,
                method="get",
                action="/compare",
            )
            blocks.append(section(name, title, inner))
    blocks += [extension.section() for extension in library.extensions]
    head = tag("header", tag("p", "AutoScout dashboard", class_="kicker"), tag("h1", library.title))
    return document("Studies", join([head, part("studies", join(blocks))]), live="all", session=session)


def study_page(entry: Entry, view: View, session: Session | None, can_act: bool) -> str:
    """One study: the verdict first, then how it went; what takes long to work out is fetched after the first paint."""
    here = f"/studies/{entry.key}"
    body = [
        part("top", view.once("top", lambda: top(entry, view))),
        *(part(name, view.once(name, lambda make=make: make(view, here))) for name, make in FIRST.items()),  # type: ignore[misc]
        *(part(name, source=f"{here}/parts/{name}") for name in LATER if view.kept),
        part("failures", view.once("failures", lambda: failures(view.summary, _trial_links(view, here)))),
        part("trials", source=f"{here}/parts/trials"),
        part("actions", actions_part(entry, view, session, can_act)),
        part("environment", environment(view.summary.task)),
    ]
    data = view.once("data", lambda: _tooltips(view, here))
    return document(view.record.name, join(body), live=entry.key, session=session, data=data, trail=[(view.record.name, here)])


def _trial_links(view: View, here: str) -> dict[int, str]:
    return {number: f"{here}/trials/{number}" for group in view.summary.failures for number in group.trials[:MOST_NUMBERS]}


def _tooltips(view: View, here: str) -> dict[str, object]:
    """What hovering over the curve tells, and where a click leads."""
    summary = view.summary
    chosen = {place: view.kept[place] for place in drawn(summary, view.kept, view.default_config, MOST_DOTS)}
    told = tooltips(summary.task, chosen, view.name_of, [], {})
    return {"metric": clean(summary.task.objective.metric), "trials": told, "links": f"{here}/trials/"}


def _tradeoff(view: View, here: str) -> Markup:  # noqa: ARG001 - every part gets both
    return tradeoff_section(view.summary, view.kept, view.default_config)


FIRST: Mapping[str, Callable[[View, str], Markup]] = {
    "front": lambda view, here: _tradeoff(view, here) if view.summary.front else Markup(""),
    "convergence": lambda view, _: convergence_section(view.summary),
    "timeline": lambda view, _: timeline_section(view.summary.task, view.everything),
    "tradeoff": lambda view, here: Markup("") if view.summary.front else _tradeoff(view, here),
}
"""Parts that are there at the first paint."""


def _coordinates(view: View, here: str) -> Markup:  # noqa: ARG001 - every part gets both
    """The lines, with what the brushes and tooltips need to know of them."""
    drawing, lines = coordinates_section(view.summary, view.kept, view.varied, view.default_config, LINES)
    told = tooltips(view.summary.task, {place: view.kept[place] for place in lines}, view.name_of, view.varied, lines)
    return join([drawing, tag("script", embedded_json(told), type="application/json", class_="more-trials")]) if lines else drawing


def _slices(view: View, here: str) -> Markup:
    inner = slices_section(view.summary.task, view.kept, view.varied, view.default_config, view.best_config)
    return join([inner, tag("p", tag("a", "Choose other knobs", href=f"{here}/knobs"), class_="more")]) if inner else inner


LATER: Mapping[str, Callable[[View, str], Markup]] = {
    "comparison": lambda view, _: comparison(view.summary, view.contributions),
    "predicted": lambda view, _: predicted_section(view.predictions),
    "why": lambda view, _: explanation(view.importance, view.ablation),
    "slices": _slices,
    "parallel": _coordinates,
}
"""Parts that are fetched after the first paint."""


def later_part(entry: Entry, view: View, name: str) -> Markup:
    """One of those; also the first page of trials."""
    if name == "trials":
        return view.once(name, lambda: trials_part(entry, view, TrialQuery()))
    return view.once(name, lambda: LATER[name](view, f"/studies/{entry.key}"))


def trials_page(entry: Entry, view: View, query: TrialQuery, session: Session | None) -> str:
    """The list of trials."""
    here = f"/studies/{entry.key}"
    body = join([tag("h1", f"Trials of {view.record.name}"), part("trials", trials_part(entry, view, query))])
    return document(
        f"Trials of {view.record.name}",
        body,
        live=entry.key,
        session=session,
        trail=[(view.record.name, here), ("trials", f"{here}/trials")],
    )


def knobs_page(entry: Entry, view: View, knob: str, other: str, session: Session | None) -> str:
    """One knob alone, and together with another."""
    here, names = f"/studies/{entry.key}", view.varied
    knob = knob if knob in names else names[0] if names else ""
    other = other if other in names and other != knob else next((name for name in names if name != knob), "")

    def choice(label: str, field_name: str, chosen: str) -> Markup:
        options = [tag("option", name, value=name, selected=name == chosen) for name in names]
        return tag("label", f"{label} ", tag("select", *options, name=field_name))

    pick = tag(
        "form",
        choice("knob", "knob", knob),
        choice("and", "other", other),
        tag("button", "Show", type="submit"),
        method="get",
        class_="controls filter",
    )
    best = view.best_config
    plots = [
        slice_plot(view.summary.task, view.kept, knob, view.default_config, best) if knob else None,
        contour_plot(view.summary.task, view.kept, knob, other, best or view.default_config) if other else None,
    ]
    shown = [tag("figure", plot) for plot in plots if plot is not None]
    words = "The map is predicted by the model that ranks the knobs, the other knobs as in the best; dots are configurations that ran."
    inner = tag("div", *shown, class_="figures big") if shown else tag("p", "Too few configurations have run to draw this.", class_="quiet")
    body = [tag("h1", f"Knobs of {view.record.name}"), section("knobs", "Slice and map", pick, part("knobs", inner), lead=words)]
    return document(
        f"Knobs of {view.record.name}",
        join(body),
        live=entry.key,
        session=session,
        trail=[(view.record.name, here), ("knobs", f"{here}/knobs")],
    )


def compare_page(entries: Sequence[Entry], session: Session | None) -> str:
    """Several studies next to each other: results, and the best so far over the trials."""
    found = compare_document(entries)["studies"]
    blocks: list[object] = [tag("h1", "Studies next to each other"), section("studies", "Results", studies_table(found, "Results"))]
    for metric in dict.fromkeys(row["metric"] for row in found):
        lines: dict[str, Line] = {}
        for row in found:
            if row["metric"] == metric and row["curve"]:
                steps = [(point["number"], point["best"]) for point in row["curve"]]
                xs = [*[x for number, _ in steps for x in (number, number)][1:], max(row["trials"], 1)]
                ys = [y for _, best in steps for y in (best, best)]
                lines[row["name"]] = np.asarray(xs, dtype=float), np.asarray(ys, dtype=float)
        if lines:
            drawing = chart(f"best {metric} so far", lines, "trial")
            plot = picture(
                drawing,
                width=WIDTH,
                height=HEIGHT,
                title=f"Best {metric} so far, study by study",
                class_="plot compare",
                style=f"--wide:{WIDTH}px",
            )
            blocks.append(section(f"curve-{len(blocks)}", f"Best {metric} so far", tag("div", plot, class_="scroll")))
    return document("Compare", join(blocks), session=session, trail=[("compare", "/")])


def login_page(refused: bool, can_act: bool) -> str:
    """Where the token is shown once; a cookie stands for it afterwards."""
    if not can_act:
        inner: object = tag("p", "This dashboard was started without a token: it is read-only.")
    else:
        entry = tag(
            "label", "token ", tag("input", type="password", name="token", autocomplete="current-password", autofocus=True, required=True)
        )
        wrong = tag("p", "That is not the token.", class_="note", role="alert") if refused else ""
        words = tag("p", "The file that was given with --token-file holds it.", class_="quiet")
        inner = tag("form", wrong, words, entry, " ", tag("button", "Sign in", type="submit"), method="post", action="/login")
    return document("Sign in", section("login", "Sign in", inner))


def error_page(title: str, words: str) -> str:
    """What went wrong, in a page."""
    return document(title, section("error", title, tag("p", words), tag("p", tag("a", "All studies", href="/"))))

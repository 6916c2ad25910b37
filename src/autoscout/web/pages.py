"""The pages, as HTML. Everything that engines, logs and people write goes through `common.markup`, which escapes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from autoscout.common.draw import HEIGHT, WIDTH, Line, chart, picture
from autoscout.common.markup import Markup, clean, embedded_json, join, tag
from autoscout.report.elements import section
from autoscout.report.sections import SECTIONS, Section, When
from autoscout.report.sections.convergence import MOST_DOTS
from autoscout.report.sections.coordinates import crossings, drawn, tooltips
from autoscout.report.sections.slices import contour_plot, slice_plot
from autoscout.web.api import compare_document, entry_row
from autoscout.web.frame import document, part
from autoscout.web.guard import Session
from autoscout.web.library import Library, StudyEntry
from autoscout.web.live import LiveView
from autoscout.web.parts import actions_part, top, trials_part
from autoscout.web.studies import ARCHIVED, StudyQuery, studies_table, study_filter
from autoscout.web.trials import TrialQuery


def studies_page(library: Library, query: StudyQuery, session: Session | None) -> str:
    """The studies that are looked for, those of some systems in lists of their own, and what extensions show."""
    everything = [entry_row(entry) for entry in library.entries()]
    rows = [row for row in everything if query.matches(row)]
    lists = {system: heading for extension in library.extensions for system, heading in extension.systems.items()}
    blocks: list[object] = [tag("p", problem, class_="note") for problem in library.problems]
    if not library.all_followed():
        words = "No study here yet. Start one with `autoscout tune`; it appears by itself."
        blocks.append(section("studies", "Studies", tag("p", words, class_="quiet")))
    elif everything and not rows:
        blocks.append(section("studies", "Studies", tag("p", "No study is like that.", class_="quiet")))
    for name, title in dict.fromkeys([("studies", "Studies"), *lists.values()]):
        some = [row for row in rows if lists.get(row["system"], ("studies", "Studies")) == (name, title)]
        if some:
            caption = f"{len(some)} {'study' if len(some) == 1 else 'studies'}, the newest first"
            inner = tag("form", studies_table(some, caption), _for_ticked(query, session), method="get", action="/compare")
            blocks.append(section(name, title, inner))
    blocks += [extension.section() for extension in library.extensions]
    head = tag("header", tag("p", "AutoScout dashboard", class_="kicker"), tag("h1", library.title))
    search: object = study_filter(query, len(rows), len(everything)) if everything else ""
    return document("Studies", join([head, search, part("studies", join(blocks))]), live="all", session=session)


def _for_ticked(query: StudyQuery, session: Session | None) -> Markup:
    """What can be done with the studies that are ticked."""
    buttons: list[object] = [tag("button", "Compare those that are ticked", type="submit")]
    if session is not None and session.csrf:  # a button's own value is sent with that button only
        back = query.state == ARCHIVED
        words, to = ("Bring them back", "/unarchive") if back else ("Archive them", "/archive")
        buttons += [" ", tag("button", words, type="submit", name="csrf", value=session.csrf, formaction=to, formmethod="post")]
    return tag("p", *buttons)


def study_page(entry: StudyEntry, view: LiveView, session: Session | None, can_act: bool) -> str:
    """One study: the verdict first, then how it went; what takes long to work out is fetched after the first paint."""
    body = [part("top", view.sections.once("top", lambda: top(entry, view)))]
    for each in sorted(SECTIONS, key=lambda each: list(When).index(each.when)):
        if each.name == "all":  # a page at a time here, and followed by what can be asked of the study
            body += [part("trials", source=f"{entry.url}/parts/trials"), part("actions", actions_part(entry, view, session, can_act))]
        elif each.when is not When.LATER:
            body.append(part(each.name, _draw(view, each)))
        elif view.valid_trials:
            body.append(part(each.name, source=f"{entry.url}/parts/{each.name}"))
    data = view.sections.once("data", lambda: _data(view))
    return document(entry.title, join(body), live=entry.key, session=session, data=data, trail=[(entry.title, entry.url)])


def _data(view: LiveView) -> dict[str, object]:
    """What hovering over the curve tells, and where a click leads."""
    trials = {index: view.valid_trials[index] for index in drawn(view.sections, MOST_DOTS)}
    metric = clean(view.summary.task.objective.metric)
    return {"metric": metric, "trials": tooltips(view.sections, trials), "links": f"{view.url}/trials/"}


def later_part(entry: StudyEntry, view: LiveView, name: str) -> Markup | None:
    """A part that is fetched after the first paint: a section, or the first page of trials; None where there is no such part."""
    if name == "trials":
        return view.sections.once(name, lambda: trials_part(entry, view, TrialQuery()))
    sections = {each.name: each for each in SECTIONS if each.when is When.LATER}
    return _draw(view, sections[name]) if name in sections else None


def _draw(view: LiveView, chosen: Section) -> Markup:
    """A section, with what it has only here."""

    def draw() -> Markup:
        drawing = chosen.draw(view.sections)
        return join([drawing, MORE[chosen.name](view)]) if drawing and chosen.name in MORE else drawing

    return view.sections.once(chosen.name, draw)


def _more_tooltips(view: LiveView) -> Markup:
    """What the brushes and tooltips need to know of the lines."""
    lines = crossings(view.sections)
    texts = tooltips(view.sections, {index: view.valid_trials[index] for index in lines}, view.result.varied, lines)
    return tag("script", embedded_json(texts), type="application/json", class_="more-trials")


def _other_knobs(view: LiveView) -> Markup:
    return tag("p", tag("a", "Choose other knobs", href=f"{view.url}/knobs"), class_="more")


MORE: Mapping[str, Callable[[LiveView], Markup]] = {"slices": _other_knobs, "parallel": _more_tooltips}
"""What stands below a section in the dashboard only."""


def trials_page(entry: StudyEntry, view: LiveView, query: TrialQuery, session: Session | None) -> str:
    """The list of trials."""
    here = f"/studies/{entry.key}"
    body = join([tag("h1", f"Trials of {entry.title}"), part("trials", trials_part(entry, view, query))])
    return document(
        f"Trials of {entry.title}",
        body,
        live=entry.key,
        session=session,
        trail=[(entry.title, here), ("trials", f"{here}/trials")],
    )


def knobs_page(entry: StudyEntry, view: LiveView, knob: str, other: str, session: Session | None) -> str:
    """One knob alone, and together with another."""
    here, names = f"/studies/{entry.key}", view.result.varied
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
    best = view.result.best_config
    task, trials, default, units = view.summary.task, view.valid_trials, view.result.reference, view.result.units
    plots = [
        slice_plot(task, trials, knob, default, best, unit=units.get(knob, "")) if knob else None,
        contour_plot(task, trials, knob, other, best or default, units=units) if other else None,
    ]
    figures = [tag("figure", plot) for plot in plots if plot is not None]
    words = "The map is predicted by the model that ranks the knobs, the other knobs as in the best; dots are configurations that ran."
    inner = (
        tag("div", *figures, class_="figures big") if figures else tag("p", "Too few configurations have run to draw this.", class_="quiet")
    )
    body = [tag("h1", f"Knobs of {entry.title}"), section("knobs", "Slice and map", pick, part("knobs", inner), lead=words)]
    return document(
        f"Knobs of {entry.title}",
        join(body),
        live=entry.key,
        session=session,
        trail=[(entry.title, here), ("knobs", f"{here}/knobs")],
    )


def compare_page(entries: Sequence[StudyEntry], session: Session | None) -> str:
    """Several studies next to each other: results, and the best so far over the trials."""
    rows = compare_document(entries)["studies"]
    blocks: list[object] = [tag("h1", "Studies next to each other"), section("studies", "Results", studies_table(rows, "Results"))]
    for metric in dict.fromkeys(row["metric"] for row in rows):
        lines: dict[str, Line] = {}
        for row in rows:
            if row["metric"] == metric and row["curve"]:
                steps = [(point["number"], point["best"]) for point in row["curve"]]
                xs = [*[x for number, _ in steps for x in (number, number)][1:], max(row["trials"], 1)]
                ys = [y for _, best in steps for y in (best, best)]
                lines[row["title"] if row["title"] not in lines else f"{row['title']} ({row['key']})"] = (
                    np.asarray(xs, dtype=float),
                    np.asarray(ys, dtype=float),
                )
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

"""The list of studies: which ones somebody looks for, and the table of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from autoscout.analysis.verdict import Verdict
from autoscout.common.markup import Markup, badge, join, number_cell, table, tag
from autoscout.common.text import show_duration, show_gain, show_number
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.state import State
from autoscout.report.sections.header import KINDS

ARCHIVED = "archived"
"""As a state to look for: what was put away, which other lists leave out."""
KIND_OF = {State.RUNNING: "good", State.INTERRUPTED: "warn", State.FAILED: "bad", State.DEAD: "bad"}
"""Class of each state in the style sheet; the others are plain."""
STANDS = {
    State.RUNNING: "",
    State.WAITING: "Nothing has been measured yet, and nobody is working on it.",
    State.FINISHED: "The study is over.",
    State.INTERRUPTED: "The last run was ended early; `autoscout resume` continues it.",
    State.FAILED: "The last run gave up; the list of what was asked says why.",
    State.DEAD: "The process that ran it is gone without a word; `autoscout resume` continues it.",
    State.IDLE: "Nobody is working on it.",
}
"""What a page says of each state."""


@dataclass(frozen=True, kw_only=True)
class StudyQuery:
    """Which studies to list.

    Attributes:
        text: Only those whose title, name, system, metric, tags, note or verdict contain all of these words.
        state: Only those that stand so; `archived` for those that were put away, which are left out otherwise.
        tag: Only those with this tag.
    """

    text: str = ""
    state: str = ""
    tag: str = ""

    def __post_init__(self) -> None:
        states = (*(state.value for state in State), ARCHIVED)
        if self.state not in ("", *states):
            raise ConfigError(Fault(where="studies", field="state", value=repr(self.state), rule=f"must be one of: {', '.join(states)}"))

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the list is looked for."""
        if row["archived"] != (self.state == ARCHIVED) or (self.state not in ("", ARCHIVED) and row["state"] != self.state):
            return False
        texts = [row[name] for name in ("title", "name", "system", "metric", "state", "note")]
        text = " ".join([*texts, *row["tags"], str(row.get("verdict", ""))]).lower()
        return (not self.tag or self.tag in row["tags"]) and all(word in text for word in self.text.lower().split())


def state_badge(state: State, running: int = 0) -> Markup:
    """How a study stands, in a word."""
    return badge(f"running: {running} under way" if state is State.RUNNING and running else state.value, KIND_OF.get(state, "plain"))


def tag_links(tags: Iterable[str]) -> list[Markup]:
    """Tags; each leads to the list of studies that have it."""
    return [tag("a", name, href="/?" + urlencode({"tag": name}), class_="badge tag") for name in tags]


def study_filter(query: StudyQuery, count: int, total: int) -> Markup:
    """A form that looks for studies."""
    choices = [("", "all but archived"), *((state.value, state.value) for state in State), (ARCHIVED, ARCHIVED)]
    options = [tag("option", title, value=value, selected=value == query.state) for value, title in choices]
    parts = [
        tag("label", "contains ", tag("input", type="search", name="text", value=query.text)),
        tag("label", "state ", tag("select", *options, name="state")),
        tag("label", "tag ", tag("input", type="search", name="tag", value=query.tag), class_="narrow"),
        tag("button", "Show", type="submit"),
        tag("span", f"{count} of {total}", class_="quiet small"),
    ]
    if query != StudyQuery():
        parts.append(tag("a", "show all", href="/"))
    return tag("form", *parts, method="get", action="/", class_="controls filter", role="search")


def studies_table(rows: Sequence[Mapping[str, Any]], caption: str) -> Markup:
    """A list of studies; each may be ticked."""
    head = [tag("th", tag("span", "tick", class_="unseen"), scope="col"), "study", "system", "state", "result"]
    head += [tag("th", title, scope="col", class_="number") for title in ("trials", "failed", "time")] + ["begun"]
    return table(head, [_study_cells(row) for row in rows], caption, class_="studies")


def _study_cells(row: Mapping[str, Any]) -> list[object]:
    key, title = str(row["key"]), str(row["title"])
    running = int(str(row["running"]))
    word = state_badge(State(str(row["state"])), running)
    tags = tag("div", *tag_links(row["tags"]), class_="tags") if row["tags"] else ""
    result: object = tag("span", "not read yet" if row["trials"] else "nothing measured yet", class_="quiet")
    if "verdict" in row:
        best = f"{row['metric']} {show_number(row['best'])}" if isinstance(row["best"], float) else ""
        changes = tag("div", f"{best}  {row['best_name'] or ''}", class_="quiet small") if best else ""
        verdict = Verdict(str(row["verdict"]))
        text = _gain_words(row) if verdict is Verdict.GAIN else "so far" if running else verdict.value
        simulated = [" ", badge("simulated", "simulated")] if row["simulated"] else []
        result = join([badge(text, "plain" if running and verdict is not Verdict.GAIN else KINDS[verdict]), *simulated, changes])
    return [
        tag("td", tag("input", type="checkbox", name="study", value=key, aria_label=f"tick {title}")),
        tag("th", tag("a", title, href=f"/studies/{quote(key)}", title=row["note"] or None), tags, scope="row"),
        tag("td", row["system"], class_="whole"),
        tag("td", word),
        tag("td", result),
        number_cell(f"{row['trials']:,}"),
        number_cell(row.get("failed", "")),
        number_cell(show_duration(float(str(row["spent_s"]))) if "spent_s" in row else ""),
        tag("td", moment(float(str(row["created_s"]))), class_="whole"),
    ]


def _gain_words(row: Mapping[str, Any]) -> str:
    gain = row["gain"]
    ratio = gain.get("ratio") if isinstance(gain, dict) else None
    return f"gain {show_gain(ratio)}" if isinstance(ratio, float) else "gain"


def moment(at_s: float) -> str:
    """A date for people, in UTC."""
    return datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%d %H:%M UTC") if at_s > 0 else ""


__all__ = ["ARCHIVED", "STANDS", "StudyQuery", "moment", "state_badge", "studies_table", "study_filter", "tag_links"]

"""What people say of a study: a title, tags, a note, whether it is put away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from autoscout.core.errors import Fault

TITLE_CHARS, NOTE_CHARS, TAG_CHARS, MOST_TAGS = 200, 4_000, 40, 20


@dataclass(frozen=True, kw_only=True)
class Description:
    """For people: nothing that a study does depends on it.

    Attributes:
        title: Shown in the place of the study's name; empty for the name itself.
        tags: Words to find it by.
        note: A text of several lines.
        archived: Whether lists leave it out unless they are asked for it.
    """

    title: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""
    archived: bool = False

    def having(self, words: Mapping[str, Any]) -> Description:
        """The same with what `words` change."""
        changes: dict[str, Any] = {name: tuple(value) if name == "tags" else value for name, value in words.items() if name in RULES}
        return replace(self, **changes) if changes else self

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "tags": list(self.tags)}


def _is_tags(value: object) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) <= MOST_TAGS
        and all(isinstance(tag, str) and 0 < len(tag) <= TAG_CHARS and tag.isprintable() and "," not in tag for tag in value)
    )


RULES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "title": (
        lambda value: isinstance(value, str) and len(value) <= TITLE_CHARS and value.isprintable(),
        f"is one line of at most {TITLE_CHARS} characters",
    ),
    "tags": (_is_tags, f"is a list of at most {MOST_TAGS} words of at most {TAG_CHARS} characters, without commas"),
    "note": (lambda value: isinstance(value, str) and len(value) <= NOTE_CHARS, f"is a text of at most {NOTE_CHARS} characters"),
    "archived": (lambda value: isinstance(value, bool), "is true or false"),
}
"""Field -> whether a value is one, and the rule in words."""


def faults_of(words: Mapping[str, Any]) -> list[Fault]:
    """What is wrong with a change of a description."""
    unknown = [Fault(where="action", field=str(name), rule=f"there are {', '.join(RULES)}") for name in words if name not in RULES]
    wrong = [name for name, value in words.items() if name in RULES and not RULES[name][0](value)]
    return unknown + [Fault(where="action", field=name, value=repr(words[name])[:100], rule=RULES[name][1]) for name in wrong]


__all__ = ["Description", "faults_of"]

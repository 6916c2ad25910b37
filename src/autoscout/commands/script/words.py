"""Words of a command, and what of them is not determined."""

from __future__ import annotations

from collections.abc import Iterable


class Word(str):
    """A word with the names of what it lacks: variables that are not set, and `$(...)` for what is computed when it runs."""

    __slots__ = ("missing",)
    missing: tuple[str, ...]

    def __new__(cls, text: str, missing: Iterable[str] = ()) -> Word:
        word = super().__new__(cls, text)
        word.missing = tuple(dict.fromkeys(missing))
        return word


def missing_in(word: str) -> tuple[str, ...]:
    """What a word lacks; nothing for plain text."""
    return word.missing if isinstance(word, Word) else ()


__all__ = ["Word", "missing_in"]

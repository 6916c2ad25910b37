"""Where a place in a shell line is, as far as passing a value depends on it.

A value is quoted in plain text and inside quotes. In backquotes and here-documents no quoting survives, but a variable does. Where not even
a variable is expanded (a here-document with a quoted delimiter, a comment, arithmetic), only words that need no quoting can be written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PLAIN, DOUBLE, SINGLE, BODY = "", '"', "'", "body"
"""Forms of writing a value: a word, inside "...", inside '...', in the text of a here-document."""

_NAMES = {
    "comment": "in a comment",
    "arithmetic": "in arithmetic, $((...))",
    "expansion": "inside ${...}",
    "ansi": "inside $'...'",
    "literal": "in a here-document whose delimiter is quoted",
    "nested": "in backquotes inside backquotes",
    "unsure": "after a `case` inside $(...), where the end of the parenthesis cannot be told",
}
_FIXES = {
    "comment": "Remove it from the comment",
    "nested": "Write $(...) for backquotes",
    "literal": "Leave the delimiter unquoted, or put the text under files:",
}
_FIX = "Set a variable before it, X={knob};, and write $X there"

_HEREDOC = re.compile(r"<<(?P<dash>-?)[ \t]*(?P<word>(?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|()<>'\"\\`])+)")
_WORD_START = " \t\n;&|()<>`"


@dataclass(frozen=True)
class Spot:
    """How a value is written in one place of a line."""

    form: str = PLAIN
    by_variable: bool = False  # quoting does not survive here
    words_only: str = ""  # why only words without special characters can be written; empty where everything can
    fix: str = ""
    delimiter: str = ""  # of the here-document that a word must not end


ANYWHERE = Spot()
"""A word of its own, or no shell at all."""


@dataclass
class _Frame:
    kind: str  # command, paren, backquote, double, single, ansi, comment, arithmetic, expansion, body, literal
    depth: int = 0  # open parentheses of arithmetic
    delimiter: str = ""
    dash: bool = False
    waiting: list[_Frame] = field(default_factory=list)  # here-documents that begin after this line


class ShellLine:
    """Follows the text of a line piece by piece."""

    def __init__(self) -> None:
        self._frames = [_Frame("command")]
        self._before = "\n"  # the letter before
        self._unsure = False
        self._nested = False  # between escaped backquotes inside backquotes

    @property
    def is_plain(self) -> bool:
        """Whether a word may begin here: no quotes, comment or here-document around."""
        return self._top.kind in ("command", "paren", "backquote")

    @property
    def is_literal(self) -> bool:
        """Whether everything is literal here, a dollar sign too."""
        return self._top.kind in ("single", "ansi", "literal")

    @property
    def spot(self) -> Spot:
        """How a value is written here."""
        kind = self._top.kind
        inner = 1 + max(position for position, frame in enumerate(self._frames) if frame.kind in ("command", "paren", "backquote"))
        strict = (
            ["nested"]
            if self._nested
            else ["unsure"]
            if self._unsure
            else [frame.kind for frame in self._frames[inner:] if frame.kind in _NAMES]
        )
        if strict:
            delimiter = self._top.delimiter if kind == "literal" else ""
            return Spot(words_only=_NAMES[strict[0]], fix=_FIXES.get(strict[0], _FIX), delimiter=delimiter)
        form = {"double": DOUBLE, "single": SINGLE, "body": BODY}.get(kind, PLAIN)
        return Spot(form, by_variable=any(frame.kind in ("backquote", "body") for frame in self._frames))

    def slot(self) -> None:
        """A value was written: what follows does not begin a word."""
        self._before = "x"

    def step(self, text: str, at: int) -> int:
        """Take the next piece of `text` and say how long it is."""
        length = self._take(text, at)
        self._before = text[at + length - 1]
        return length

    @property
    def _top(self) -> _Frame:
        return self._frames[-1]

    def _take(self, text: str, at: int) -> int:
        kind, letter = self._top.kind, text[at]
        if kind in ("single", "ansi"):
            if kind == "ansi" and letter == "\\":
                return self._pair(text, at)
            if letter == "'":
                self._frames.pop()
            return 1
        if kind in ("body", "literal"):
            return self._document(text, at)
        if letter == "\n":
            return self._newline(text, at)
        if kind == "comment":
            if letter == "`":
                self._backquote()
            return 1
        return self._pair(text, at) if letter == "\\" else self._special(text, at)

    def _special(self, text: str, at: int) -> int:
        """One letter, or the opening of something, where the shell looks at letters."""
        kind, letter = self._top.kind, text[at]
        if letter == '"':
            if kind == "double":
                self._frames.pop()
            else:
                self._frames.append(_Frame("double"))
        elif letter == "`":
            self._backquote()
        elif letter == "$":
            return self._dollar(text, at)
        elif kind == "arithmetic":
            self._arithmetic(letter)
        elif kind == "expansion":
            if letter == "}":
                self._frames.pop()
            elif letter == "'" and self._frames[-2].kind not in ("double", "body"):
                self._frames.append(_Frame("single"))
        elif kind != "double":
            return self._command(text, at)
        return 1

    def _command(self, text: str, at: int) -> int:
        letter = text[at]
        if letter == "'":
            self._frames.append(_Frame("single"))
        elif letter == "(":
            self._frames.append(_Frame("paren"))
        elif letter == ")" and self._top.kind == "paren":
            self._frames.pop()
        elif letter == "#" and self._before in _WORD_START:
            self._frames.append(_Frame("comment"))
        elif text.startswith("<<<", at):
            return 3
        elif match := _HEREDOC.match(text, at):
            word = match["word"]
            kind = "literal" if re.search(r"[\\'\"]", word) else "body"
            self._top.waiting.append(_Frame(kind, delimiter=re.sub(r"\\(.)|['\"]", r"\1", word), dash=bool(match["dash"])))
            return match.end() - at
        elif letter == "c" and self._before in _WORD_START and re.match(r"case\s", text[at : at + 5]):
            self._unsure |= any(frame.kind == "paren" for frame in self._frames)
        return 1

    def _dollar(self, text: str, at: int) -> int:
        if text.startswith("$((", at):
            self._frames.append(_Frame("arithmetic", depth=2))
            return 3
        if text.startswith("$(", at):
            self._frames.append(_Frame("paren"))
            return 2
        if name := re.compile(r"\$\{[#!]?\w*").match(text, at):
            self._frames.append(_Frame("expansion"))
            return name.end() - at
        if text.startswith("$'", at) and self._top.kind not in ("double", "body", "arithmetic", "expansion"):
            self._frames.append(_Frame("ansi"))
            return 2
        return 1

    def _arithmetic(self, letter: str) -> None:
        self._top.depth += {"(": 1, ")": -1}.get(letter, 0)
        if not self._top.depth:
            self._frames.pop()

    def _backquote(self) -> None:
        inside = [position for position, frame in enumerate(self._frames) if frame.kind == "backquote"]
        if inside:
            del self._frames[inside[-1] :]
        else:
            self._frames.append(_Frame("backquote"))

    def _pair(self, text: str, at: int) -> int:
        if text.startswith("\\`", at) and any(frame.kind == "backquote" for frame in self._frames):
            self._nested = not self._nested
        return min(2, len(text) - at)

    def _newline(self, text: str, at: int) -> int:
        if self._top.kind == "comment":
            self._frames.pop()
        if not self._top.waiting:
            return 1
        self._frames.append(self._top.waiting.pop(0))
        return 1 + self._delimiter(text, at + 1)

    def _document(self, text: str, at: int) -> int:
        """The text of a here-document."""
        literal, letter = self._top.kind == "literal", text[at]
        if letter == "\n":
            return 1 + self._delimiter(text, at + 1)
        if not literal and letter == "\\":
            return self._pair(text, at)
        if not literal and letter == "`":
            self._backquote()
        elif not literal and letter == "$":
            return self._dollar(text, at)
        return 1

    def _delimiter(self, text: str, at: int) -> int:
        """Leave the here-document when the line that begins here is its delimiter; the length of that line."""
        line = text[at:].partition("\n")[0]
        if (line.lstrip("\t") if self._top.dash else line) != self._top.delimiter:
            return 0
        self._frames.pop()
        return len(line)


__all__ = ["ANYWHERE", "BODY", "DOUBLE", "PLAIN", "SINGLE", "ShellLine", "Spot"]

"""A shell script as tokens: raw words, operators and redirections."""

from __future__ import annotations

import re
from dataclasses import dataclass

OPERATORS = ("&&", "||", ";;&", ";;", ";&", "|&", ";", "|", "&", "(", ")", "\n")
REDIRECTION = re.compile(r"(\d*|\{\w+\})(<<<|<<-?|&>>?|>>|>&|<&|>\||<>|>|<)")
ENDS = " \t\n;|&()<>"


class ScriptError(ValueError):
    """The text is no script that can be read; the text is the rule."""


@dataclass(frozen=True)
class Token:
    """One token.

    Attributes:
        kind: `word`, `op`, `redirect` (its text is the sign) or `text` (what a here-document holds).
        text: As it is written; quotes and expansions are still in it.
        quoted: Of a here-document: nothing in it is expanded.
    """

    kind: str
    text: str
    quoted: bool = False


class Lexer:
    """Reads one token after another; `place` is where the next one begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.waiting: list[tuple[str, bool, bool, int]] = []  # here-documents whose text begins at the next line
        self.tokens: list[Token] = []

    def read(self) -> list[Token]:
        """All tokens.

        Raises:
            ScriptError: a quote or a bracket is not closed.
        """
        text = self.text
        while self.place < len(text):
            letter = text[self.place]
            if text.startswith(("\\\n", "\\\r\n"), self.place):
                self.place = text.index("\n", self.place) + 1
            elif letter in " \t\r":
                self.place += 1
            elif letter == "#" and (self.place == 0 or text[self.place - 1] in " \t\n;&|()"):
                end = text.find("\n", self.place)
                self.place = len(text) if end < 0 else end
            elif text.startswith("((", self.place) and self._begins_command():
                end = closing(text, self.place + 2, "))")
                self.tokens.append(Token("word", text[self.place : end]))
                self.place = end
            elif (match := REDIRECTION.match(text, self.place)) and not text.startswith(("<(", ">("), self.place):
                self._redirection(match)
            elif operator := next((sign for sign in OPERATORS if text.startswith(sign, self.place)), ""):
                self.place += len(operator)
                self.tokens.append(Token("op", operator))
                if operator == "\n":
                    self._here_documents()
            else:
                self._word()
        self._here_documents()
        return self.tokens

    def _begins_command(self) -> bool:
        last = self.tokens[-1] if self.tokens else Token("op", "\n")
        return last.kind == "op" or last.text in ("if", "while", "until", "then", "do", "else", "elif", "!", "for")

    def _redirection(self, match: re.Match[str]) -> None:
        self.place = match.end()
        self.tokens.append(Token("redirect", match[2]))
        while self.text[self.place : self.place + 1] in (" ", "\t"):
            self.place += 1
        if match[2] in ("<<", "<<-"):
            start = self.place
            self.place = word_end(self.text, start)
            written = self.text[start : self.place]
            mark = re.sub(r"[\"'\\]", "", written)
            self.tokens.append(Token("text", ""))
            self.waiting.append((mark, mark != written, match[2] == "<<-", len(self.tokens) - 1))

    def _here_documents(self) -> None:
        for mark, quoted, indented, index in self.waiting:
            lines = []
            while self.place < len(self.text):
                end = self.text.find("\n", self.place)
                end = len(self.text) if end < 0 else end
                line, self.place = self.text[self.place : end], min(end + 1, len(self.text))
                line = line.lstrip("\t") if indented else line
                if line.rstrip("\r") == mark:
                    break
                lines.append(line)
            self.tokens[index] = Token("text", "\n".join(lines), quoted)
        self.waiting = []

    def _word(self) -> None:
        start = self.place
        self.place = word_end(self.text, start)
        if self.place == start:
            raise ScriptError(f"cannot be read at {self.text[start : start + 20]!r}")
        word = self.text[start : self.place]
        if word == "[[" and self._begins_condition():
            self._condition()
        else:
            self.tokens.append(Token("word", word))

    def _begins_condition(self) -> bool:
        last = self.tokens[-1] if self.tokens else Token("op", "\n")
        return last.kind == "op" or last.text in ("if", "while", "until", "then", "do", "else", "elif", "!", "{")

    def _condition(self) -> None:
        """`[[ ... ]]` as one word: inside it other signs are operators."""
        match = re.compile(r"\s\]\](?=[\s;&|)]|$)").search(self.text, self.place)
        if match is None:
            raise ScriptError("has a [[ without ]]")
        self.tokens.append(Token("word", "[[" + self.text[self.place : match.start()] + " ]]"))
        self.place = match.end()


def word_end(text: str, place: int) -> int:
    """Where the word that begins here ends; an array's brackets belong to it."""
    start = place
    while place < len(text):
        letter = text[place]
        if letter == "(" and re.fullmatch(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=", text[start:place]):
            place = closing(text, place + 1, ")")
        elif text.startswith(("<(", ">("), place):
            place = closing(text, place + 2, ")")
        elif letter in ENDS:
            break
        else:
            place = _over(text, place)
    return place


def _over(text: str, place: int) -> int:
    """After the letter, quote or expansion that begins here."""
    letter = text[place]
    if letter == "\\":
        return place + 2
    if letter == "'":
        end = text.find("'", place + 1)
        if end < 0:
            raise ScriptError("has a quote that is not closed")
        return end + 1
    if letter == '"':
        place += 1
        while place < len(text) and text[place] != '"':
            place = _over(text, place) if text[place] in "\\`" or text.startswith(("${", "$("), place) else place + 1
        if place >= len(text):
            raise ScriptError("has a quote that is not closed")
        return place + 1
    if letter == "`":
        end = text.find("`", place + 1)
        if end < 0:
            raise ScriptError("has a ` that is not closed")
        return end + 1
    for sign, close in (("$((", "))"), ("$(", ")"), ("${", "}")):
        if text.startswith(sign, place):
            return closing(text, place + len(sign), close)
    return place + 1


def closing(text: str, place: int, close: str) -> int:
    """After the bracket that closes what begins at `place`."""
    opens = {")": "(", "))": "(", "}": "{"}[close]
    depth = 0
    here = ""
    while place < len(text):
        if depth == 0 and text.startswith(close, place):
            return place + len(close)
        letter = text[place]
        if letter == "#" and close == ")" and text[place - 1] in " \t\n":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
            continue
        if close == ")" and (match := re.compile(r"<<-?\s*[\"']?(\w+)").match(text, place)) and not text.startswith("<<<", place):
            here = match[1]
        if letter == "\n" and here:
            last = re.compile(rf"^[ \t]*{here}[ \t]*$", re.MULTILINE).search(text, place)
            place, here = (last.end() if last else len(text)), ""
            continue
        if letter == opens:
            depth += 1
        elif letter == close[0] and depth:
            depth -= 1
        place = _over(text, place)
    raise ScriptError(f"has a bracket that is not closed: {close} is missing")


__all__ = ["Lexer", "ScriptError", "Token", "closing", "word_end"]

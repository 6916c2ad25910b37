"""Tests of a script: true, false, or None where only the run decides."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence

from autoscout.commands.script.expand import Expander
from autoscout.commands.script.lexer import word_end
from autoscout.commands.script.words import Word

Outcome = bool | None
NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
}
LONGEST = 200  # characters of a regular expression, and of what it is looked for in
MOST_REPEATS = 2
TEXTS = ("=", "==", "!=", "=~", "<", ">")


class Condition:
    """One test, of `[ ... ]` or `[[ ... ]]`; reads its words from the left.

    Args:
        words: Raw words.
        expander: Fills them in.
        patterns: Whether `==` takes patterns, as in double brackets.
    """

    def __init__(self, words: Sequence[str], expander: Expander, *, patterns: bool) -> None:
        self.words = list(words)
        self.expander = expander
        self.patterns = patterns

    def outcome(self) -> Outcome:
        """What it comes to."""
        result = self._either()
        return result if not self.words else None

    def _either(self) -> Outcome:
        result = self._both()
        while self.words and self.words[0] in ("||", "-o"):
            self.words.pop(0)
            other = self._both()
            result = True if result is True or other is True else None if result is None or other is None else False
        return result

    def _both(self) -> Outcome:
        result = self._one()
        while self.words and self.words[0] in ("&&", "-a"):
            self.words.pop(0)
            other = self._one()
            result = False if result is False or other is False else None if result is None or other is None else True
        return result

    def _one(self) -> Outcome:
        if not self.words:
            return None
        word = self.words.pop(0)
        if word == "!":
            result = self._one()
            return None if result is None else not result
        if word == "(":
            result = self._either()
            if self.words and self.words[0] == ")":
                self.words.pop(0)
            return result
        if self.words and (self.words[0] in NUMBERS or self.words[0] in TEXTS):
            sign = self.words.pop(0)
            right = self.words.pop(0) if self.words else ""
            return self._compared(word, sign, right)
        if re.fullmatch(r"-[a-zA-Z]", word) and self.words and self.words[0] not in ("&&", "||", ")"):
            return self._single(word, self.words.pop(0))
        value = self.expander.text(word)
        return None if value.missing else bool(value)

    def _single(self, sign: str, raw: str) -> Outcome:
        """`-n`, `-z`, `-v`; all others ask the machine."""
        if sign == "-v":
            return str(self.expander.text(raw)) in self.expander.state.variables
        if sign not in ("-n", "-z"):
            return None
        value = self._value(raw, assume=False)
        return None if value is None else bool(value) == (sign == "-n")

    def _value(self, raw: str, *, assume: bool = True) -> str | None:
        """A word as the shell would have it: variables that are not set are empty. None where only the run knows."""
        value = self.expander.text(raw)
        if any(not re.fullmatch(r"[A-Za-z_]\w*|\$\d+", name) for name in value.missing):
            return None
        if assume:
            self.expander.state.assumed.update(dict.fromkeys(value.missing))
        return str(value)

    def _compared(self, left: str, sign: str, right: str) -> Outcome:
        first, second = self._value(left), self._value(right)
        if first is None or second is None:
            return None
        values = (first, second)
        if sign in NUMBERS:
            numbers = [int(value) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", value) else self._variable(value) for value in values]
            return False if numbers[0] is None or numbers[1] is None else NUMBERS[sign](numbers[0], numbers[1])
        if sign in ("<", ">"):
            return values[0] < values[1] if sign == "<" else values[0] > values[1]
        if sign == "=~":
            return _found(values[1], values[0])
        matches = self._matches(values[0], right, values[1])
        return matches if sign != "!=" else not matches

    def _variable(self, name: str) -> int | None:
        """In double brackets a bare name is the variable."""
        if not self.patterns or not re.fullmatch(r"[A-Za-z_]\w*", name):
            return None
        value = self.expander.state.get(name)
        return int(value) if isinstance(value, Word) and re.fullmatch(r"-?\d{1,18}", value) else None

    def _matches(self, value: str, raw: str, pattern: str) -> bool:
        if not self.patterns or raw[:1] in "\"'":
            return value == pattern
        return fnmatch.fnmatchcase(value, pattern)


def _found(pattern: str, value: str) -> Outcome:
    """Whether a pattern is in a value; None for patterns and values that could take long."""
    if len(pattern) > LONGEST or len(value) > LONGEST or len(re.findall(r"[*+{]", pattern)) > MOST_REPEATS:
        return None
    try:
        return re.search(pattern, value) is not None
    except re.error:
        return None


def condition_words(text: str) -> list[str]:
    """The raw words between `[[` and `]]`."""
    words: list[str] = []
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
        elif words and words[-1] == "=~":
            end = re.compile(r"\s(?=&&|\|\||$)|$").search(text, place)
            words.append(text[place : end.start() if end else len(text)].strip())
            place = end.start() if end else len(text)
        elif sign := next((sign for sign in ("&&", "||", "(", ")", "<", ">") if text.startswith(sign, place)), ""):
            words.append(sign)
            place += len(sign)
        else:
            end_of_word = word_end(text, place)
            if end_of_word == place:
                end_of_word += 1
            words.append(text[place:end_of_word])
            place = end_of_word
    return words


__all__ = ["Condition", "Outcome", "condition_words"]

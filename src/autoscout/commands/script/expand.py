"""Raw words of a script with their variables, arrays and arithmetic filled in."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from autoscout.commands.script.arithmetic import computed
from autoscout.commands.script.lexer import ScriptError, closing
from autoscout.commands.script.state import LONGEST, Held, ScriptState
from autoscout.commands.script.words import Word, missing_in

MOST_CUT = 2000  # characters of a value that a pattern is tried on
SHOWN = 40  # characters of a computed value that a message shows
PARAMETER = re.compile(r"(?P<deref>!)?(?P<name>[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[(?P<index>[^\]]*)\])?(?P<rest>.*)", re.DOTALL)


@dataclass
class _Fields:
    """The words that come of one raw word."""

    done: list[Word] = field(default_factory=list)
    text: str = ""
    missing: list[str] = field(default_factory=list)
    begun: bool = False

    def add(self, text: str, missing: tuple[str, ...] = ()) -> None:
        self.text, self.begun = self.text + text, True
        self.missing += missing
        if len(self.text) > LONGEST or len(self.done) > LONGEST:
            raise ScriptError(f"has a word of more than {LONGEST:,} characters")

    def end(self) -> None:
        if self.begun:
            self.done.append(Word(self.text, self.missing))
        self.text, self.missing, self.begun = "", [], False


class Expander:
    """Fills in raw words from a state.

    Args:
        state: What is known.
        output: What a command in `$(...)` prints; None where that is not known.
    """

    def __init__(self, state: ScriptState, output: Callable[[str], str | None]) -> None:
        self.state = state
        self.output = output

    def words(self, raw: str) -> list[Word]:
        """One raw word as the words that it becomes."""
        fields = _Fields()
        self._walk(raw, fields, split=True)
        fields.end()
        return fields.done

    def text(self, raw: str) -> Word:
        """One raw word as one text, as assignments and tests take it."""
        fields = _Fields()
        self._walk(raw, fields, split=False)
        return Word(" ".join([*fields.done, fields.text]), [*(name for word in fields.done for name in word.missing), *fields.missing])

    def document(self, raw: str) -> Word:
        """The text of a here-document: only `$` and backslashes mean something."""
        fields = _Fields()
        self._quoted(raw, fields)
        return Word(fields.text, fields.missing)

    def _walk(self, raw: str, fields: _Fields, *, split: bool) -> None:
        place = 0
        while place < len(raw):
            letter = raw[place]
            if letter == "\\":
                fields.add("" if raw[place + 1 : place + 2] == "\n" else raw[place + 1 : place + 2])
                place += 2
            elif letter == "'":
                end = raw.index("'", place + 1)
                fields.add(raw[place + 1 : end])
                place = end + 1
            elif raw.startswith("$'", place):
                end = raw.index("'", place + 2)
                fields.add(raw[place + 2 : end].replace("\\n", "\n").replace("\\t", "\t"))
                place = end + 1
            elif letter == '"':
                end = self._end_of_quote(raw, place + 1)
                fields.begun = fields.begun or not re.fullmatch(r"\$\{\w+\[@\][^}]*\}|\$@|\$\{@\}", raw[place + 1 : end])
                self._quoted(raw[place + 1 : end], fields, arrays=True)
                place = end + 1
            elif letter in "$`":
                value, place = self._expansion(raw, place)
                self._put(value, fields, split=split)
            else:
                fields.add(letter)
                place += 1

    @staticmethod
    def _end_of_quote(raw: str, place: int) -> int:
        while raw[place] != '"':
            if raw[place] == "\\":
                place += 2
            elif raw.startswith("$(", place):
                place = closing(raw, place + 2, ")") if not raw.startswith("$((", place) else closing(raw, place + 3, "))")
            elif raw.startswith("${", place):
                place = closing(raw, place + 2, "}")
            else:
                place += 1
        return place

    def _quoted(self, raw: str, fields: _Fields, *, arrays: bool = False) -> None:
        place = 0
        while place < len(raw):
            letter = raw[place]
            if letter == "\\" and raw[place + 1 : place + 2] in tuple('$`"\\\n'):
                fields.add("" if raw[place + 1] == "\n" else raw[place + 1])
                place += 2
            elif letter in "$`":
                value, place = self._expansion(raw, place)
                if isinstance(value, list) and arrays:
                    for number, item in enumerate(value):
                        if number:
                            fields.end()
                        fields.add(str(item), item.missing)
                elif isinstance(value, list):
                    fields.add(" ".join(value), tuple(name for item in value for name in item.missing))
                else:
                    fields.add(str(value), value.missing)
            else:
                fields.add(letter)
                place += 1

    def _put(self, value: Held, fields: _Fields, *, split: bool) -> None:
        """A value outside quotes: cut at its blanks."""
        items = value if isinstance(value, list) else [value]
        for number, item in enumerate(items):
            if number and split:
                fields.end()
            if not split or item.missing:
                fields.add(str(item), item.missing)
                continue
            parts = item.split()
            if item[:1].isspace() and parts:
                fields.end()
            for place, part in enumerate(parts):
                if place:
                    fields.end()
                fields.add(part)
            if item[-1:].isspace() and parts:
                fields.end()

    def _expansion(self, raw: str, place: int) -> tuple[Held, int]:
        """The value of what begins with a `$` or a backtick here, and the place after it."""
        if raw[place] == "`":
            end = raw.index("`", place + 1)
            return self._substitution(raw[place + 1 : end]), end + 1
        if raw.startswith("$((", place):
            end = closing(raw, place + 3, "))")
            return self.arithmetic(raw[place + 3 : end - 2]), end
        if raw.startswith("$(", place):
            end = closing(raw, place + 2, ")")
            return self._substitution(raw[place + 2 : end - 1]), end
        if raw.startswith("${", place):
            end = closing(raw, place + 2, "}")
            return self._parameter(raw[place + 2 : end - 1]), end
        match = re.compile(r"\$([A-Za-z_]\w*|[0-9@*#?$!-])").match(raw, place)
        if match is None:
            return Word("$"), place + 1
        return self._parameter(match[1]), match.end()

    def _substitution(self, command: str) -> Word:
        printed = self.output(command)
        if printed is None:
            short = " ".join(command.split())
            return Word("", [f"$({short[:SHOWN]}{'...' if len(short) > SHOWN else ''})"])
        return Word(printed.rstrip("\n"), missing_in(printed))

    def arithmetic(self, text: str) -> Word:
        """The value of an expression."""
        filled = self.document(text)
        if filled.missing:
            return Word("", filled.missing)
        lacking: list[str] = []

        def lookup(name: str) -> int | None:
            value = self.state.get(name)
            if isinstance(value, list) or value.missing:
                lacking.extend(missing_in(value) if isinstance(value, str) else [name])
                return None
            return int(value) if re.fullmatch(r"\s*-?\d{1,19}\s*", value) else (0 if not value.strip() else None)

        value = computed(str(filled), lookup)
        return Word("", lacking or [f"$(({text.strip()[:SHOWN]}))"]) if value is None else Word(str(value))

    def _parameter(self, text: str) -> Held:
        """What `${...}` or `$name` stands for."""
        if match := re.fullmatch(r"#([A-Za-z_]\w*)(\[[@*]\])?", text):
            value = self.state.get(match[1])
            if match[2]:
                return Word(str(len(value if isinstance(value, list) else [value]) if match[1] in self.state.variables else 0))
            return Word("", missing_in(value)) if isinstance(value, Word) and value.missing else Word(str(len(value)))
        match = PARAMETER.fullmatch(text)
        if match is None:
            return Word("", [f"${{{text[:SHOWN]}}}"])
        name, index, rest = match["name"], match["index"], match["rest"]
        value = self._named(name, index)
        if match["deref"]:
            value = self.state.get(str(value)) if isinstance(value, Word) and not value.missing else Word("", [f"${{{text[:SHOWN]}}}"])
        return self._changed(name, value, rest) if rest else value

    def _named(self, name: str, index: str | None) -> Held:
        if name in ("@", "*"):
            return list(self.state.arguments)
        if name == "#":
            return Word(str(len(self.state.arguments)))
        if name in ("?", "$", "!", "-", "0"):
            return Word("", [f"${name}"])
        value = self.state.get(name)
        if index is None:
            return (value[0] if value else Word("")) if isinstance(value, list) else value
        if index == "*" and isinstance(value, list):
            return Word(" ".join(value), [name for word in value for name in word.missing])
        if index in ("@", "*"):
            return value if isinstance(value, list) else [] if name not in self.state.variables else [value]
        position = self.arithmetic(index)
        items = value if isinstance(value, list) else [value]
        try:
            return items[int(position)]
        except (ValueError, IndexError):
            return Word("", [f"{name}[{index[:SHOWN]}]"])

    def _changed(self, name: str, value: Held, rest: str) -> Held:
        """A value with a default, or cut, or with parts replaced."""
        if match := re.match(r":?[-=+?]", rest):
            sign, word = match[0], rest[match.end() :]
            is_set = name in self.state.variables or (name.isdigit() and not missing_in(value if isinstance(value, Word) else ""))
            empty = not value and not (isinstance(value, Word) and value.missing)
            lacks = not is_set or (sign[0] == ":" and empty)
            if sign[-1] == "+":
                return Word("") if lacks else self._other(word)
            if not lacks or sign[-1] == "?":
                return value
            other = self._other(word)
            if sign[-1] == "=":
                self.state.set(name, other)
            return other
        if isinstance(value, list):
            return value
        if value.missing:
            return value
        return self._cut(str(value), rest)

    def _other(self, word: str) -> Word:
        return self.text(word)

    def _cut(self, value: str, rest: str) -> Word:
        for sign, longest, front in (("##", True, True), ("#", False, True), ("%%", True, False), ("%", False, False)):
            if rest.startswith(sign):
                return Word(_stripped(value, str(self.text(rest[len(sign) :])), longest=longest, front=front))
        if match := re.fullmatch(r"(//?)((?:[^/\\]|\\.)*)(?:/(.*))?", rest, re.DOTALL):
            pattern, new = str(self.text(match[2])), str(self.text(match[3] or ""))
            regex = fnmatch.translate(pattern).removesuffix("\\Z").removesuffix("\\z")
            return Word(re.sub(regex, lambda _: new, value, count=0 if match[1] == "//" else 1)) if len(pattern) < SHOWN else Word(value)
        if rest in (",,", "^^"):
            return Word(value.lower() if rest == ",," else value.upper())
        if match := re.fullmatch(r":\s*(-?\d+)(?::(-?\d+))?", rest):
            start = int(match[1])
            return Word(value[start:] if match[2] is None else value[start:][: int(match[2])])
        return Word("", [f"${{...{rest[:SHOWN]}}}"])


def _stripped(value: str, pattern: str, *, longest: bool, front: bool) -> str:
    """A value without the part at its front or end that matches a pattern."""
    if len(value) > MOST_CUT:
        return value
    sizes = range(len(value), -1, -1) if longest else range(len(value) + 1)
    for size in sizes:
        part = value[:size] if front else value[len(value) - size :]
        if fnmatch.fnmatchcase(part, pattern):
            return value[size:] if front else value[: len(value) - size]
    return value


__all__ = ["Expander"]

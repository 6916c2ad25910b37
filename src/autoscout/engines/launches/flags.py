"""The words of a server's command line as settings of its table, read as the engine's own parser reads them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autoscout.commands.script.words import Word, missing_in
from autoscout.common.fields import shown
from autoscout.common.text import nearest
from autoscout.core.errors import MOST_FAULTS, Fault
from autoscout.engines.command import put
from autoscout.engines.launches.names import UNUSED
from autoscout.engines.table import EngineTable, FlagRow, table, versions
from autoscout.engines.widening import SWITCHES, Refusal, converted, whole

NUMBER = re.compile(r"-\d+(\.\d+)?([eE]-?\d+)?")
"""A value that begins like a flag."""
VALUE = "VALUE"
"""In the place of a flag that is gone and took a value."""


@dataclass
class FlagReader:
    """Takes in words; `settings` are the values by the names of the table, JSON values as dictionaries.

    Args:
        table: Flags of the version.
        where: For messages.
        renamed: Flags of other versions -> what took their place; empty, or `VALUE` for one with a value, where nothing did.
    """

    table: EngineTable
    where: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    positional: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    spellings: dict[str, tuple[FlagRow, bool]] = field(default_factory=dict)  # -> the flag, and whether it is switched on by it

    def __post_init__(self) -> None:
        for row in self.table.flags.values():
            for spelling in (row.flag, *row.aliases):
                self.spellings[spelling] = (row, True)
                if row.type == "bool" and spelling.startswith("--"):
                    self.spellings["--no-" + spelling.removeprefix("--")] = (row, False)

    def read(self, words: Iterable[str]) -> None:
        """All words after those that start the server."""
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.startswith("-") or word == "-" or NUMBER.fullmatch(word):
                self._take_positional(word)
                continue
            if (names := missing_in(word)) and "=" not in word:
                self.notes.append(f"{word} is not read: {_said(names)}.")
                continue
            written, equals, attached = word.partition("=")
            if level := re.fullmatch(r"-O=?(\w+)", word):
                written, equals, attached = "-O", "=", level[1]
            self._flag(written, _like(attached, word) if equals else None, rest)

    def _take_positional(self, word: str) -> None:
        if word == "...":
            self.notes.append("... stands for flags that are not written: they are not read.")
        elif names := missing_in(word):
            if not self.positional and "model" not in self.settings and word == "":
                self.positional.append(word)  # the model, for whoever reads the launch to say
            elif word == "":
                self.notes.append(f"{', '.join(names)} is not set and is read as empty.")
            else:
                self.notes.append(f"{word} is not read: {_said(names)}.")
        elif self.positional:
            self.faults.append(Fault(where=self.where, value=shown(word), rule="is neither a flag nor the value of one"))
        else:
            self.positional.append(word)

    def _flag(self, written: str, attached: str | None, rest: list[str]) -> None:
        """One flag; takes its values from the words that follow."""
        head, dot, key = written.partition(".")
        head = "--" + head[2:].replace("_", "-") if head.startswith("--") else head
        match = self._row(head)
        if match is None and head in self.renamed:
            match = self._under_new_name(head, attached, rest)
            if match is None:
                return
        if match is None and head == "-O":
            match = self._row("--optimization-level") or self._row("--compilation-config")
        if match is None:
            self._unknown(head)
            _values(rest, attached)
            return
        row, on = match
        if dot:
            self._inside(row, key, self._one(written, attached, rest), written)
        elif row.type in SWITCHES:
            self.settings[row.name] = on if attached is None else self._converted(row, attached, written)
        elif row.type == "list":
            self._list(row, _values(rest, attached), written)
        elif (text := self._one(written, attached, rest)) is not None:
            self._value(row, text, written)

    def _row(self, head: str) -> tuple[FlagRow, bool] | None:
        """The flag of a spelling: its own, one of its others, or the only one that begins so."""
        exact = self.spellings.get(head)
        if exact or not head.startswith("--"):
            return exact
        longer = {name: match for name, match in self.spellings.items() if name.startswith(head)}
        rows = {(match[0].name, match[1]) for match in longer.values()}
        return next(iter(longer.values())) if len(rows) == 1 and head not in self.renamed else None

    def _under_new_name(self, head: str, attached: str | None, rest: list[str]) -> tuple[FlagRow, bool] | None:
        """The flag that took the place of one of another version; None where that has been said instead."""
        new, _, value = self.renamed[head].partition("=")
        title = f"{self.table.engine} {self.table.version}"
        if new in ("", VALUE):
            if new:
                _values(rest, attached)
            self.notes.append(f"{head} is left out: {title} has nothing in its place.")
            return None
        self.notes.append(f"{head} is read as {self.renamed[head]}, as {title} calls it.")
        if value:
            rest.insert(0, value)
        return self._row(new)

    def _unknown(self, head: str) -> None:
        if len(self.faults) >= MOST_FAULTS:
            return
        others = [version for version in versions(self.table.engine) if _has(self.table.engine, version, head)]
        hint = f" ({' and '.join(others)} {'has' if len(others) == 1 else 'have'} it)" if others else ""
        rule = f"{self.table.engine} {self.table.version} has no such flag{hint}"
        matches = nearest(head, [name for name in self.spellings if name.startswith("--")])
        advice = [f"Did you mean {' or '.join(map(repr, matches))}?"] if matches else []
        if others:
            advice.append(f"{'Or say' if matches else 'Say'} which version runs: -w engine_version={others[-1]}")
        fix = " ".join(advice) or "Check its spelling, or leave it out"
        self.faults.append(Fault(where=self.where, field=head, rule=rule, fix=fix))

    def _one(self, written: str, attached: str | None, rest: list[str]) -> str | None:
        """The one value of a flag; None where there is none, or it is not determined."""
        if attached is None and (not rest or (rest[0].startswith("-") and not NUMBER.fullmatch(rest[0]) and rest[0] != "-")):
            self.faults.append(Fault(where=self.where, field=written, rule="needs a value"))
            return None
        text = rest.pop(0) if attached is None else attached
        if (names := missing_in(text)) and (match := self._row("--" + written.lstrip("-").replace("_", "-"))) and match[0].name in UNUSED:
            return "0"  # it is left out whatever it is
        if names:
            own = self.spellings.get("--" + written.lstrip("-").replace("_", "-")) or self.spellings.get(written)
            setting = own[0].name if own else written.lstrip("-").replace("-", "_")
            self.notes.append(f"{written} is not read: {_said(names)}, or give --set {setting}=VALUE.")
            return None
        return str(text)

    def _value(self, row: FlagRow, text: str, written: str) -> None:
        if row.type == "json":
            value = self._object(row, text, written)
            if value is not None:
                below = self.settings.get(row.name)
                self.settings[row.name] = {**below, **value} if isinstance(below, dict) else value
            return
        self.settings[row.name] = self._converted(row, text, written)

    def _object(self, row: FlagRow, text: str, written: str) -> dict[str, Any] | None:
        """The JSON value of a flag; a bare number is the level that older versions of vLLM take there."""
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if isinstance(value, int) and not isinstance(value, bool) and "mode" in row.keys:
            return {"mode": value}
        if not isinstance(value, dict):
            rule = f"{row.flag} takes a JSON object"
            self.faults.append(Fault(where=self.where, field=written, value=shown(text), rule=rule, fix="Quote it: '{\"key\": value}'"))
            return None
        return value

    def _list(self, row: FlagRow, words: Sequence[str], written: str) -> None:
        if names := sorted({name for word in words for name in missing_in(word)}):
            self.notes.append(f"{written} is not read: {_said(names)}.")
            return
        before = self.settings.get(row.name, []) if row.name in ("middleware", "lora_modules") else []
        self.settings[row.name] = [*before, *(_plain_item(word) for word in words)]

    def _inside(self, row: FlagRow, key: str, text: str | None, written: str) -> None:
        """`--flag.key value`: a key inside a JSON value."""
        if text is None:
            return
        if row.type != "json":
            rule = f"{row.flag} has no keys: its value is no JSON object"
            self.faults.append(Fault(where=self.where, field=written, rule=rule))
            return
        value: Any
        if key.endswith("+"):
            key, value = key[:-1], text.split(",")
        else:
            value = _json_or_text(text)
        put(self.settings, f"{row.name}.{key}", value)

    def _converted(self, row: FlagRow, text: str, written: str) -> Any:
        if row.name == "max_model_len" and text in ("auto", "-1"):
            return text
        try:
            return converted(text, row)
        except Refusal as refusal:
            self.faults.append(Fault(where=self.where, field=written, value=shown(text), rule=str(refusal)))
            return None

    def read_mapping(self, data: Mapping[Any, Any]) -> None:
        """Flags of a file for `--config`: what is set already goes before."""
        before, self.settings = self.settings, {}
        for name, value in data.items():
            flag = "--" + str(name).replace("_", "-")
            if isinstance(value, Mapping):
                self.read([flag, json.dumps(value)])
            elif isinstance(value, list):
                self.read([flag, *map(str, value)])
            elif isinstance(value, bool):
                self.read([flag] if value else [])
            elif value is not None:
                self.read([f"{flag}={value}"])
        self.settings |= before


def _has(engine: str, version: str, head: str) -> bool:
    return any(head in (row.flag, *row.aliases) for row in table(engine, version).flags.values())


def _said(names: Sequence[str]) -> str:
    """Why a word is not determined."""
    plain = [name for name in names if re.fullmatch(r"\w+", name)]
    if plain:
        return f"{' and '.join(plain)} {'is' if len(plain) == 1 else 'are'} not set: write {plain[0]}=... before the command"
    return f"{names[0]} is computed when it runs"


def _like(text: str, word: str) -> str:
    """A part of a word, as undetermined as the whole."""
    return Word(text, missing_in(word)) if missing_in(word) else text


def _values(rest: list[str], attached: str | None) -> list[str]:
    """The values that follow a flag with several, taken from the rest."""
    values = [] if attached is None else [attached]
    while attached is None and rest and (not rest[0].startswith("-") or NUMBER.fullmatch(rest[0])):
        values.append(rest.pop(0))
    return values


def _plain_item(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else str(text)


def _json_or_text(text: str) -> Any:
    """As vLLM reads the value of a dotted flag."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return whole(text)
    except Refusal:
        return str(text)


__all__ = ["FlagReader"]

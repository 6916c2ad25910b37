"""Templates of commands: text with `{knob}` slots, rendered as shell lines, argument lists, variables or lines of files.

    {batch}               the value; `true`/`false` for booleans
    {batch:flag}          as an option: `--batch 8`; a boolean gives `--fast` or `--no-fast`; nothing without a value
    {fast:switch}         `--fast` when true, nothing when false or without a value
    {lr:.1e}              a Python format
    {bucket|25}           25 when the knob has no value
    [--bucket {bucket}]   in shell lines: left out as a whole when the knob has no value
    {flags}               all knobs that no other template mentions, each as an option
    {{batch}}             the text `{batch}`; all other braces, as in JSON, awk and `${HOME}`, are left alone

A knob has no value when a condition makes it inactive and when it is set to null ("not given").

Options are written the way vLLM's sweeps do: dashes for underscores in the part before the first dot, `--no-` for false, and
`--a.b=true` for nested booleans.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autoscout.commands.shell import ANYWHERE, BODY, DOUBLE, PLAIN, SINGLE, ShellLine, Spot
from autoscout.common.templates import as_text
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault

RUNTIME = {"folder": "AUTOSCOUT_FOLDER", "port": "AUTOSCOUT_PORT"}
"""Slots known only when the command runs -> the variable that carries them in shell lines; `VARIABLE/file` is a file in that folder."""

EXPANDED = "{folder}"
"""What executors replace wherever it is in a command; a value that holds this text is written in two pieces."""

VALUE = "AUTOSCOUT_VALUE_"
"""Variables that carry values to positions that no quoting reaches."""

RESERVED = (*RUNTIME, "seed", "flags")
HELPERS = ("flag", "switch", "int", "onoff", "yesno", "python")

MOST_WIDTH = 1000  # digits or characters that a format may ask for: `{x:08d}`, `{x:.3f}`
MOST_LETTERS = 131_072  # of one template: Linux takes no longer argument

_SLOT = re.compile(r"\{([^\W\d][\w.\-]*)(?::([^{}|]*))?(?:\|([^{}]*))?\}")
_VARIABLE = re.compile(r"\$\{[\w.\-]*\}")
_DOUBLED = re.compile(r"\{\{[^\W\d][\w.\-]*(?::[^{}|]*)?(?:\|[^{}]*)?\}\}")
_SEGMENT = re.compile(r"\[(?=[^\s\[])([^\[\]]*\{[^\[\]]*)\](?=\s|$)")
_DOUBLE = re.compile(r"\[\[(?=[^\s\[])([^\[\]]*\{[^\[\]]*)\]\](?=\s|$)")


@dataclass(frozen=True)
class Slot:
    """A position for a value, and how the shell line around it lets a value be written."""

    name: str
    spec: str = ""
    fallback: str | None = None
    spot: Spot = ANYWHERE

    @property
    def helper(self) -> str:
        return self.spec.partition("=")[0]

    @property
    def is_optional(self) -> bool:
        """Whether it renders to something sensible when its knob has no value."""
        return self.fallback is not None or self.helper in ("flag", "switch") or self.name == "flags"


@dataclass(frozen=True)
class Segment:
    """A part that is left out when one of its knobs has no value."""

    nodes: tuple[str | Slot, ...]


@dataclass(frozen=True)
class Variable:
    """A value known only when the command runs, and the variable that carries it."""

    name: str
    variable: str


Piece = str | Variable
"""Part of a rendered word."""


@dataclass(frozen=True)
class Scope:
    """What slots can be filled with."""

    values: Mapping[str, Value]  # active knobs that are given a value, facts, seed
    flags: tuple[str, ...] = ()  # knobs that `{flags}` stands for
    runtime: Mapping[str, str] = field(default_factory=lambda: RUNTIME)  # slots known only when the command runs, as `RUNTIME`


@dataclass(frozen=True)
class Template:
    """A parsed template; `faults` says what is wrong with its text."""

    text: str
    nodes: tuple[str | Slot | Segment, ...]
    faults: tuple[str, ...] = field(default=(), compare=False)

    @property
    def slots(self) -> Iterator[Slot]:
        for node in self.nodes:
            if isinstance(node, Segment):
                yield from (inner for inner in node.nodes if isinstance(inner, Slot))
            elif isinstance(node, Slot):
                yield node

    @property
    def names(self) -> set[str]:
        return {slot.name for slot in self.slots}

    @property
    def bare(self) -> set[str]:
        """Names that must have a value whenever the template is rendered."""
        return {node.name for node in self.nodes if isinstance(node, Slot) and not node.is_optional}

    @property
    def segments(self) -> Iterator[set[str]]:
        """The names in each part that may be left out."""
        for node in self.nodes:
            if isinstance(node, Segment):
                yield {inner.name for inner in node.nodes if isinstance(inner, Slot)}

    def shell(self, scope: Scope) -> str:
        """Write it as a line for the shell, each value quoted as its position needs.

        Raises:
            ConfigError: a value cannot be passed unchanged at its position.
        """
        variables: list[str] = []
        line = "".join(_shell(node, scope, variables) for node in self.nodes)
        return "".join(f"{VALUE}{number}={_word(text)}\n" for number, text in enumerate(variables, 1)) + line

    def words(self, scope: Scope) -> list[tuple[Piece, ...]]:
        """Its arguments: one, none when a slot has no value, or what `flag`, `switch` and `{flags}` expand to."""
        if len(self.nodes) == 1 and isinstance(self.nodes[0], Slot):
            return [(word,) for word in slot_words(self.nodes[0], scope) or ()]
        pieces: list[Piece] = []
        for node in self.nodes:
            filled = [node] if isinstance(node, str) else slot_words(node, scope) if isinstance(node, Slot) else []
            if filled is None:
                return []
            pieces.extend(_spaced(filled))
        return [tuple(pieces)]

    def text_or_none(self, scope: Scope) -> str | None:
        """Its text as the value of a variable; None when a slot has no value."""
        words = self.words(scope)
        return " ".join(plain(word) for word in words) if words else None


def parse(text: str, *, shell: bool = False, runtime: Mapping[str, str] = RUNTIME) -> Template:
    """Read a template; with `shell`, quotes are followed and `[...]` parts can be left out."""
    if len(text) > MOST_LETTERS:
        return Template(text[:80], (), (f"a template has at most {MOST_LETTERS:,} characters, not {len(text):,}",))
    nodes, faults = _read(text, ShellLine() if shell else None, runtime)
    return Template(text, _merge(nodes), tuple(faults))


def _read(
    text: str, tracker: ShellLine | None, runtime: Mapping[str, str], *, parts: bool = True
) -> tuple[list[str | Slot | Segment], list[str]]:
    nodes: list[str | Slot | Segment] = []
    faults: list[str] = []
    at = 0
    while at < len(text):
        letter = text[at]
        opening = parts and tracker is not None and tracker.is_plain and letter == "[" and (at == 0 or text[at - 1].isspace())
        if opening and (double := _DOUBLE.match(text, at)) and _SLOT.search(double[1]):
            inner, wrong = _read(f"[{double[1]}]", tracker, runtime, parts=False)
            nodes += inner
            faults += wrong
            at = double.end()
        elif opening and (segment := _SEGMENT.match(text, at)) and _SLOT.search(segment[1]):
            inner, wrong = _read(segment[1], tracker, runtime, parts=False)
            nodes.append(Segment(tuple(node for node in _merge(inner) if not isinstance(node, Segment))))
            faults += wrong
            at = segment.end()
        elif text.startswith("${", at) and (tracker is None or tracker.is_literal or _VARIABLE.match(text, at)):
            end = text.find("}", at) + 1 or len(text)
            nodes.append(text[at:end])
            if text[at:end] == "${folder}":
                faults.append("`${folder}` cannot be told from the trial folder; write {folder}, or rename the shell variable")
            if tracker is not None:
                tracker.slot()
            at = end
        elif doubled := _DOUBLED.match(text, at):
            nodes.append(doubled[0][1:-1])
            at = doubled.end()
        elif slot := _SLOT.match(text, at):
            spot = tracker.spot if tracker is not None else ANYWHERE
            nodes.append(Slot(slot[1], slot[2] or "", slot[3], spot))
            faults += _spec_faults(slot[1], slot[2] or "")
            if slot[1] in runtime and spot.words_only:
                faults.append(f"{{{slot[1]}}} is known only at run time and cannot be written {spot.words_only}. {spot.fix}")
            if tracker is not None:
                tracker.slot()
            at = slot.end()
        else:
            length = tracker.step(text, at) if tracker is not None else 1
            nodes.append(text[at : at + length])
            at += length
    return nodes, faults


def plain(word: Sequence[Piece]) -> str:
    """A word as an executor or the driver takes it: what is known at run time stays in braces."""
    return "".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in word)


def quoted(word: Sequence[Piece]) -> str:
    """A word as a shell script writes it."""
    return "".join(shlex.quote(piece) if isinstance(piece, str) else _as_variable(piece.variable, PLAIN) for piece in _join(word)) or "''"


def option(name: str, value: Value, flag: str = "") -> list[str]:
    """A knob as command-line words: `--max-num-seqs 64`, `--enforce-eager`, `--no-enforce-eager`, `--compile.fuse=true`."""
    head, dot, rest = name.partition(".")
    flag = flag or f"--{head.replace('_', '-')}{dot}{rest}"
    if not isinstance(value, bool):
        return [flag, as_text(value)]
    if dot:
        return [f"{flag}={as_text(value)}"]
    return [flag if value else f"--no-{flag.lstrip('-')}"]


def slot_words(slot: Slot, scope: Scope) -> list[Piece] | None:
    """What a slot becomes; None when its knob has no value and nothing is said about that."""
    if slot.name == "flags":
        return [word for name in scope.flags if name in scope.values for word in option(name, scope.values[name])]
    if slot.name not in scope.values:
        if slot.name in scope.runtime:
            return [Variable(slot.name, scope.runtime[slot.name])]
        if slot.fallback is not None:
            return [slot.fallback]
        return [] if slot.is_optional else None
    value = scope.values[slot.name]
    if slot.helper == "flag":
        return list(option(slot.name, value, slot.spec.partition("=")[2]))
    if slot.helper == "switch":
        return list(option(slot.name, True, slot.spec.partition("=")[2])[:1]) if value else []
    return [_formatted(value, slot.spec)]


def _formatted(value: Value, spec: str) -> str:
    if spec == "int":
        return str(int(value)) if isinstance(value, (bool, int, float)) else as_text(value)
    if spec in ("onoff", "yesno", "python") and isinstance(value, bool):
        return {"onoff": ("off", "on"), "yesno": ("no", "yes"), "python": ("False", "True")}[spec][value]
    if not spec or spec in HELPERS:
        return as_text(value)
    try:
        return format(value, spec)
    except (TypeError, ValueError) as error:
        raise ConfigError(Fault(where="workload", value=repr(value), rule=f"cannot be written in the format `{spec}`: {error}")) from error


def _spec_faults(name: str, spec: str) -> list[str]:
    if not spec or spec.partition("=")[0] in HELPERS:
        return []
    if any(len(digits) > len(str(MOST_WIDTH)) or int(digits) > MOST_WIDTH for digits in re.findall(r"\d+", spec)):
        return [f"`{{{name}:{spec}}}`: a format is at most {MOST_WIDTH:,} wide"]
    for sample in (1, 1.0, "a"):
        try:
            format(sample, spec)
        except ValueError:
            continue
        return []
    return [f"`{{{name}:{spec}}}`: `{spec}` is neither a Python format nor one of: {', '.join(HELPERS)}"]


def _shell(node: str | Slot | Segment, scope: Scope, variables: list[str]) -> str:
    if isinstance(node, str):
        return node
    if isinstance(node, Segment):
        filled = [slot_words(inner, scope) for inner in node.nodes if isinstance(inner, Slot)]
        return "" if None in filled else "".join(_shell(inner, scope, variables) for inner in node.nodes)
    return " ".join(_written(piece, node, variables) for piece in slot_words(node, scope) or ())


def _written(piece: Piece, slot: Slot, variables: list[str]) -> str:
    """A piece as the line around the slot takes it."""
    spot = slot.spot
    if isinstance(piece, Variable):
        return _as_variable(piece.variable, spot.form)
    if spot.words_only:
        if why := unwritable(piece, spot):
            raise ConfigError(
                Fault(
                    where="workload",
                    field=f"{{{slot.name}}}",
                    value=repr(piece),
                    rule=why,
                    fix=spot.fix.replace("{knob}", f"{{{slot.name}}}"),
                )
            )
        return piece
    if spot.by_variable:
        if piece not in variables:
            variables.append(piece)
        return _as_variable(f"{VALUE}{variables.index(piece) + 1}", spot.form)
    if spot.form == DOUBLE:
        return re.sub(r'([\\"$`])', r"\\\1", piece).replace(EXPANDED, '{folder""}')
    if spot.form == SINGLE:
        return piece.replace("'", "'\\''").replace(EXPANDED, "{folder''}")
    return _word(piece)


def _word(text: str) -> str:
    return shlex.quote(text).replace(EXPANDED, "{folder''}")


def unwritable(text: str, spot: Spot) -> str:
    """Why a text cannot be passed unchanged at a position that takes plain words only; empty when it can."""
    if spot.words_only and (shlex.quote(text) != text or text in spot.delimiter):
        return f"cannot be passed unchanged {spot.words_only}: the shell would read it"
    return ""


def _as_variable(name: str, form: str) -> str:
    name, slash, file = name.partition("/")
    rest = slash + file
    return {PLAIN: f'"${name}{rest}"', DOUBLE: f"${{{name}}}{rest}", BODY: f"${{{name}}}{rest}", SINGLE: f"'\"${name}{rest}\"'"}[form]


def _spaced(words: Sequence[Piece]) -> Iterator[Piece]:
    for position, word in enumerate(words):
        if position:
            yield " "
        yield word


def _join(word: Sequence[Piece]) -> Iterator[Piece]:
    text = ""
    for piece in word:
        if isinstance(piece, str):
            text += piece
            continue
        if text:
            yield text
        text = ""
        yield piece
    if text:
        yield text


def _merge(nodes: Sequence[str | Slot | Segment]) -> tuple[str | Slot | Segment, ...]:
    merged: list[str | Slot | Segment] = []
    for node in nodes:
        if isinstance(node, str) and merged and isinstance(merged[-1], str):
            merged[-1] += node
        elif node != "":
            merged.append(node)
    return tuple(merged)

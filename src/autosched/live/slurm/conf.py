"""slurm.conf: the smallest change of the text that gives some settings, and nothing else touched."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path

from autosched.live.slurm.knobs import KNOBS, PARAMETERS
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault

_LINE = re.compile(r"^(?P<head>\s*(?P<key>\w+)\s*=\s*)(?P<value>\"[^\"]*\"|[^\s#]*)(?P<tail>\s*(?:#.*)?)$")
_ANYWHERE = re.compile(r"(?:^|\s)(\w+)\s*=")
_INCLUDE = re.compile(r"^\s*include\s+(\S+)", re.IGNORECASE)
NEWEST = (99, 0)  # a version that has every setting
MARK = "# Added by AutoScout."
"""Comment above lines that were not there before."""


def rendered(text: str, target: Config, now: Config, where: str, included: Mapping[str, str] | None = None) -> str:
    """The text of slurm.conf with some settings changed.

    Only lines of settings that differ between `now` and `target` change; in `SchedulerParameters` only the options that do.

    Args:
        text: Of the file.
        target: Settings to have.
        now: Settings in force.
        where: The file, for messages.
        included: Text of the files it includes, by name.

    Raises:
        ConfigError: a setting is on a line that cannot be changed safely; all of them at once.
    """
    changed = [KNOBS[name] for name, value in target.items() if name in KNOBS and now.get(name) != value]
    lines = text.split("\n")
    faults: list[Fault] = []
    values: dict[str, str] = {}
    for knob in changed:
        if not knob.option:
            values[knob.key] = knob.write(target[knob.name])
    options = {knob.option: knob.write(target[knob.name]) for knob in changed if knob.option}
    missing: list[str] = []
    for key in [*values, *([PARAMETERS] if options else [])]:
        at, more = _find(lines, key, where, included or {})
        faults += more
        if more:
            continue
        if at is None:
            listed = ",".join(f"{name}={value}" for name, value in options.items())
            missing.append(f"{key}={listed if key == PARAMETERS else values[key]}")
            continue
        match = _LINE.match(lines[at])
        assert match is not None
        new = _joined(match["value"], options) if key == PARAMETERS else values[key]
        lines[at] = f"{match['head']}{new}{match['tail']}"
    if faults:
        raise ConfigError(faults)
    return _with_missing(lines, missing)


def fragment(settings: Config) -> tuple[str, list[str]]:
    """Lines of slurm.conf that give some settings of the model, and what they cannot say."""
    good = {name: value for name, value in settings.items() if name in KNOBS and not KNOBS[name].faults(value, NEWEST)}
    lines = rendered("", Config(good), Config(), "slurm.conf").splitlines()
    return "\n".join(line for line in lines if line != MARK), [name for name in settings if name not in good]


def taken_back(here: str, old: str, new: str, target: Config, now: Config, where: str, included: Mapping[str, str] | None = None) -> str:
    """The text of slurm.conf without a change: the very text before it, or, where somebody has edited it since, without our lines.

    Args:
        here: The text now.
        old, new: Of the file before and after the change.
        target: Settings to have: those before the change.
        now: Settings in force.
        where: The file, for messages.
        included: Text of the files it includes, by name.

    Raises:
        ConfigError: a setting is on a line that cannot be changed safely; all of them at once.
    """
    if here == new:
        return old
    before = old.split("\n")
    keys = [match["key"] for line in new.split("\n") if line not in before and (match := _LINE.match(line))]
    added = [key for key in keys if not any(_is_line_of(line, key) for line in before)]
    lines = rendered(here, target, now, where, included).split("\n")
    rest = [line for line in lines if not any(_is_line_of(line, key) for key in added)]
    return "\n".join(line for line in rest if line != MARK or MARK in before)


def _find(lines: list[str], key: str, where: str, included: Mapping[str, str]) -> tuple[int | None, list[Fault]]:
    """The line of a key; faults where it is not on one line of its own in this file."""
    faults = []
    for name, text in included.items():
        if any(_is_line_of(line, key) for line in text.split("\n")):
            rule = f"is set in {name}, which AutoScout does not own"
            faults.append(Fault(where=where, field=key, rule=rule, fix="Move the line into slurm.conf, or freeze the knob"))
    line_numbers = [number for number, line in enumerate(lines) if _is_line_of(line, key)]
    if len(line_numbers) > 1:
        numbers = ", ".join(str(number + 1) for number in line_numbers)
        faults.append(Fault(where=where, field=key, rule=f"is set more than once (lines {numbers})", fix="Keep one of them"))
    elif line_numbers:
        line = lines[line_numbers[0]]
        continued = line.rstrip().endswith("\\") or (line_numbers[0] > 0 and lines[line_numbers[0] - 1].rstrip().endswith("\\"))
        if not _LINE.match(line) or continued:
            rule = "shares its line with something else, or is continued on the next one"
            faults.append(Fault(where=f"{where}:{line_numbers[0] + 1}", field=key, rule=rule, fix="Give it a line of its own"))
    return (line_numbers[0] if len(line_numbers) == 1 else None), faults


def _is_line_of(line: str, key: str) -> bool:
    bare = line.split("#")[0]
    return any(word.lower() == key.lower() for word in _ANYWHERE.findall(bare))


def _joined(value: str, options: Mapping[str, str]) -> str:
    """The options of `SchedulerParameters` with some of them set; the others as they were, in their order."""
    quote = '"' if value.startswith('"') else ""
    inside = value.strip('"')
    parts = [part for part in inside.split(",") if part]
    done = set()
    for index, part in enumerate(parts):
        name = part.partition("=")[0].strip()
        if name in options:
            parts[index] = f"{name}={options[name]}"
            done.add(name)
    return quote + ",".join([*parts, *(f"{name}={value}" for name, value in options.items() if name not in done)]) + quote


def _with_missing(lines: list[str], missing: list[str]) -> str:
    if not missing:
        return "\n".join(lines)
    if MARK in lines:
        at = lines.index(MARK) + 1
        return "\n".join([*lines[:at], *missing, *lines[at:]])
    body = lines[:-1] if lines and not lines[-1] else lines
    return "\n".join([*body, MARK, *missing, ""])


def includes(text: str, folder: Path) -> dict[str, str]:
    """Text of the files that slurm.conf includes, by name; those that cannot be read are left out."""
    files = {}
    for line in text.split("\n"):
        if match := _INCLUDE.match(line):
            path = folder / match[1]
            try:
                files[match[1]] = path.read_text(encoding="utf-8", errors="surrogateescape")
            except OSError:
                continue
    return files


def difference(old: str, new: str, name: str) -> str:
    """A unified diff."""
    lines = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{name}", f"b/{name}", n=1)
    return "".join(lines)

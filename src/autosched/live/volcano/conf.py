"""volcano-scheduler.conf: arguments of plug-ins and the list of actions, changed line by line so that comments stay."""

from __future__ import annotations

import re

from autoscout.core.errors import ConfigError, Fault

ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle")
WHERE = "volcano-scheduler.conf"


def argument(text: str, plugin: str, key: str) -> str | None:
    """The argument of a plug-in; None where it is not written."""
    block = _block(text.split("\n"), plugin)
    if block is None:
        return None
    lines = text.split("\n")
    for line in lines[block[0] : block[1]]:
        if match := re.match(rf"\s*{re.escape(key)}\s*:\s*([^#]*)", line):
            return match[1].strip().strip("\"'")
    return None


def with_argument(text: str, plugin: str, key: str, value: str) -> str:
    """The text with an argument of a plug-in set.

    Raises:
        ConfigError: the plug-in is not in any tier.
    """
    lines = text.split("\n")
    block = _block(lines, plugin)
    if block is None:
        raise ConfigError(Fault(where=WHERE, field=plugin, rule="this plug-in is in no tier", fix="Add it to a tier first"))
    begin, end = block
    for number in range(begin, end):
        if match := re.match(rf"(\s*{re.escape(key)}\s*:\s*)([^#]*?)(\s*(?:#.*)?)$", lines[number]):
            lines[number] = f"{match[1]}{value}{match[3]}"
            return "\n".join(lines)
    indent = " " * (len(lines[begin]) - len(lines[begin].lstrip()) + 2)
    for number in range(begin, end):
        if re.match(r"\s*arguments\s*:\s*(#.*)?$", lines[number]):
            return "\n".join([*lines[: number + 1], f"{indent}  {key}: {value}", *lines[number + 1 :]])
    return "\n".join([*lines[: begin + 1], f"{indent}arguments:", f"{indent}  {key}: {value}", *lines[begin + 1 :]])


def _block(lines: list[str], plugin: str) -> tuple[int, int] | None:
    """First and one past the last line of a plug-in in the tiers."""
    for number, line in enumerate(lines):
        if match := re.match(rf"(\s*)- name:\s*[\"']?{re.escape(plugin)}[\"']?\s*(?:#.*)?$", line):
            depth = len(match[1])
            end = number + 1
            while end < len(lines) and (not lines[end].strip() or len(lines[end]) - len(lines[end].lstrip()) > depth):
                end += 1
            return number, end
    return None


def actions(text: str) -> list[str]:
    """The actions in their order."""
    match = re.search(r"^actions\s*:\s*[\"']?([^\"'#\n]*)", text, re.MULTILINE)
    return [part.strip() for part in match[1].split(",") if part.strip()] if match else []


def with_action(text: str, name: str, present: bool) -> str:
    """The text with an action added at the end of the list, or taken out of it."""
    here = actions(text)
    if (name in here) == present:
        return text
    listed = [*here, name] if present else [each for each in here if each != name]
    return re.sub(
        r"^(actions\s*:\s*)[\"']?[^\"'#\n]*[\"']?", lambda match: f'{match[1]}"{", ".join(listed)}"', text, count=1, flags=re.MULTILINE
    )


def faults_of(text: str) -> list[Fault]:
    """What Volcano would not take."""
    unknown = [name for name in actions(text) if name not in ACTIONS]
    faults = [Fault(where=WHERE, field="actions", value=name, rule=f"must be one of {', '.join(ACTIONS)}") for name in unknown]
    if "allocate" not in actions(text):
        faults.append(Fault(where=WHERE, field="actions", rule="nothing would ever start without the action allocate"))
    return faults

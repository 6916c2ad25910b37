"""The script that runs a command with one configuration, outside AutoScout.

It finds its files next to itself, so that the folder may be moved or copied. A command that does not run in that folder changes to the one
in which it was measured, or to WORKDIR.
"""

from __future__ import annotations

import shlex

from autoscout.backends.command.template import RUNTIME, Piece, Scope, quoted
from autoscout.backends.command.workload import IN_FOLDER, Command, Workload

PORT = 8000
"""Where a server listens when the caller does not set PORT."""


def script(workload: Workload, command: Command, scope: Scope) -> str:
    """`run.sh` for one of the workload's commands; its files are next to it."""
    lines = ["#!/bin/sh", f'{RUNTIME["folder"]}="$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)" || exit 1', f"export {RUNTIME['folder']}"]
    templates = [*workload.env.values(), *command.templates]
    if any("port" in template.names for template in templates):
        lines += [f'{RUNTIME["port"]}="${{PORT:-{PORT}}}"', f"export {RUNTIME['port']}"]
    for name, template in workload.env.items():
        words = template.words(scope)
        if words:
            lines.append(f"export {name}={_value(words)}")
    if workload.cwd == IN_FOLDER:
        lines.append(f'cd "${RUNTIME["folder"]}" || exit 1')
    else:
        lines.append(f'[ -n "${{WORKDIR:-}}" ] || WORKDIR={shlex.quote(workload.cwd)}  # where it was measured')
        lines.append('CDPATH= cd -- "$WORKDIR" || exit 1')
    if command.line is not None:
        lines.append(command.line.shell(scope))
    else:
        lines.append(" ".join(["exec", *(quoted(word) for word in command.words(scope))]))
    return "\n".join(lines) + "\n"


def _value(words: list[tuple[Piece, ...]]) -> str:
    joined: list[Piece] = []
    for position, word in enumerate(words):
        joined += [" ", *word] if position else word
    return quoted(joined)

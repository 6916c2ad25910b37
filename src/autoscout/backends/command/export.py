"""The script that runs a command with one configuration, outside AutoScout."""

from __future__ import annotations

import shlex

from autoscout.backends.command.template import RUNTIME, Piece, Scope, quoted
from autoscout.backends.command.workload import IN_FOLDER, Command, Workload

PORT = 8000
"""Where a server listens when the caller does not set PORT."""


def script(workload: Workload, command: Command, scope: Scope) -> str:
    """`run.sh` for one of the workload's commands; its files are next to it."""
    lines = ["#!/bin/sh", f'{RUNTIME["folder"]}="$(cd "$(dirname "$0")" && pwd)"', f"export {RUNTIME['folder']}"]
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
        lines.append(f"cd {shlex.quote(workload.cwd)} || exit 1")
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

"""The servers that a text starts, whatever kind of text it is."""

from __future__ import annotations

import re
import shlex

from autoscout.engines.engine import Engine
from autoscout.engines.launches.server import ServerCommand, server_in

ENDS = ("&&", "||", ";", "|", "&")


def servers_in(engine: Engine, text: str, where: str) -> list[tuple[str, ServerCommand]]:  # noqa: ARG001
    """All servers of an engine in a text, each with its name there."""
    servers = []
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue
        command: list[str] = []
        for word in [*words, ";"]:
            if word in ENDS or word.startswith((">", "2>")):
                if server := server_in(engine.name, command):
                    servers.append(("", server))
                command = []
            else:
                command.append(word)
    return servers


__all__ = ["servers_in"]

"""From a text to the launch that it holds."""

from __future__ import annotations

from autoscout.core.errors import ConfigError, Fault
from autoscout.core.user import UserLaunch
from autoscout.engines.engine import Engine
from autoscout.engines.launches.flags import FlagReader
from autoscout.engines.launches.meaning import Meaning
from autoscout.engines.launches.server import ServerCommand
from autoscout.engines.launches.sources import servers_in
from autoscout.engines.table import table_for

MOST_CHARACTERS = 1_000_000
MOST_NAMES = 20  # launches that a message lists
HOW = {
    "vllm": "'vllm serve MODEL --max-num-seqs 256'",
    "sglang": "'python -m sglang.launch_server --model-path MODEL'",
}


def read_launch(engine: Engine, text: str, name: str) -> UserLaunch:
    """The launch in a command line, or in the text of a file.

    Args:
        engine: Whose launch it is.
        text: The command, or what the file holds.
        name: For messages; after a `#` which one of several launches, by its name or number.

    Raises:
        ConfigError: there is none, or several, or it is not understood; all faults at once.
    """
    where, _, choice = name.partition("#")
    if len(text) > MOST_CHARACTERS or "\0" in text:
        rule = "is no text" if "\0" in text else f"has {len(text):,} characters: at most {MOST_CHARACTERS:,} are read"
        raise ConfigError(Fault(where=where, rule=rule, fix=f"Give the command, such as {HOW[engine.name]}, or a file with it"))
    label, server = _chosen(engine, servers_in(engine, text, where), where, choice)
    return launch_of(engine, server, f"{where}#{label}" if label and choice else where)


def launch_of(engine: Engine, server: ServerCommand, where: str) -> UserLaunch:
    """What a command means.

    Raises:
        ConfigError: it is not understood; all faults at once.
    """
    version = engine.installed() or server.version
    table = table_for(engine.name, version)
    reader = FlagReader(table=table, where=where)
    reader.read(server.arguments)
    if server.file:
        reader.read_mapping(server.file)
    meaning = Meaning(table=table, length=engine.length, where=where)
    meaning.left_out += reader.notes
    positional = reader.positional[0] if reader.positional else ""
    meaning.read(reader.settings, positional, server)
    if server.version and not engine.installed():
        meaning.workload["engine_version"] = server.version
    if faults := [*reader.faults, *meaning.faults]:
        raise ConfigError(faults)
    return meaning.launch()


def _chosen(engine: Engine, servers: list[tuple[str, ServerCommand]], where: str, choice: str) -> tuple[str, ServerCommand]:
    """The launch of that name or number; the only one where none is named."""
    if not servers:
        rule = f"holds no command that starts {engine.title}"
        raise ConfigError(Fault(where=where, rule=rule, fix=f"Give the command, such as {HOW[engine.name]}, or a file with it"))
    if not choice and len({(server.arguments, tuple(server.env.items())) for _, server in servers}) == 1:
        return servers[0]
    for number, (label, server) in enumerate(servers, 1):
        if choice and choice in (label, str(number)):
            return label, server
    names = [f"{number}: {label}" if label else f"{number}" for number, (label, _) in enumerate(servers, 1)]
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    rule = f"holds {len(servers)} launches" if not choice else "holds no launch of that name or number"
    fix = f"Add the name or the number of one, such as {where}#1. It holds {listed}"
    raise ConfigError(Fault(where=where, value=choice, rule=rule, fix=fix))


__all__ = ["launch_of", "read_launch"]

"""From a text to the launch that it holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoscout.common import document
from autoscout.core.errors import ConfigError, Fault, NoLaunchError
from autoscout.core.user import UserLaunch
from autoscout.engines.engine import Engine
from autoscout.engines.launches.flags import FlagReader
from autoscout.engines.launches.meaning import Meaning
from autoscout.engines.launches.sources import MOST_CHARACTERS, Source, sources_in
from autoscout.engines.table import table_for

MOST_NAMES = 20  # launches that a message lists
OPTIONS = ("from", "baseline")  # as `where` of a text that is no file
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
        NoLaunchError: there is none.
        ConfigError: there are several, or it is not understood; all faults at once.
    """
    where, _, choice = name.partition("#")
    fix = f"Give the command, such as {HOW[engine.name]}, or a file with it"
    if len(text) > MOST_CHARACTERS or "\0" in text:
        rule = "is no text" if "\0" in text else f"has {len(text):,} characters: at most {MOST_CHARACTERS:,} are read"
        raise ConfigError(Fault(where=where, rule=rule, fix=fix))
    sources = sources_in(engine, text, where, choice, table_for(engine.name, engine.installed()))
    if not sources:
        raise NoLaunchError(Fault(where=where, rule=f"holds no command that starts {engine.title}", fix=fix))
    return launch_of(engine, _chosen(sources, where, choice), where)


def launch_of(engine: Engine, source: Source, where: str) -> UserLaunch:
    """What a command means.

    Raises:
        ConfigError: it is not understood; all faults at once.
    """
    server = source.server
    table = table_for(engine.name, engine.installed() or server.version)
    reader = FlagReader(table=table, where=where, renamed=table.renamed)
    reader.read(server.arguments)
    data = server.file or _config_file(reader.settings.pop("config", None), source, reader)
    reader.read_mapping(data)
    meaning = Meaning(table=table, length=engine.length, where=where)
    meaning.left_out += [*source.notes, *reader.notes, *engine.settle(reader.settings)]
    meaning.read(reader.settings, reader.positional[0] if reader.positional else "", server)
    if server.version and not engine.installed():
        meaning.workload["engine_version"] = server.version
    if faults := [*reader.faults, *meaning.faults]:
        raise ConfigError(faults)
    return meaning.launch()


def _config_file(path: str | None, source: Source, reader: FlagReader) -> Mapping[str, Any]:
    """The flags of the file that `--config` names."""
    if path is None:
        return {}
    try:
        written = source.files.get(path)
        value = document.compose(written, path).value if written is not None else document.load(Path(path).expanduser()).value
    except ConfigError as error:
        reader.faults += error.faults
        return {}
    if not isinstance(value, Mapping):
        reader.faults.append(Fault(where=path, rule="holds no flags: a mapping of flags and values is needed"))
        return {}
    return value


def _chosen(sources: Sequence[Source], where: str, choice: str) -> Source:
    """The launch of that name or number; the only one where none is named."""
    if not choice and len({(source.server.arguments, tuple(source.server.env.items())) for source in sources}) == 1:
        return sources[0]
    for number, source in enumerate(sources, 1):
        if choice and choice in (source.name, str(number)):
            return source
    names = [f"{number}: {source.name}" if source.name else f"{number}" for number, source in enumerate(sources, 1)]
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    rule = f"holds {len(sources)} launches" if not choice else "holds no launch of that name or number"
    named = f"Add the name or the number of one, such as {where}#1. It holds {listed}"
    fix = "Give the one that you mean alone" if where in OPTIONS else named
    raise ConfigError(Fault(where=where, value=choice, rule=rule, fix=fix))


__all__ = ["launch_of", "read_launch"]

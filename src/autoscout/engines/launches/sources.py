"""The servers that a text starts, whatever kind of text it is: a command, a script, a page, or a document of YAML."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autoscout.commands.containers import Container, containers_in, yaml_documents
from autoscout.commands.script import ScriptCommand, ScriptError, Word, missing_in, read_script
from autoscout.common import document
from autoscout.core.errors import ConfigError, Fault
from autoscout.engines.engine import Engine
from autoscout.engines.launches.recipes import is_recipe, server_of_recipe
from autoscout.engines.launches.server import MODULES, SERVE, SHELLS, ServerCommand, servers_in_image, servers_of
from autoscout.engines.table import EngineTable, plain

MOST_SAID = 12  # variables that a message lists
MOST_CHARACTERS = 400_000
FENCE = re.compile(r"^([ \t]*)(```+|~~~+)[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\2[ \t]*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
PLACEHOLDER = re.compile(r"<([A-Za-z][\w /.,'-]{0,60})>")
"""What the reader of a page fills in."""
KSERVE = ("vllm", "huggingface")
FOREIGN = {"--model_id": "--model", "--model_name": "--served-model-name", "--model_dir": "--model"}
"""Flags of KServe's own server, and what they are to vLLM."""
SYSTEMD = re.compile(r"^ExecStart=[-@:+!]*[ \t]*(.+)$", re.MULTILINE)
SHELL_FENCES = ("", "bash", "sh", "shell", "console", "shellscript", "zsh", "text", "command")


@dataclass(frozen=True, kw_only=True)
class Source:
    """One launch in a text.

    Attributes:
        name: By which it can be chosen; empty where it has none.
        server: The command.
        notes: What to know about how it was read, a sentence each.
        files: What is written into files before it starts, by their paths.
    """

    server: ServerCommand
    name: str = ""
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)


def sources_in(engine: Engine, text: str, where: str, choice: str, table: EngineTable) -> list[Source]:
    """All launches of an engine in a text; of a recipe the chosen one.

    Raises:
        ConfigError: the text cannot be read.
    """
    if documents := yaml_documents(text, where):
        if engine.name == "vllm" and is_recipe(documents[0]):
            server, notes = server_of_recipe(documents[0], where, choice)
            return [Source(server=server, notes=notes, name=choice)]
        containers = containers_in(documents)
        servers = [Source(server=server, name=item.name) for item in containers for server in _of_container(engine.name, item)]
        if servers or not _is_config(documents, table):
            return servers
        return [Source(server=ServerCommand(arguments=(), file=documents[0]))]
    if units := SYSTEMD.findall(re.sub(r"\\\r?\n", " ", text)):
        text = "\n".join([*(f"export {line}" for line in re.findall(r"^Environment=(.+)$", text, re.MULTILINE)), *units])
    fences = list(FENCE.finditer(text))
    if fences:
        return [source for fence in fences if fence[3].lower() in SHELL_FENCES for source in _in_fence(engine, text, fence)]
    try:
        return _in_script(engine, _typed(text))
    except ScriptError as error:
        raise ConfigError(Fault(where=where, rule=f"the script {error}", fix="Give the command that starts the server alone")) from None


def _of_container(engine: str, container: Container) -> list[ServerCommand]:
    """The starts of an engine in a container; KServe's own server for models of Hugging Face gives vLLM the flags that it does not know."""
    if not container.runtime or engine != "vllm":
        try:
            return servers_in_image(engine, container.image, container.words, env=container.env, gpus=container.gpus)
        except ScriptError:
            return []
    if container.runtime not in KSERVE:
        return []
    words: list[str] = []
    for word in container.words:
        flag, equals, value = word.partition("=")
        words.append(Word(f"{FOREIGN.get(flag, flag)}{equals}{value}", missing_in(word)))
    if not any(re.match(r"--model(=|$)", word) for word in words) and container.uri.startswith("hf://"):
        words = [container.uri.removeprefix("hf://"), *words]
    return [ServerCommand(arguments=tuple(words), env=container.env, image=container.image, gpus=container.gpus)]


def _is_config(documents: Sequence[Any], table: EngineTable) -> bool:
    """Whether the only document is a file of flags, as the engine's `--config` takes it."""
    if len(documents) != 1 or not documents[0]:
        return False
    names = [plain(str(key)) for key in documents[0]]
    flags = [name for name in names if name in table.flags or name.removeprefix("no_") in table.flags]
    return 2 * len(flags) >= len(names)


def _in_fence(engine: Engine, text: str, fence: re.Match[str]) -> list[Source]:
    """The launches of one block of a page, named by the heading above it."""
    headings = [match[1] for match in HEADING.finditer(text, 0, fence.start())]
    script = re.sub(rf"^{fence[1]}", "", fence[4], flags=re.MULTILINE)
    script = PLACEHOLDER.sub(lambda match: "$" + re.sub(r"\W+", "_", match[1].strip()), script)
    try:
        launches = _in_script(engine, _typed(script, fence[3].lower() == "console"))
    except ScriptError:
        return []  # a block with an output, or with dots for what the reader fills in
    return [Source(server=source.server, name=headings[-1] if headings else "", notes=source.notes) for source in launches]


def _typed(text: str, at_prompts: bool = False) -> str:
    """A script without the prompts of the shell that it was typed into."""
    return re.sub(r"^\s*[$>] ", "", text, flags=re.MULTILINE) if at_prompts or re.match(r"\s*\$ ", text) else text


def _in_script(engine: Engine, text: str, variables: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> list[Source]:
    """The launches in a script, and in the scripts that a command starts."""
    script = read_script(text, {"HOME": str(Path.home()), **(variables or {})}, arguments)
    notes: tuple[str, ...] = ()
    if script.assumed:
        verb = "is" if len(script.assumed) == 1 else "are"
        notes = (f"{', '.join(script.assumed)} {verb} not set and {verb} read as empty: write {script.assumed[0]}=... before the command.",)
    sources: list[Source] = []
    for command in script.commands:
        env = {name: value for name, value in command.env.items() if name != "HOME"}
        if sources and command.words[0].startswith("--"):
            note = f"{command.words[0]} begins a command of its own and is not read: the line before it does not end with a backslash."
            sources[-1] = replace(sources[-1], notes=(*sources[-1].notes, note))
        sources += [Source(server=server, notes=notes, files=script.files) for server in servers_of(engine.name, command.words, env)]
        if not sources and variables is None and len(script.commands) == 1:
            sources += _in_file(engine, command, env)
    starts = any(name in text for name in (*MODULES[engine.name], f"{engine.name} {SERVE}"))
    if not sources and script.ends and variables is not None and starts:
        names = ", ".join(list(variables)[:MOST_SAID]) or "none"
        rule = f"ends before it starts {engine.title} with the variables that it is given ({names})"
        raise ScriptError(rule)
    return sources


def _in_file(engine: Engine, command: ScriptCommand, env: Mapping[str, str]) -> list[Source]:
    """The launches in the script that a command starts, with the variables and arguments that it is given."""
    words = [word for word in command.words if not missing_in(word)]
    words = words[1:] if words and words[0].rpartition("/")[2] in (*SHELLS, "source", ".") else words
    words = words[next((place for place, word in enumerate(words) if not word.startswith("-")), 0) :]
    path = Path(words[0]).expanduser() if words else None
    if path is None or not _is_file(path):
        return []
    text = document.read_text(path)
    if len(text) > MOST_CHARACTERS:
        return []
    return _in_script(engine, text, env, words[1:])


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long for a name of a file; holds a zero byte
        return False


__all__ = ["MOST_CHARACTERS", "Source", "sources_in"]

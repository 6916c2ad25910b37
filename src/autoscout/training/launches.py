"""The training commands in what people paste: a command line, or a script that holds one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from autoscout.commands.script import ScriptError, Word, missing_in, read_script
from autoscout.core.errors import ConfigError, Fault, NoLaunchError

MOST_CHARACTERS = 400_000
LAUNCHERS = ("torchrun", "deepspeed", "accelerate")
MODULES = ("torch.distributed.run", "torch.distributed.launch", "deepspeed.launcher.runner")
PYTHON = re.compile(r"python[\d.]*$")
SHELLS = ("sh", "bash", "dash", "zsh", "source", ".")
SWITCHES = ("--standalone", "--no-python", "--no_python", "--use-env", "--use_env", "--no_local_rank", "--enable_elastic_training",
            "--no_ssh", "--force_multi", "--save_pid", "--enable_each_rank_log", "--bind_cores_to_rank", "--multi_gpu", "--multi-gpu",
            "--use_deepspeed", "--use-deepspeed", "--use_fsdp", "--use-fsdp", "--no-ssh", "-u")  # fmt: skip
"""Flags of launchers that take no value."""
PROCESSES = ("nproc_per_node", "nproc-per-node", "num_gpus", "num-gpus")
NODES = ("nnodes", "num_nodes", "num-nodes", "num_machines", "num-machines")
ALL_PROCESSES = ("num_processes", "num-processes")  # of all machines together
PORTS = ("--master_port", "--master-port", "--main_process_port", "--main-process-port")
MEETING = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "HOME", "PATH", "PWD")
"""Variables that every trial has its own of, or that this machine has."""
EXAMPLE = "Give the command, such as 'torchrun --nproc-per-node 8 train.py', or a file with it"


@dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """A command that trains.

    Attributes:
        before: Words before the script: wrappers, the launcher and its flags.
        script: The script, or the module after `-m`.
        arguments: Of the script.
        env: Variables that it is given.
        processes: Of one machine; 0 where nobody says.
        nodes: Machines.
        has_launcher: Whether something starts several processes.
    """

    before: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    processes: int = 0
    nodes: int = 1
    has_launcher: bool = False

    @property
    def hardware(self) -> dict[str, Any]:
        """Facts of the machine that it names."""
        nodes = {"nodes": self.nodes} if self.nodes > 1 else {}
        return {"gpus": self.processes * self.nodes, **nodes} if self.processes else nodes

    @property
    def words(self) -> list[str]:
        return [*self.before, self.script, *self.arguments]

    def value_of(self, *flags: str) -> tuple[int, str]:
        """Where the value of the first of some flags stands among the words, and the value; -1 where none is there."""
        for place, word in enumerate(self.words[:-1]):
            if word in flags:
                return place + 1, self.words[place + 1]
        return -1, ""

    def line(self, slots: Mapping[int, str] | None = None) -> str:
        """The command as the field `command` of a workload has it: with slots in some places, and no other brace that is one."""
        placed = {self.value_of(*PORTS)[0]: "{port}", **(slots or {})}
        variables = [f"{name}={_quoted(value)}" for name, value in self.env.items()]
        return " ".join([*variables, *(placed.get(place) or _quoted(word) for place, word in enumerate(self.words))])


def read_training_launch(text: str, name: str) -> TrainingStart:
    """The only training command in a text.

    Raises:
        ConfigError: there is none, or several, or it depends on variables that are not set.
    """
    where = name.partition("#")[0]
    if len(text) > MOST_CHARACTERS or "\0" in text:
        raise ConfigError(Fault(where=where, rule=f"is no text of at most {MOST_CHARACTERS:,} characters", fix=EXAMPLE))
    try:
        starts = list({repr(start): start for start in _starts(text)}.values())
    except ScriptError as error:
        raise ConfigError(Fault(where=where, rule=f"the script {error}", fix="Give the command that trains alone")) from None
    if len(starts) != 1:
        if not starts:
            raise NoLaunchError(Fault(where=where, rule="holds no training command", fix=EXAMPLE))
        rule = f"holds {len(starts)} training commands"
        raise ConfigError(Fault(where=where, rule=rule, fix="Give the one that you mean alone"))
    return starts[0]


def complete(start: TrainingStart, words: Sequence[str], where: str) -> list[Fault]:
    """Words that depend on variables which are not set."""
    missing = list(dict.fromkeys(name for word in words for name in missing_in(word)))
    if not missing:
        return []
    rule = f"{start.script} is given {', '.join(f'${name}' for name in missing)}, which the text does not set"
    return [Fault(where=where, rule=rule, fix=f"Write {missing[0]}=... before the command")]


def _starts(text: str, arguments: Sequence[str] = (), depth: int = 0) -> Iterator[TrainingStart]:
    script = read_script(text, {"HOME": str(Path.home()), "PWD": str(Path.cwd())}, arguments)
    for command in script.commands:
        words = [word for word in command.words if word or missing_in(word)]
        start = start_in(words, {key: value for key, value in command.env.items() if key not in MEETING})
        if start is not None:
            yield start
        elif depth == 0 and words and (inner := _file_of(words)) is not None:
            yield from _starts(inner[0], inner[1], depth + 1)


def _file_of(words: Sequence[str]) -> tuple[str, list[str]] | None:
    """The script that a command starts, with its arguments; None where it starts none that is here."""
    rest = list(words[1:] if PurePosixPath(words[0]).name in SHELLS else words)
    if not rest or not rest[0].endswith((".sh", ".bash", ".sbatch")) or not Path(rest[0]).is_file():
        return None
    return Path(rest[0]).read_text(errors="replace"), rest[1:]


def start_in(words: Sequence[str], env: Mapping[str, str]) -> TrainingStart | None:
    """The training that a command starts; None where it starts something else."""
    place, launcher = _launcher(words)
    if place is None:
        return None
    options: dict[str, str] = {}
    at = place + 1
    while at < len(words):
        word = words[at]
        if word in ("-m", "--module"):
            at += 1
            break
        if not word.startswith("-"):
            break
        name, equals, value = word.partition("=")
        if not equals and word not in SWITCHES and at + 1 < len(words):
            value, at = words[at + 1], at + 1
        options[name.lstrip("-")] = value
        at += 1
    if at >= len(words) or not (words[at].endswith(".py") or words[at - 1] in ("-m", "--module")):
        return None
    nodes = _number(options, NODES) or 1
    everywhere = _number(options, ALL_PROCESSES)
    per_node = _number(options, PROCESSES) or (everywhere // nodes if everywhere else 0)
    return TrainingStart(
        before=tuple(words[:at]),
        script=words[at],
        arguments=tuple(words[at + 1 :]),
        env=dict(env),
        processes=per_node,
        nodes=nodes,
        has_launcher=launcher,
    )


def _launcher(words: Sequence[str]) -> tuple[int | None, bool]:
    """Where the word is after which flags of the launcher stand, and whether it is a launcher; an interpreter alone is none."""
    python = None
    for place, word in enumerate(words):
        name = PurePosixPath(word).name
        if name in LAUNCHERS:
            return (place + 1 if name == "accelerate" and words[place + 1 : place + 2] == ["launch"] else place), True
        if word in MODULES and words[place - 1] == "-m":
            return place, True
        if PYTHON.match(name) and python is None:
            python = place
        if python is not None and word.endswith(".py"):
            break
    return python, False


def _number(options: Mapping[str, str], names: Sequence[str]) -> int:
    """The number of an option; the most of a range such as 1:4; 0 where there is none."""
    for name in names:
        if match := re.fullmatch(r"(?:\d+:)?(\d+)", options.get(name, "")):
            return int(match[1])
    return 0


def _quoted(word: str) -> str:
    """A word for the shell in which no brace is a slot."""
    return re.sub(r"\{([^\W\d][\w.\-]*(?::[^{}|]*)?(?:\|[^{}]*)?)\}", r"{{\1}}", shlex.quote(word))


__all__ = ["TrainingStart", "Word", "complete", "read_training_launch", "start_in"]

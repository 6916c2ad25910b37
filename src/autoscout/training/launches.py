"""The training commands in what people paste: a command line, or a script that holds one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from autoscout.commands.script import ScriptError, Word, missing_in, read_script
from autoscout.commands.secrets import left_out
from autoscout.core.errors import ConfigError, Fault, NoLaunchError
from autoscout.core.secrecy import is_secret
from autoscout.training.launch_machines import MachineFacts, machine_facts, meeting_places, outer_place

MOST_CHARACTERS = 400_000
LAUNCHERS = {"torchrun": "torchrun", "deepspeed": "deepspeed", "accelerate": "accelerate"}
MODULES = {"torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun", "deepspeed.launcher.runner": "deepspeed",
           "accelerate.commands.launch": "accelerate"}  # fmt: skip
PYTHON = re.compile(r"python[\d.]*$")
SHELLS = ("sh", "bash", "dash", "zsh", "source", ".")
SWITCHES = ("--standalone", "--no-python", "--no_python", "--use-env", "--use_env", "--no_local_rank", "--enable_elastic_training",
            "--no_ssh", "--force_multi", "--save_pid", "--enable_each_rank_log", "--bind_cores_to_rank", "--multi_gpu", "--multi-gpu",
            "--use_deepspeed", "--use-deepspeed", "--use_fsdp", "--use-fsdp", "--no-ssh", "-u", "--cpu", "--quiet", "-q", "--same_network",
            "--use_parallelism_config", "--use_megatron_lm", "--debug", "--downcast_bf16", "--enable_cpu_affinity",
            "--dynamo_use_dynamic", "--dynamo_use_fullgraph", "--run_path")  # fmt: skip
"""Flags of launchers that take no value."""
PORTS = ("--master_port", "--master-port", "--main_process_port", "--main-process-port")
PORT_GIVEN = tuple(f"{flag}=" for flag in PORTS)
OWN = ("MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK", "HOME", "PATH", "PWD")
"""Variables that every trial has its own of, or that this machine has."""
VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables that name GPUs: a trial is given its own."""
EXAMPLE = "Give the command, such as 'torchrun --nproc-per-node 8 train.py', or a file with it"


@dataclass(frozen=True, kw_only=True)
class TrainingStart:
    """A command that trains.

    Attributes:
        before: Words before the script: wrappers, the launcher and its flags.
        script: The script, or the module after `-m`.
        arguments: Of the script.
        env: Variables that it is given.
        folder: That it is started in; empty for the current one.
        machine: Processes and machines that it asks for.
        left_out: What every trial has its own of, or what is kept nowhere, one sentence each.
    """

    before: tuple[str, ...]
    script: str
    arguments: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    machine: MachineFacts = field(default_factory=MachineFacts)
    left_out: tuple[str, ...] = ()

    @property
    def hardware(self) -> dict[str, Any]:
        """Facts of the machine that it names."""
        return self.machine.hardware

    @property
    def cwd(self) -> dict[str, str]:
        """The field `cwd` of a workload, where it is not the current folder."""
        return {"cwd": self.folder} if self.folder else {}

    def path(self, name: str) -> Path:
        """A file that it names."""
        return (Path(self.folder) / Path(name).expanduser()).absolute()

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
    job = " ".join(re.findall(r"^#SBATCH[ \t]+(.*)$", text, re.MULTILINE))
    for command in script.commands:
        words = [word for word in command.words if word or missing_in(word)]
        folder = str(command.env.get("PWD", ""))
        folder = "" if folder == str(Path.cwd()) else folder
        start = start_in(words, {key: value for key, value in command.env.items() if key not in OWN}, job, folder)
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


def start_in(words: Sequence[str], env: Mapping[str, str], job: str = "", folder: str = "") -> TrainingStart | None:
    """The training that a command starts; None where it starts something else.

    Args:
        words: Of the command.
        env: That it is given.
        job: Flags of the Slurm job that the text describes.
        folder: That it is started in; empty for the current one.
    """
    words = [part for word in words for part in (word.split("=", 1) if word.startswith(PORT_GIVEN) else [word])]
    place, launcher = _launcher(words)
    if place is None:
        return None
    options: dict[str, str] = {}
    first = at = place + 1
    while at < len(words):
        word = words[at]
        if word in ("-m", "--module"):
            at += 1
            break
        if not word.startswith("-"):
            break
        name, equals, value = word.partition("=")
        if not equals and word not in SWITCHES and at + 1 < len(words) and not _ends_flags(words[at + 1]):
            value, at = words[at + 1], at + 1
        options[name.lstrip("-").replace("-", "_")] = value
        at += 1
    if at >= len(words) or not (words[at].endswith(".py") or words[at - 1] in ("-m", "--module")):
        return None
    assigned = {place: word.partition("=") for place, word in enumerate(words[:place]) if re.match(r"[A-Za-z_]\w*=", word)}
    hidden = {place: name for place, (name, _, value) in assigned.items() if is_secret(name, value)}
    secret = [*(name for name, value in env.items() if is_secret(name, value)), *hidden.values()]
    visible = {name: value for name, value in env.items() if name in VISIBLE}
    options |= {name: str(Path(folder) / options[name]) for name in ("hostfile", "config_file") if name in options}
    machine = machine_facts(words[:at], options, launcher, next(iter(visible.values()), None), job)
    outer = outer_place(words[:at])
    contained = any("container" in word for word in words[outer : place + 1])
    places = {first + place for place in meeting_places(words[first:at], launcher)} if outer < 0 or not contained else set()
    flags = [words[place].partition("=")[0] for place in sorted(places) if words[place].startswith("--")]
    wrapped = range(outer, _begin(words, place)) if launcher == "torchrun" and outer >= 0 and not contained else range(0)
    return TrainingStart(
        before=tuple(word for place, word in enumerate(words[:at]) if place not in (*places, *wrapped, *hidden)),
        script=words[at],
        arguments=tuple(words[at + 1 :]),
        env={name: value for name, value in env.items() if name not in visible and name not in secret},
        folder=folder,
        machine=machine,
        left_out=(
            *([f"{', '.join(flags)}: every trial is told where its processes meet."] if flags else []),
            *([f"{words[outer]}: AutoScout starts {launcher} itself, on each machine."] if wrapped else []),
            *(f"{name}={value}: every trial is given GPUs of its own." for name, value in visible.items()),
            *([left_out(secret)] if secret else []),
        ),
    )


def _begin(words: Sequence[str], place: int) -> int:
    """Where the command of a launcher begins: with its interpreter, where it is a module."""
    return place - 2 if words[place - 1] == "-m" else place


def _ends_flags(word: str) -> bool:
    """Whether a word is no value of the flag before it: another flag, or the script."""
    return word.endswith(".py") or re.match(r"--?[A-Za-z]", word) is not None


def _launcher(words: Sequence[str]) -> tuple[int | None, str]:
    """Where the word is after which flags of the launcher stand, and which launcher it is; an interpreter alone is none."""
    python = None
    for place, word in enumerate(words):
        name = PurePosixPath(word).name
        if name in LAUNCHERS:
            return (place + 1 if name == "accelerate" and words[place + 1 : place + 2] == ["launch"] else place), LAUNCHERS[name]
        if word in MODULES and words[place - 1] == "-m":
            return place, MODULES[word]
        if PYTHON.match(name) and python is None:
            python = place
        if python is not None and word.endswith(".py"):
            break
    return python, ""


def _quoted(word: str) -> str:
    """A word for the shell in which no brace is a slot."""
    return re.sub(r"\{([^\W\d][\w.\-]*(?::[^{}|]*)?(?:\|[^{}]*)?)\}", r"{{\1}}", shlex.quote(word))


__all__ = ["TrainingStart", "Word", "complete", "read_training_launch", "start_in"]

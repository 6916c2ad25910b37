"""The user's own training command: a line for the shell with `{knob}` slots, written as the backend `command` writes its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoscout.commands.check import empty_faults, fault, slot_faults
from autoscout.commands.template import Scope, Template, parse
from autoscout.core.config import Value
from autoscout.core.errors import Fault
from autoscout.space import Space
from autoscout.training.hardware import local_processes
from autoscout.training.protocol import FOLDER_VARIABLE, HOSTFILE, PORT_VARIABLE

SLOTS = {"folder": FOLDER_VARIABLE, "port": PORT_VARIABLE, "hostfile": f"{FOLDER_VARIABLE}/{HOSTFILE}"}
"""Slots that are known only when the command runs, in every training command."""

_NO_WORDS = re.compile(r"[|;&<>()$`#\n]|^\s*(?:\w+=|cd\s|\.\s|source\s|exec\s|if\s|for\s|while\s|!)")
"""Lines that are more than one plain command, or that begin with what only a shell knows."""
REACHING = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "prun", "srun", "pdsh", "deepspeed", "deepspeed.launcher.runner", "horovodrun"})
"""Launchers that start processes on other machines by themselves. torchrun and `accelerate launch` are started on each."""
ACCELERATE = "accelerate launch"
MACHINE_FLAGS = '--num_machines "$NNODES" --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR"'
_OR_DEFAULT = "; or give the knob its default, which is what the script does without it"


class TrainingCommand:
    """A command line with what its slots may hold.

    Args:
        text: As the user wrote it.
        slots: What is known only when it runs, by name, as `autoscout.commands.template.RUNTIME`.
    """

    def __init__(self, text: str, slots: Mapping[str, str] = SLOTS) -> None:
        self.template: Template = parse(text.strip(), shell=True, runtime=slots)
        self.slots = slots

    def faults(self, field: str = "command") -> Iterator[Fault]:
        """What is wrong with its text alone."""
        if not self.template.text:
            yield fault(field, "must not be empty", "''")
            return
        try:
            shlex.split(self.template.text)
        except ValueError as error:
            yield fault(field, f"cannot be read as a command: {error}", self.template.text)
        for rule in self.template.faults:
            yield fault(field, rule)

    def space_faults(self, space: Space, facts: Mapping[str, Value], field: str = "command") -> Iterator[Fault]:
        """Slots that name nothing, and slots that stay empty for some configurations."""
        names = {*space.knobs, *facts, *self.slots, "flags"}
        yield from slot_faults(field, self.template, space, names)
        yield from empty_faults(field, self.template.bare, self.template, space, also=_OR_DEFAULT)

    def argv(self, config: Mapping[str, Value], facts: Mapping[str, Value], knobs: Sequence[str]) -> tuple[str, ...]:
        """What starts it: a shell that becomes the program where the line is one plain command."""
        line = self.line(config, facts, knobs)
        return ("/bin/sh", "-c", line if self.is_script else f"exec {line}")

    def line(self, config: Mapping[str, Value], facts: Mapping[str, Value], knobs: Sequence[str]) -> str:
        """The line for one configuration; null is the script's own setting.

        Args:
            config: Values of the active knobs.
            facts: What else slots may hold.
            knobs: All knobs that `{flags}` may stand for.
        """
        values = {name: value for name, value in config.items() if value is not None}
        flags = tuple(name for name in knobs if name not in self.template.names)
        line = self.template.shell(Scope(values={**facts, **values}, flags=flags, runtime=self.slots))
        if int(str(facts.get("nodes", 1))) > 1 and "--machine_rank" not in line:  # which accelerate does not read from variables
            port = "" if "--main_process_port" in line else ' --main_process_port "$MASTER_PORT"'
            everywhere = f"{ACCELERATE} --num_processes {facts['processes']} {MACHINE_FLAGS}{port}"
            return re.sub(rf"(?<!\S){ACCELERATE}(?!\S)(?: --num_processes[ =]\d+)?", lambda _: everywhere, line, count=1)
        return line

    @property
    def program(self) -> str:
        """The first word that is no variable: what is compiled for one program another cannot use."""
        words = self.template.text.split()
        return next((word for word in words if not re.match(r"\w+=", word)), "")

    @property
    def reaches_others(self) -> bool:
        """Whether it starts processes on other machines by itself, so that it is started on the first one only."""
        if "hostfile" in self.template.names:
            return True
        for command in re.split(r"[;&|\n]+", self.template.text):
            words = command.split()
            script = next((place for place, word in enumerate(words) if word.endswith(".py")), len(words))
            before = {Path(word).name for word in words[:script]}
            if before & REACHING and "--no_ssh" not in words:
                return True
        return False

    def node_faults(self, hardware: Mapping[str, Any], field: str = "command") -> Iterator[Fault]:
        """What keeps it from training on all machines."""
        if int(hardware.get("nodes", 1)) == 1 or self.reaches_others:
            return
        text = self.template.text
        if re.search(r"--nproc[-_]per[-_]node[=\s]+\{processes\}", text):
            rule = "starts the processes of all machines on each: {processes} counts them all"
            yield fault(field, rule, text, "Write {local_processes}, or leave the flag out: torchrun is told")
        if re.search(r"--standalone\b", text):
            yield fault(field, "every machine would train on its own with --standalone", text, "Leave it out: torchrun is told the rest")

    @property
    def is_script(self) -> bool:
        """Whether it is more than one plain command."""
        return _NO_WORDS.search(self.template.text) is not None


def slotted(command: str, flag: str, slot: str) -> tuple[str, str]:
    """A command with a slot for the value of a flag, and that value; as it was, and nothing, where the flag has none."""
    match = re.search(rf"(?<!\S){re.escape(flag)}(?:=|\s+)(?P<value>[^\s;&|{{}}]+)(?!\S)", command)
    if match is None or re.match(r"--?[A-Za-z]", match["value"]):
        return command, ""
    return f"{command[: match.start('value')]}{{{slot}}}{command[match.end('value') :]}", match["value"]


def command_facts(hardware: Mapping[str, Any]) -> dict[str, Value]:
    """What a command may read besides knobs: `processes`, `cores`, `gpus`, `nodes`, `local_processes` of each, and other scalars."""
    scalars = {name: value for name, value in hardware.items() if isinstance(value, (bool, int, float, str))}
    return {"nodes": 1, **scalars, "local_processes": local_processes(hardware)}


def given(config: Mapping[str, Value]) -> dict[str, Value]:
    """The settings that a script is given: null is its own, and is not said."""
    return {name: value for name, value in config.items() if value is not None}


def folder_faults(folder: str) -> list[Fault]:
    """The folder that a command runs in must exist."""
    return [] if Path(folder).is_dir() else [fault("cwd", "must be a folder that exists", folder)]


__all__ = ["SLOTS", "TrainingCommand", "command_facts", "folder_faults", "given", "slotted"]

"""The workload of the `pytorch` backend: the built-in model, or a script of the user's."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from autoscout.common.document import from_plain
from autoscout.common.fields import read_fields
from autoscout.core.errors import Fault, SpaceError
from autoscout.space import Space
from autoscout.space.yaml import space_from_item
from autoscout.training.workload import WHERE, BuiltInWorkload, fill_model


class PyTorchWorkload(BuiltInWorkload):
    """What is trained.

    Attributes:
        compile: Offer torch.compile. Left out: on a GPU, where it pays; on a CPU the first compilation takes most of a minute.
        command: The user's own training command, instead of a built-in model; `{knob}` in it is the value of a knob.
        cwd: Folder that the command runs in; the current one when left out.
        knobs: The knobs that the script reads, as a space declares them.
        constraints: Rules over those knobs.
    """

    compile: bool | None = None
    command: str = ""
    cwd: str = ""
    knobs: dict[str, Any] = Field({})
    constraints: list[str] = Field([])

    @property
    def argv(self) -> list[str]:
        return shlex.split(self.command)


def read_workload(data: Mapping[str, Any], hardware: Mapping[str, Any]) -> tuple[PyTorchWorkload, list[Fault]]:
    """The workload filled up to suit the machine, and all that is wrong with it."""
    read, faults = read_fields(PyTorchWorkload, data, WHERE)
    workload = read or PyTorchWorkload()
    on_gpu = hardware.get("device") == "cuda"
    if workload.command:
        filled = workload.model_copy(update={"cwd": str(Path(workload.cwd or ".").expanduser().absolute()), "compile": False})
        return filled, [*faults, *_command(filled), *_knobs(filled)]
    stray = [name for name in ("knobs", "constraints", "cwd") if getattr(workload, name) and "command" not in data]
    rule = "belongs to a script of your own, which the field command names"
    faults += [Fault(where=WHERE, field=name, rule=rule, fix="Give command, or --train-cmd") for name in stray]
    filled = workload.model_copy(update={"compile": on_gpu if workload.compile is None else workload.compile})
    complete, wrong = fill_model(filled, str(hardware.get("device")), int(hardware.get("processes", 1)))
    return complete, [*faults, *wrong]


def own_space(workload: PyTorchWorkload, facts: Mapping[str, Any]) -> Space:
    """The knobs that the user's script reads.

    Raises:
        SpaceError: all faults of the declaration at once.
    """
    block = {"knobs": workload.knobs, **({"constraints": workload.constraints} if workload.constraints else {})}
    return space_from_item(from_plain(block, WHERE), dict(facts))


def _command(workload: PyTorchWorkload) -> list[Fault]:
    try:
        words = workload.argv
    except ValueError as error:
        return [Fault(where=WHERE, field="command", value=repr(workload.command), rule=f"cannot be read as a command: {error}")]
    if not Path(workload.cwd).is_dir():
        return [Fault(where=WHERE, field="cwd", value=repr(workload.cwd), rule="must be a folder that exists")]
    return [] if words else [Fault(where=WHERE, field="command", value=repr(workload.command), rule="must not be empty")]


def _knobs(workload: PyTorchWorkload) -> list[Fault]:
    if not workload.knobs:
        fix = "Example: -w knobs='{micro_batch: [1, 2, 4, 8]}', and in the script: autoscout.training.config()"
        return [Fault(where=WHERE, field="knobs", rule="name the knobs that your script reads", fix=fix)]
    try:
        own_space(workload, {"processes": 1, "cores": 1, "gpus": 0})
    except SpaceError as error:
        return list(error.faults)
    return []

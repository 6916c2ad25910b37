"""The workload of the `deepspeed` backend: the built-in model, or a script of the user's that reads a DeepSpeed file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from autoscout.common.document import load_json
from autoscout.common.fields import read_fields
from autoscout.core.errors import ConfigError, Fault
from autoscout.training.workload import WHERE, BuiltInWorkload, fill_model


class DeepSpeedWorkload(BuiltInWorkload):
    """What is trained.

    Attributes:
        command: The user's own training command, instead of a built-in model; `{ds_config}` in it is the path of DeepSpeed's file,
            `{port}` a free port.
        cwd: Folder that the command runs in; the current one when left out.
        ds_config: The user's own settings of DeepSpeed, as a file or a mapping; knobs are laid over them.
        nvme_path: Folder on a fast disk for what is offloaded there; without it that is not offered.
    """

    command: str = ""
    cwd: str = ""
    ds_config: dict[str, Any] | str = Field({})
    nvme_path: str = ""

    @property
    def argv(self) -> list[str]:
        return shlex.split(self.command)

    @property
    def base(self) -> dict[str, Any]:
        return self.ds_config if isinstance(self.ds_config, dict) else {}

    @property
    def has_optimizer(self) -> bool:
        return "optimizer" in self.base


def read_workload(data: Mapping[str, Any], hardware: Mapping[str, Any]) -> tuple[DeepSpeedWorkload, list[Fault]]:
    """The workload filled up to suit the machine, and all that is wrong with it."""
    read, faults = read_fields(DeepSpeedWorkload, data, WHERE)
    workload = read or DeepSpeedWorkload()
    base, wrong = _base(workload)
    faults += wrong
    workload = workload.model_copy(update={"ds_config": base})
    own = base.get("train_batch_size")
    if not workload.global_batch and isinstance(own, int) and not isinstance(own, bool):
        workload = workload.model_copy(update={"global_batch": own})
    processes = int(hardware.get("processes", 1))
    if workload.command:
        filled = workload.model_copy(update={"cwd": str(Path(workload.cwd or ".").expanduser().absolute())})
        return filled, [*faults, *_command(filled, processes)]
    complete, wrong = fill_model(workload, str(hardware.get("device")), processes)
    return complete, [*faults, *wrong]


def _base(workload: DeepSpeedWorkload) -> tuple[dict[str, Any], list[Fault]]:
    """The user's file of DeepSpeed."""
    if isinstance(workload.ds_config, dict):
        return workload.ds_config, []
    try:
        data = load_json(Path(workload.ds_config).expanduser())
    except ConfigError as error:
        return {}, list(error.faults)
    if not isinstance(data, dict):
        return {}, [Fault(where=workload.ds_config, rule="a DeepSpeed file holds one JSON object")]
    return data, []


def _command(workload: DeepSpeedWorkload, processes: int) -> list[Fault]:
    def fault(field: str, rule: str, fix: str = "") -> Fault:
        return Fault(where=WHERE, field=field, value=repr(getattr(workload, field)), rule=rule, fix=fix)

    try:
        words = workload.argv
    except ValueError as error:
        return [fault("command", f"cannot be read as a command: {error}")]
    faults = []
    if not any("{ds_config}" in word for word in words):
        fix = "Example: --train-cmd 'deepspeed --master_port {port} train.py --deepspeed_config {ds_config}'"
        faults.append(fault("command", "must take DeepSpeed's file: {ds_config} is its path", fix))
    if not Path(workload.cwd).is_dir():
        faults.append(fault("cwd", "must be a folder that exists"))
    if workload.global_batch < processes or workload.global_batch % processes:
        rule = f"every configuration does the same work: say how many sequences a step has, a multiple of the {processes} processes"
        faults.append(fault("global_batch", rule, "Give global_batch, or train_batch_size in your DeepSpeed file"))
    return faults

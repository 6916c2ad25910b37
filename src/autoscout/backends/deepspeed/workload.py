"""The workload of the `deepspeed` backend: the built-in model, or a script of the user's that reads a DeepSpeed file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from autoscout.backends.deepspeed.settings import FILE
from autoscout.backends.deepspeed.user_file import ACCUMULATION, AUTO, GLOBAL, MICRO, UserFile, file_faults, read_user_file
from autoscout.common.document import load_json
from autoscout.common.fields import read_fields
from autoscout.core.errors import ConfigError, Fault
from autoscout.training.command import SLOTS, TrainingCommand, folder_faults, slotted
from autoscout.training.protocol import FOLDER_VARIABLE
from autoscout.training.workload import WHERE, BuiltInWorkload, fill_model

DERIVED = ("accumulation", "global_batch")
"""What a command may read besides knobs and facts: what follows from the micro-batch."""

_EXAMPLE = "Example: --train-cmd 'deepspeed --master_port {port} train.py --deepspeed_config {ds_config}'"


class DeepSpeedWorkload(BuiltInWorkload):
    """What is trained.

    Attributes:
        command: The user's own training command, instead of a built-in model; `{ds_config}` in it is the path of DeepSpeed's file,
            `{port}` a free port.
        cwd: Folder that the command runs in; the current one when left out.
        ds_config: The user's own settings of DeepSpeed, as a file or a mapping: where knobs begin. A list in it is of values to try.
        tuning_space: A tuning space of DeepSpeed's kind, as a file or a mapping, laid over these settings: its lists alone are searched.
        micro_batch: Sequences at once to begin with; that of the file or the command when left out.
        nvme_path: Folder on a fast disk for what is offloaded there; without it that is not offered.
    """

    command: str = ""
    cwd: str = ""
    ds_config: dict[str, Any] | str = Field({})
    tuning_space: dict[str, Any] | str = Field({})
    micro_batch: int = Field(0, ge=0)
    nvme_path: str = ""

    @property
    def line(self) -> TrainingCommand:
        return TrainingCommand(self.command, {**SLOTS, "ds_config": f"{FOLDER_VARIABLE}/{FILE}"})

    @property
    def settings(self) -> dict[str, Any]:
        """The user's file with the tuning space over it, as they were written."""
        return _laid_over(_mapping(self.ds_config), _mapping(self.tuning_space))

    @property
    def file(self) -> UserFile:
        """The same, read."""
        return read_user_file(self.settings, whole=bool(self.ds_config))

    @property
    def exact(self) -> frozenset[str]:
        """Knobs that a tuning space names, by our names or dotted paths; they are searched as it says, and nothing else is."""
        return frozenset(read_user_file(_mapping(self.tuning_space)).scope) if self.tuning_space else frozenset()


def read_workload(data: Mapping[str, Any], hardware: Mapping[str, Any]) -> tuple[DeepSpeedWorkload, list[Fault]]:
    """The workload filled up to suit the machine, and all that is wrong with it."""
    read, faults = read_fields(DeepSpeedWorkload, data, WHERE)
    workload = read or DeepSpeedWorkload()
    loaded: dict[str, Any] = {}
    for name in ("ds_config", "tuning_space"):
        loaded[name], wrong = _read_json(getattr(workload, name))
        faults += wrong
    workload = workload.model_copy(update=loaded)
    if wrong := list(file_faults(workload.settings, str(data.get("ds_config") or "ds_config"))):
        return workload, [*faults, *wrong]
    file, processes = workload.file, int(hardware.get("processes", 1))
    workload, wrong = _with_batch(workload, file, processes)
    faults += wrong
    if not workload.nvme_path:
        own = file.base.get("zero_optimization") or {}
        paths = [str((own.get(name) or {}).get("nvme_path", "")) for name in ("offload_optimizer", "offload_param")]
        workload = workload.model_copy(update={"nvme_path": next(filter(None, paths), "")})
    if workload.command:
        filled = workload.model_copy(update={"cwd": str(Path(workload.cwd or ".").expanduser().absolute())})
        return filled, [*faults, *filled.line.node_faults(hardware), *_command(filled, processes)]
    complete, wrong = fill_model(workload, str(hardware.get("device")), processes)
    return complete, [*faults, *wrong]


def goal_of(source: object) -> str:
    """The metric that a file's `autotuning` section asks for; empty where it asks for none, or cannot be read."""
    data, faults = _read_json(source) if isinstance(source, (dict, str)) else ({}, [])
    return "" if faults or list(file_faults(data, WHERE)) else read_user_file(data).metric


def _read_json(source: dict[str, Any] | str) -> tuple[dict[str, Any], list[Fault]]:
    """Settings that are given as they are, or as a file."""
    if isinstance(source, dict) or not source:
        return dict(source or {}), []
    try:
        data = load_json(Path(source).expanduser())
    except ConfigError as error:
        return {}, list(error.faults)
    if not isinstance(data, dict):
        return {}, [Fault(where=source, rule="a DeepSpeed file holds one JSON object")]
    return data, []


def _mapping(settings: dict[str, Any] | str) -> dict[str, Any]:
    return settings if isinstance(settings, dict) else {}


def _laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in top.items():
        below = merged.get(name)
        merged[name] = _laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return merged


def _with_batch(workload: DeepSpeedWorkload, file: UserFile, processes: int) -> tuple[DeepSpeedWorkload, list[Fault]]:
    """The work of a step, by the file, by the flags that it leaves it to, or by the largest batch that it allows; and the command with
    slots for those flags."""
    command, faults = workload.command, []
    sizes: dict[str, int] = {}
    for setting, slot in ((MICRO, "micro_batch"), (ACCUMULATION, "accumulation"), (GLOBAL, "global_batch")):
        value = file.base.get(setting)
        if isinstance(value, int) and not isinstance(value, bool):
            sizes[setting] = value
        flag = file.flag_of(setting, command) if command else ""
        if flag:
            command, written = slotted(command, flag, slot)
            if written.isdecimal():
                sizes.setdefault(setting, int(written))
            elif not written and f"{{{slot}}}" not in command:  # added, as DeepSpeed's tuner does
                command = f"{command} {flag} {{{slot}}}"
        elif value == AUTO and setting == MICRO:
            rule = "is left to the Trainer, so the micro-batch cannot be tuned"
            fix = 'Give autotuning.arg_mappings, such as {"train_micro_batch_size_per_gpu": "--per_device_train_batch_size"}, or a number'
            faults.append(Fault(where="ds_config", field=setting, value=AUTO, rule=rule, fix=fix))
    product = sizes.get(MICRO, 0) * sizes.get(ACCUMULATION, 1) * processes
    batch = workload.global_batch or sizes.get(GLOBAL, 0) or product or file.number("max_train_batch_size")
    if not workload.global_batch and sizes.get(GLOBAL) and ACCUMULATION in sizes and product not in (0, sizes[GLOBAL]):
        rule = f"DeepSpeed refuses it: {MICRO} * {ACCUMULATION} * {processes} processes is {product}"
        fix = "Give the number of GPUs that it is for (--gpus), or global_batch"
        faults.append(Fault(where="ds_config", field=GLOBAL, value=str(sizes[GLOBAL]), rule=rule, fix=fix))
    share = batch // processes if batch % processes == 0 else 0
    accumulated = share // sizes[ACCUMULATION] if sizes.get(ACCUMULATION) and share % sizes[ACCUMULATION] == 0 else 0
    micro = workload.micro_batch or sizes.get(MICRO, 0) or accumulated
    if micro and share and share % micro:
        rule = f"does not divide the share of a process, {share} sequences of {batch} over {processes} processes"
        faults.append(Fault(where=WHERE, field="micro_batch", value=str(micro), rule=rule, fix="Give another micro_batch or global_batch"))
        micro = 0
    return workload.model_copy(update={"command": command, "global_batch": batch, "micro_batch": micro}), faults


def _command(workload: DeepSpeedWorkload, processes: int) -> Iterator[Fault]:
    yield from workload.line.faults()
    if "ds_config" not in workload.line.template.names:
        rule = "must take DeepSpeed's file: {ds_config} is its path"
        yield Fault(where=WHERE, field="command", value=repr(workload.command), rule=rule, fix=_EXAMPLE)
    yield from folder_faults(workload.cwd)
    if workload.global_batch < processes or workload.global_batch % processes:
        rule = f"every configuration does the same work: say how many sequences a step has, a multiple of the {processes} processes"
        fix = f"Give global_batch; or {GLOBAL}, or {MICRO} with {ACCUMULATION}, in your DeepSpeed file"
        yield Fault(where=WHERE, field="global_batch", value=str(workload.global_batch), rule=rule, fix=fix)

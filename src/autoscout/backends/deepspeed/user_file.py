"""The user's own DeepSpeed file: what it says of knobs, which lists are the scope of a search, what its `autotuning` section asks for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscout.backends.deepspeed.settings import PATHS
from autoscout.common.templates import flatten, unflatten
from autoscout.core.config import Value
from autoscout.core.errors import Fault

AUTO = "auto"
"""What the Trainer fills in by itself."""

AUTOTUNING = "autotuning"
MICRO, ACCUMULATION, GLOBAL = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
NO_SCOPE = ("optimizer", "scheduler", "autotuning", "curriculum_learning", "data_efficiency", "sparse_attention", "elasticity")
"""Sections whose lists are lists: DeepSpeed itself leaves the optimizer's out of a search."""

TRAINER_FLAGS = {MICRO: "--per_device_train_batch_size", ACCUMULATION: "--gradient_accumulation_steps"}
"""Where the Trainer's command line says what its DeepSpeed file leaves to it."""


@dataclass(frozen=True)
class UserFile:
    """A file, read.

    Attributes:
        base: The settings themselves, without `autotuning` and without lists of candidates.
        values: What it says of knobs, `auto` included.
        scope: Candidates of knobs, by knob; further ones by dotted path.
        autotuning: Its section for DeepSpeed's own tuner.
    """

    base: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)
    scope: dict[str, list[Value]] = field(default_factory=dict)
    autotuning: dict[str, Any] = field(default_factory=dict)

    @property
    def more(self) -> tuple[str, ...]:
        """Settings with candidates that are no knobs of the backend, by dotted path."""
        return tuple(name for name in self.scope if name not in PATHS.values() and name != "precision")

    @property
    def is_fast(self) -> bool:
        """Whether the search is of the ZeRO stage and the micro-batch alone: DeepSpeed's default where the section is there."""
        return bool(self.autotuning) and bool(self.autotuning.get("fast", True))

    @property
    def metric(self) -> str:
        """The goal it names: at a fixed amount of work throughput and flops rank alike."""
        return "step_ms" if self.autotuning.get("metric") == "latency" else ""

    def number(self, name: str) -> int:
        """A number of the section, 0 where it has none."""
        value = self.autotuning.get(name)
        return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0

    def flag_of(self, setting: str, command: str) -> str:
        """The flag of the user's script that takes a setting: the one it is mapped to, or the Trainer's where the command has it."""
        mapped = self.autotuning.get("arg_mappings") or {}
        if setting in mapped:
            return str(mapped[setting]).strip()
        usual = TRAINER_FLAGS.get(setting, "")
        return usual if usual and usual in command else ""


def read_user_file(data: Mapping[str, Any], *, whole: bool = True) -> UserFile:
    """Take a file apart; it was checked by `file_faults`.

    Args:
        data: The settings.
        whole: Whether they are all that DeepSpeed is told: then what they do not name is as DeepSpeed has it, precision above all.
    """
    section = data.get(AUTOTUNING)
    leaves = flatten(_modern({name: value for name, value in data.items() if name != AUTOTUNING}))
    base: dict[str, Any] = {}
    values: dict[str, Value] = {}
    scope: dict[str, list[Value]] = {}
    for path, leaf in leaves.items():
        knob = PATHS.get(path)
        if path == "zero_optimization.stage" and leaf in ("all", ["all"]):
            continue
        listed = isinstance(leaf, list) and path.split(".")[0] not in NO_SCOPE
        candidates = [_plain(item) for item in leaf] if listed else []
        if len(candidates) > 1:
            scope[knob or path] = list({(type(item), item): item for item in candidates}.values())
        if knob is not None and (path, leaf) != (MICRO, AUTO):
            values[knob] = candidates[0] if listed else _plain(leaf)
        base[path] = candidates[0] if listed else leaf
    if whole or any(path.startswith(("bf16.", "fp16.")) for path in leaves):
        values |= _precision(leaves)
    return UserFile(base=unflatten(base), values=values, scope=scope, autotuning=dict(section) if isinstance(section, Mapping) else {})


def file_faults(data: Mapping[str, Any], where: str) -> Iterator[Fault]:
    """What cannot be read as a DeepSpeed file."""
    for path, leaf in flatten({name: value for name, value in data.items() if name != AUTOTUNING}).items():
        if isinstance(leaf, list) and not leaf and path.split(".")[0] not in NO_SCOPE:
            rule = "a list of candidates must not be empty"
            yield Fault(where=where, field=path, value="[]", rule=rule, fix="List values, or write one value without brackets")
    section = data.get(AUTOTUNING)
    if section is not None and not isinstance(section, Mapping):
        yield Fault(where=where, field=AUTOTUNING, value=repr(section), rule="must be a section")
    elif section and not isinstance(section.get("arg_mappings") or {}, Mapping):
        yield Fault(where=where, field=f"{AUTOTUNING}.arg_mappings", value=repr(section["arg_mappings"]), rule="must map settings to flags")


def _modern(data: Mapping[str, Any]) -> dict[str, Any]:
    """The file with offloading in sections: as a list of them, or by the switches of early versions."""
    zero = data.get("zero_optimization")
    if not isinstance(zero, Mapping):
        return dict(data)
    sections = dict(zero)
    for name, switch in (("offload_optimizer", "cpu_offload"), ("offload_param", "cpu_offload_params")):
        if sections.pop(switch, False) is True and name not in sections:
            sections[name] = {"device": "cpu"}
        listed = sections.get(name)
        if isinstance(listed, list) and listed and all(isinstance(item, Mapping) or item is None for item in listed):
            devices = [(item or {}).get("device", "none") for item in listed]
            rest = next((dict(item) for item in listed if item), {})
            sections[name] = {**rest, "device": devices}
    return {**data, "zero_optimization": sections}


def _precision(leaves: Mapping[str, Any]) -> dict[str, Value]:
    """The precision that the file names; `auto` where the Trainer decides."""
    enabled = {name: leaves.get(f"{name}.enabled", False) for name in ("bf16", "fp16")}
    if AUTO in enabled.values():
        return {"precision": AUTO}
    return {"precision": next((name for name, value in enabled.items() if value is True), "fp32")} if leaves else {}


def _plain(item: Any) -> Value:
    """A value that a knob can hold: 5e8 is a whole number, what is no scalar its JSON text."""
    if isinstance(item, float) and item.is_integer():
        return int(item)
    return item if item is None or isinstance(item, (bool, int, float, str)) else json.dumps(item, sort_keys=True)


__all__ = ["ACCUMULATION", "AUTO", "GLOBAL", "MICRO", "UserFile", "file_faults", "read_user_file"]

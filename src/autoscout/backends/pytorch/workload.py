"""The workload of the `pytorch` backend: the built-in model, or a script of the user's."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from autoscout.common.document import compose, from_plain
from autoscout.common.fields import read_fields
from autoscout.core.errors import ConfigError, Fault, SpaceError
from autoscout.space import Choice, Knob, Space
from autoscout.space.parser import name_text, parse
from autoscout.space.yaml import space_from_item
from autoscout.training.command import TrainingCommand, command_facts, folder_faults, slotted
from autoscout.training.hardware import outside_knobs
from autoscout.training.workload import WHERE, BuiltInWorkload, fill_model

MOST_OPEN = 64  # values of a knob that may be null: they are no longer steps of a range, but categories


class PyTorchWorkload(BuiltInWorkload):
    """What is trained.

    Attributes:
        compile: Offer torch.compile. Left out: on a GPU, where it pays; on a CPU the first compilation takes most of a minute.
        command: The user's own training command, instead of a built-in model: a line for the shell, with `{knob}` slots as those of the
            backend `command`.
        cwd: Folder that the command runs in; the current one when left out.
        knobs: The knobs that the script reads, as a space declares them. One without a `default` begins as null: the script is not told,
            and does what it does by itself.
        constraints: Rules over those knobs.
    """

    compile: bool | None = None
    command: str = ""
    cwd: str = ""
    knobs: dict[str, Any] = Field({})
    constraints: list[str] = Field([])

    @property
    def line(self) -> TrainingCommand:
        return TrainingCommand(self.command)


def read_workload(data: Mapping[str, Any], hardware: Mapping[str, Any]) -> tuple[PyTorchWorkload, list[Fault]]:
    """The workload filled up to suit the machine, and all that is wrong with it."""
    read, faults = read_fields(PyTorchWorkload, data, WHERE)
    workload = read or PyTorchWorkload()
    on_gpu = hardware.get("device") == "cuda"
    if workload.command:
        filled = workload.model_copy(update={"cwd": str(Path(workload.cwd or ".").expanduser().absolute()), "compile": False})
        filled, more = _with_flags(filled)
        return filled, [*faults, *more, *_command(filled, hardware)]
    stray = [name for name in ("knobs", "constraints", "cwd") if getattr(workload, name) and "command" not in data]
    rule = "belongs to a script of your own, which the field command names"
    faults += [Fault(where=WHERE, field=name, rule=rule, fix="Give command, or --train-cmd") for name in stray]
    filled = workload.model_copy(update={"compile": on_gpu if workload.compile is None else workload.compile})
    complete, wrong = fill_model(filled, str(hardware.get("device")), int(hardware.get("processes", 1)))
    return complete, [*faults, *wrong]


def _with_flags(workload: PyTorchWorkload) -> tuple[PyTorchWorkload, list[Fault]]:
    """The command with slots in the flags that are called as knobs are: their values are where these knobs begin."""
    command, knobs, faults = workload.command, dict(workload.knobs), []
    for name, entry in workload.knobs.items():
        if name in workload.line.template.names:
            continue
        flag = next((flag for flag in _flags(name) if slotted(command, flag, name)[1]), "")
        with_slot, text = slotted(command, flag, name) if flag else (command, "")
        declared = dict(entry) if isinstance(entry, Mapping) else {"values": entry}
        value = _value(text, declared)
        if value is None:
            continue
        if declared.get("default", value) != value:
            rule = f"the command has {flag} {text}, which is what you run"
            fix = "Leave the default out, or write the slot yourself"
            faults.append(Fault(where=WHERE, field=f"knobs.{name}.default", value=repr(declared["default"]), rule=rule, fix=fix))
        values = declared.get("values")
        if isinstance(values, list) and value not in values:
            values = sorted([*values, value]) if _are_numbers([*values, value]) else [value, *values]
        command, knobs[name] = with_slot, {**declared, **({"values": values} if values else {}), "default": value}
    return workload.model_copy(update={"command": command, "knobs": knobs}), faults


def _flags(name: str) -> list[str]:
    """How a flag may be written that is called as a knob is."""
    return list(dict.fromkeys(f"--{written}" for written in (name, name.replace("_", "-"), name.replace("-", "_"))))


def _value(text: str, declared: Mapping[str, Any]) -> Any:
    """The value that a flag has, of the kind that the knob's values are of; None where it is another kind of thing, or a switch."""
    values = declared.get("values") or declared.get("range") or []
    if not text or not isinstance(values, list) or any(isinstance(value, bool) for value in values) or "type" in declared:
        return None
    if not _are_numbers(values):
        return text
    try:
        read = compose(text, WHERE).value
    except ConfigError:
        return None
    return read if _are_numbers([read]) else None


def _are_numbers(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def own_space(workload: PyTorchWorkload, facts: Mapping[str, Any]) -> Space:
    """The knobs that the user's script reads; those whose default nobody knows may be null, which is where a study begins.

    Raises:
        SpaceError: all faults of the declaration at once.
    """
    block = {"knobs": workload.knobs, **({"constraints": workload.constraints} if workload.constraints else {})}
    declared = space_from_item(from_plain(block, WHERE), dict(facts))
    open_names = {name for name, entry in workload.knobs.items() if not (isinstance(entry, Mapping) and "default" in entry)}
    long = [name for name in open_names if len(declared.knobs[name].values) > MOST_OPEN]
    if long:
        rule = f"a knob of more than {MOST_OPEN} values needs a default: what the script does without it"
        raise SpaceError([Fault(where=WHERE, field=f"knobs.{name}", rule=rule, fix="Add default: VALUE") for name in sorted(long)])
    knobs = [_open(knob, open_names) for knob in declared.knobs.values()]
    rules = [replace(rule, rule=_unless_null(rule.text, rule.names(), open_names, "or")) for rule in declared.constraints]
    return Space(knobs, rules, facts=declared.facts)


def _open(knob: Knob, open_names: Collection[str]) -> Knob:
    """The knob with null as its default where its own is not known, and a condition that null does not meet."""
    if (when := knob.when) is not None:
        knob = copy(knob)
        knob.when = _unless_null(when, {name for name, _ in parse(when).names()}, open_names, "and")
    if knob.name not in open_names or None in knob:
        return knob
    values = [None, *knob.values]
    common: dict[str, Any] = {"unit": knob.unit, "restart": knob.restart, "help": knob.help, "warning": knob.warning}
    return Choice(knob.name, values, sparse=knob.sparse, when=knob.when, **common)


def _unless_null(text: str, names: Collection[str], open_names: Collection[str], word: str) -> str:
    """A rule that holds (`or`), or a condition that does not (`and`), while a knob that it reads is null."""
    tests = [f"{name_text(name)} {'==' if word == 'or' else '!='} None" for name in sorted(set(names) & set(open_names))]
    return f" {word} ".join([*tests, f"({text})"]) if tests else text


def _command(workload: PyTorchWorkload, hardware: Mapping[str, Any]) -> list[Fault]:
    """All that is wrong with the command and the knobs of the script."""
    faults = [*workload.line.faults(), *workload.line.node_faults(hardware), *folder_faults(workload.cwd)]
    if not workload.knobs:
        fix = "Example: -w knobs='{micro_batch: [1, 2, 4, 8]}', and in the script: autoscout.training.config()"
        return [*faults, Fault(where=WHERE, field="knobs", rule="name the knobs that your script reads", fix=fix)]
    facts = command_facts(hardware)
    try:
        space = own_space(workload, facts)
    except SpaceError as error:
        return [*faults, *error.faults]
    outside = Space([*space.knobs.values(), *(knob for knob in outside_knobs(hardware) if knob.name not in space.knobs)], facts=facts)
    return [*faults, *workload.line.space_faults(outside, facts)]

"""What the settings of a server mean for a study: its model and machine, knobs, what is passed through, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from autoscout.catalog.hardware import present_hardware
from autoscout.commands.script.words import missing_in
from autoscout.commands.secrets import left_out
from autoscout.core.config import Value
from autoscout.core.errors import Fault
from autoscout.core.secrecy import holds_secret, is_secret
from autoscout.core.user import UserLaunch
from autoscout.engines.launches.names import ACCESS, DEVICES, MACHINES, PLACE, SECRETS, SHELL, TALK
from autoscout.engines.launches.server import ServerCommand
from autoscout.engines.model import GUESS_WITH_MODEL, draft_kind
from autoscout.engines.table import EngineTable, FlagRow
from autoscout.engines.widening import knobs_of

PARALLEL = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "tp_size", "pp_size", "dp_size")
MODEL_FLAGS = ("model", "model_path")
MOST_VARIABLES = 200


@dataclass
class Meaning:
    """Collects what a server's settings mean.

    Args:
        table: Of the engine's version.
        length: The setting for the longest request.
        where: For messages.
    """

    table: EngineTable
    length: str
    where: str
    workload: dict[str, Any] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    knobs: dict[str, Value] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    passed: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)

    def read(self, settings: Mapping[str, Any], positional: str, command: ServerCommand) -> None:
        """All settings, the model as the words named it, and variables, image and GPUs of the command."""
        rest = dict(settings)
        names = [str(rest.pop(name)) for name in MODEL_FLAGS if name in rest]
        self._model(positional if positional or missing_in(positional) or not names else names[0])
        self._leave_out(rest)
        self._length(rest)
        self._draft(rest)
        knobs, others = knobs_of(rest, self.table)
        self.knobs |= knobs
        for name, value in others.items():
            if holds_secret(value):
                self.left_out.append(f"{self.table.flags[name].flag} holds a secret and is kept nowhere: trials are served without it.")
            else:
                self.passed[name] = value
                self._doubt(self.table.flags[name], value)
        self._variables(command.env)
        self._machine(command)
        if command.image:
            self.left_out.append(f"The container image {command.image} is not started: the engine at hand is measured.")

    def _doubt(self, row: FlagRow, value: Any) -> None:
        """Say which keys of a JSON value this version does not have: other versions and builds may."""
        unknown = [key for key in _paths(value) if not any(f"{path}.".startswith(f"{key}.") for path in row.keys)] if row.keys else []
        if unknown:
            version = f"{self.table.engine} {self.table.version}"
            self.left_out.append(
                f"{row.flag}: {version} has no {', '.join(unknown)}. It is passed on, and that version refuses to start with it."
            )

    def _model(self, model: str) -> None:
        if missing_in(model):
            self.left_out.append(f"The model is not read: {' and '.join(missing_in(model))} is not set. Give --model.")
        elif holds_secret(str(model)):
            self.left_out.append("The model's address holds a secret, which is kept nowhere: give --model without it.")
        elif model:
            self.workload["model"] = str(model)
        else:
            self.left_out.append("It names no model: give --model.")

    def _leave_out(self, rest: dict[str, Any]) -> None:
        """What every trial has of its own, and what is kept nowhere."""
        groups = (
            (SECRETS, "is a secret and is kept nowhere: trials are served without it"),
            (PLACE, "changes no speed: every trial has its own address"),
            (TALK, "only says what the server prints"),
            (ACCESS, "says who may reach the server: trials are served on this machine alone"),
            (MACHINES, "belongs to one machine among several: AutoScout gives each its own"),
        )
        for names, why in groups:
            present = [self.table.flags[name].flag for name in rest if name in names]
            if present:
                verb = why if len(present) == 1 else why.replace("changes", "change").replace("belongs", "belong").replace("says", "say", 1)
                verb = verb if len(present) == 1 else verb.replace("is a secret and is", "are secrets and are")
                self.left_out.append(f"{' and '.join(present)} {verb}.")
            for name in names:
                rest.pop(name, None)

    def _length(self, rest: dict[str, Any]) -> None:
        value = rest.pop(self.length, None)
        if value is None:
            return
        flag = self.table.flags[self.length].flag
        if isinstance(value, int) and value > 0:
            self.workload["max_model_len"] = value
        else:
            self.left_out.append(f"{flag} {value} lets the engine choose by the memory that is free: give -w max_model_len=N to hold it.")

    def _draft(self, rest: dict[str, Any]) -> None:
        """The model that guesses for speculative decoding is a field of the workload."""
        speculation = rest.get("speculative_config")
        if isinstance(speculation, dict) and isinstance(model := speculation.get("model"), str):
            kind = draft_kind(model)
            method = speculation.setdefault("method", kind)
            if method in (kind, *GUESS_WITH_MODEL):
                rest["speculative_config"] = {name: value for name, value in speculation.items() if name != "model"}
                self.workload["draft_model"] = model
        if isinstance(path := rest.get("speculative_draft_model_path"), str):
            del rest["speculative_draft_model_path"]
            self.workload["draft_model"] = path

    def _variables(self, env: Mapping[str, str]) -> None:
        secret, unset = [], []
        for name, value in env.items():
            if name in SHELL or name in DEVICES:
                continue
            if is_secret(name, value):
                secret.append(name)
            elif missing_in(value):
                unset.append(name)
            else:
                self.env[name] = str(value)
        if secret:
            self.left_out.append(left_out(secret))
        if unset:
            verb = "is" if len(unset) == 1 else "are"
            self.left_out.append(
                f"{' and '.join(unset)} {verb} not read: the value is known only where it runs. Give -w env.{unset[0]}=...."
            )
        if len(self.env) > MOST_VARIABLES:
            rule = f"sets {len(self.env)} variables: at most {MOST_VARIABLES} are read"
            self.faults.append(Fault(where=self.where, rule=rule))

    def _machine(self, command: ServerCommand) -> None:
        """The number of GPUs: as it is said, else as many as the launch takes where this machine has fewer."""
        need = 1
        for name in PARALLEL:
            size = self.knobs.get(name, self.passed.get(name, 1))
            need *= size if isinstance(size, int) and not isinstance(size, bool) else 1
        if command.gpus is not None:
            self.hardware["gpus"] = max(command.gpus, need)
        elif need > int(present_hardware().get("gpus", 0) or 0) and need > 1:
            self.hardware["gpus"] = need

    def launch(self) -> UserLaunch:
        """What was collected."""
        more = {**({"engine_args": self.passed} if self.passed else {}), **({"env": self.env} if self.env else {})}
        return UserLaunch(
            workload={**self.workload, **more}, hardware=self.hardware, knobs=self.knobs, left_out=tuple(dict.fromkeys(self.left_out))
        )


def _paths(value: Any) -> list[str]:
    """The keys of a JSON value and, of those whose values are objects, the keys inside."""
    paths = []
    for key, below in value.items() if isinstance(value, Mapping) else ():
        inside = [f"{key}.{path}" for path in below] if isinstance(below, Mapping) else []
        paths += inside or [str(key)]
    return paths


__all__ = ["Meaning"]

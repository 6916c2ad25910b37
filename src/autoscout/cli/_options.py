"""What several verbs share: flags into a campaign, targets into files, and printing."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
import yaml
from rich.console import Console

from autoscout.campaign import Campaign, build_campaign, read_campaign
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.hosts import parse_hostfile
from autoscout.core.launch import Launch
from autoscout.space.document import load as load_document

console = Console()
errors = Console(stderr=True)


def assignments(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """`NAME=VALUE` flags as a dict; values are read as YAML scalars or flow collections, dots make nested keys.

    Raises:
        ConfigError: one fault per flag that does not read so.
    """
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    for text in texts:
        name, equals, raw = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            faults.append(Fault(where=flag, value=repr(text), rule="must read NAME=VALUE", fix=f"Example: {flag} threads=2"))
            continue
        try:
            value = yaml.safe_load(raw) if raw.strip() else ""
        except yaml.YAMLError:
            value = raw
        found[name] = value
    if faults:
        raise ConfigError(faults)
    return found


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags of `tune` and its kin that change a campaign; None and empty mean: leave what the file says."""

    model: str | None = None
    gpus: int | None = None
    workload: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)  # workload of the `command` backend, taken as it is
    hardware: tuple[str, ...] = ()
    hostfile: Path | None = None
    pinned: tuple[str, ...] = ()
    metric: str | None = None
    direction: str | None = None
    slo: tuple[str, ...] = ()
    trials: int | None = None
    wall: str | None = None
    cost: str | None = None
    failures: int | None = None
    searcher: str | None = None
    seed: int | None = None
    workers: int | None = None
    together: bool | None = None
    executor: str | None = None
    limit: str | None = None
    finalists: int | None = None
    rounds: int | None = None
    store: str | None = None
    name: str | None = None

    def merge(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """`data` (a campaign as a plain dict) with these flags laid over it."""
        merged: dict[str, Any] = {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}
        workload = {**assignments(self.workload, "--workload"), **self.commands, **({} if self.model is None else {"model": self.model})}
        hardware = {
            **({} if self.hostfile is None else host_facts(self.hostfile)),
            **assignments(self.hardware, "--hardware"),
            **({} if self.gpus is None else {"gpus": self.gpus}),
        }
        blocks: dict[str, dict[str, Any]] = {
            "workload": workload,
            "hardware": hardware,
            "set": assignments(self.pinned, "--set"),
            "goal": {"metric": self.metric, "direction": self.direction, "slo": list(self.slo) or None},
            "budget": {"trials": self.trials, "wall": self.wall, "cost": self.cost, "failures": self.failures},
            "search": {"searcher": self.searcher, "seed": self.seed, "workers": self.workers, "together": self.together},
            "execute": {"executor": self.executor},
            "measure": {"limit": self.limit},
            "finals": {"finalists": self.finalists, "rounds": self.rounds},
        }
        for block, values in blocks.items():
            given = {name: value for name, value in values.items() if value is not None}
            if given:
                merged[block] = {**(merged.get(block) or {}), **given}
        for name, value in (("store", self.store), ("name", self.name)):
            if value is not None:
                merged[name] = value
        return merged


def load(target: str, flags: Flags, extra: Mapping[str, Any] | None = None) -> Campaign:
    """The campaign that a target (a backend's name or a campaign file) and flags describe together."""
    path = Path(target)
    looks_like_a_file = path.suffix in (".yaml", ".yml", ".json") or path.exists()
    if looks_like_a_file and not path.is_dir():
        return read_campaign(path, lambda data: flags.merge({**data, **(extra or {})}))
    return build_campaign(flags.merge({"system": target, **(extra or {})}), where="command line")


def emit(data: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    typer.echo(json.dumps(data, indent=2, sort_keys=False, default=str))


def shell_line(launch: Launch) -> str:
    """A launch as a line for a shell, with the variables it adds in front."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in launch.env.items()]
    if launch.call is not None:
        return f"# a call of {launch.call!r}"
    words = list(launch.argv) if launch.shell else [shlex.quote(word) for word in launch.argv]
    return " ".join([*variables, *words])


def host_facts(path: Path) -> dict[str, Any]:
    """What a hostfile says of the machine: its hosts with their slots, and the facts `gpus` and `nodes`."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(Fault(where=str(path), rule=f"the hostfile cannot be read: {error}", fix="Check the path")) from error
    hosts = parse_hostfile(text, str(path))
    slots = {host: len(found) for host, found in hosts.items()}
    return {"hosts": slots, "nodes": len(slots), "gpus": sum(slots.values())}


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that must hold a mapping."""
    faults: list[Fault] = []
    root = load_document(path)
    root.entries(faults)
    if faults:
        raise ConfigError(faults)
    return dict(root.value)

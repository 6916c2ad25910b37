"""What several verbs share: flags into a campaign, targets into files, and printing."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from autoscout.cli._streams import mute
from autoscout.common.hosts import parse_hostfile
from autoscout.common.templates import unflatten
from autoscout.core import plugins
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.launch import Launch
from autoscout.space.document import compose as read_text
from autoscout.space.document import load as load_document
from autoscout.study.campaign import Campaign, build_campaign, read_campaign


class _Console(Console):
    """A console whose reader may go away (`| head`) without ending the study that writes to it."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        mute(self.file)  # type: ignore[arg-type]


console = _Console()
errors = _Console(stderr=True)


def assignments(texts: Iterable[str], flag: str) -> dict[str, Any]:
    """`NAME=VALUE` flags as a dict; values are read as in a campaign file: scalars, or lists and mappings in brackets.

    Raises:
        ConfigError: one fault per flag that does not read so.
    """
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    for text in texts:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or not name:
            faults.append(Fault(where=flag, value=repr(text), rule="must read NAME=VALUE", fix=f"Example: {flag} threads=2"))
            continue
        try:
            found[name] = read_text(raw, flag).value if raw.strip() else ""
        except ConfigError:
            found[name] = raw
    if faults:
        raise ConfigError(faults)
    return found


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dots make nested keys, and dashes are underscores in the first of them, as vLLM's flags have it."""
    split = [(name.partition("."), value) for name, value in values.items()]
    return unflatten({head.replace("-", "_") + dot + rest: value for (head, dot, rest), value in split})


def _lay_over(base: Any, top: Any) -> Any:
    if not (isinstance(base, Mapping) and isinstance(top, Mapping)):
        return top
    return {**base, **{name: _lay_over(base.get(name), value) for name, value in top.items()}}


@dataclass(frozen=True, kw_only=True)
class Flags:
    """The flags of `tune` and its kin that change a campaign; None and empty mean: leave what the file says."""

    model: str | None = None
    gpus: int | None = None
    workload: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)  # workload of the `command` backend, taken as it is
    hardware: tuple[str, ...] = ()
    hostfile: Path | None = None
    space: Path | None = None
    pinned: tuple[str, ...] = ()
    metric: str | None = None
    direction: str | None = None
    slo: tuple[str, ...] = ()
    trials: int | None = None
    wall: str | None = None
    cost: str | None = None
    failures: int | None = None
    searcher: str | None = None
    simulator: str | None = None
    seed: int | None = None
    workers: int | None = None
    together: bool | None = None
    warm_start: bool | None = None
    learn_from: tuple[str, ...] = ()
    executor: str | None = None
    limit: str | None = None
    finalists: int | None = None
    rounds: int | None = None
    store: str | None = None
    name: str | None = None

    def merge(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """`data` (a campaign as a plain dict) with these flags laid over it."""
        merged: dict[str, Any] = {name: dict(value) if isinstance(value, Mapping) else value for name, value in data.items()}
        given: dict[str, dict[str, Any]] = {
            "workload": {**_nested(assignments(self.workload, "--workload")), **self.commands, **_present(model=self.model)},
            "hardware": {
                **({} if self.hostfile is None else host_facts(self.hostfile)),
                **_nested(assignments(self.hardware, "--hardware")),
                **_present(gpus=self.gpus),
            },
            "set": assignments(self.pinned, "--set"),
        }
        blocks: dict[str, dict[str, Any]] = {
            "goal": {"metric": self.metric, "direction": self.direction, "slo": list(self.slo) or None},
            "budget": {"trials": self.trials, "wall": self.wall, "cost": self.cost, "failures": self.failures},
            "search": {
                "searcher": self.searcher,
                "seed": self.seed,
                "workers": self.workers,
                "together": self.together,
                "warm_start": self.warm_start,
                "learn_from": list(self.learn_from) or None,
            },
            "simulate": {"simulator": self.simulator},
            "execute": {"executor": self.executor},
            "measure": {"limit": self.limit},
            "finals": {"finalists": self.finalists, "rounds": self.rounds},
        }
        given |= {block: _present(**values) for block, values in blocks.items()}
        for block, values in given.items():
            if values:
                merged[block] = _lay_over(merged.get(block) or {}, values)
        declared = None if self.space is None else read_mapping(self.space)
        space = declared and declared.get("space", declared)
        return {**merged, **_present(space=space, store=self.store, name=self.name)}


def _present(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def names_a_file(target: str) -> bool:
    """Whether a target is a campaign file; a backend's name is one even where a file is called like it."""
    path = Path(target)
    return path.suffix in (".yaml", ".yml", ".json") or (path.is_file() and target not in plugins.available("backend"))


def load(target: str, flags: Flags, extra: Mapping[str, Any] | None = None) -> Campaign:
    """The campaign that a target (a backend's name or a campaign file) and flags describe together."""
    if names_a_file(target):
        return read_campaign(Path(target), lambda data: flags.merge({**data, **(extra or {})}))
    return build_campaign(flags.merge({"system": target, **(extra or {})}), where="command line")


def emit(data: Mapping[str, Any]) -> None:
    """One JSON object on standard output."""
    try:
        typer.echo(json.dumps(data, indent=2, sort_keys=False, default=str))
    except BrokenPipeError:
        mute(sys.stdout)


def shell_line(launch: Launch) -> str:
    """A launch as a line for a shell, with the variables it adds in front."""
    variables = [f"{name}={shlex.quote(value)}" for name, value in launch.env.items()]
    if launch.call is not None:
        return f"# a call of {launch.call!r}"
    words = [shlex.quote(word) for word in (("sh", "-c", *launch.argv) if launch.shell else launch.argv)]
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
    return {str(name): value for name, value in root.value.items()}

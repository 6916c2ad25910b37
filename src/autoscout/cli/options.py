"""What several verbs share: flags into a campaign, targets into files, and printing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from autoscout.cli._streams import mute
from autoscout.common import document
from autoscout.common.files import is_private, parse_hostfile
from autoscout.common.templates import lay_over, unflatten
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.protocols import Backend
from autoscout.core.secrecy import hide_secrets, without_secrets
from autoscout.core.task import Task
from autoscout.study.campaign import Campaign, build_campaign, read_campaign
from autoscout.study.own import FROM, backend_of, knobs_in


class _Console(Console):
    """A console whose reader may go away (`| head`) without ending the study that writes to it, and that shows no secrets."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, str):
            renderable = hide_secrets(renderable)
        elif isinstance(renderable, Text) and (plain := hide_secrets(renderable.plain)) != renderable.plain:
            renderable = renderable.blank_copy(plain)
        return super().render(renderable, options)

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
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for text in texts:
        name, equals, raw = text.partition("=")
        name = name.strip()
        if not equals or not name:
            faults.append(Fault(where=flag, value=repr(text), rule="must read NAME=VALUE", fix=f"Example: {flag} threads=2"))
            continue
        try:
            values[name] = document.compose(raw, flag).value if raw.strip() else ""
        except ConfigError:
            values[name] = raw
    if faults:
        raise ConfigError(faults)
    return values


def given(**flags: Any) -> dict[str, Any]:
    """The flags that were given; None and an empty list are what a flag is without it, and an empty block changes nothing."""
    return {name: value for name, value in flags.items() if value is not None and value != [] and value != {}}


def nonzero(**values: Any) -> dict[str, Any]:
    """Values that say something: 0 and empty are how a flag says that nothing was given."""
    return {name: value for name, value in values.items() if value}


def goals(metrics: Sequence[str], direction: str | None) -> dict[str, Any]:
    """What `--metric` and `--direction` say of the goal; they take the place of every metric that a file names."""
    if not metrics:
        return given(direction=direction)
    if len(metrics) == 1 and ":" not in metrics[0]:
        return {"metrics": [], "metric": metrics[0], **given(direction=direction)}
    return {"metric": None, "metrics": list(metrics), "direction": direction}


def limits(texts: Iterable[str] | None, **short: float | None) -> list[str]:
    """Limits as they were written, and the short ones by the metric that they bound."""
    return [*(texts or ()), *(f"{metric}<={value!r}" for metric, value in short.items() if value is not None)]


def settings(texts: Iterable[str] | None, flag: str) -> dict[str, Any]:
    """`NAME=VALUE` flags as nested settings: dots make nested keys, and dashes are underscores in the first of them, as in vLLM's flags."""
    split = [(name.partition("."), value) for name, value in assignments(texts or (), flag).items()]
    return unflatten({head.replace("-", "_") + dot + rest: value for (head, dot, rest), value in split})


def names_a_file(target: str) -> bool:
    """Whether a target is a campaign file; a backend's name is one even where a file is called like it."""
    path = Path(target)
    return path.suffix in (".yaml", ".yml", ".json") or (path.is_file() and target not in plugins.available("backend"))


def baseline(texts: Sequence[str] | None) -> str | dict[str, Any] | None:
    """`--baseline`: several are knobs with their values, a single one may be a launch or a file too.

    Raises:
        ConfigError: one of several is something else.
    """
    if not texts:
        return None
    if len(texts) == 1:
        return texts[0]
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for text in texts:
        knobs = knobs_in(text)
        if knobs is None:
            rule = "must read KNOB=VALUE where --baseline is given several times"
            faults.append(Fault(where="--baseline", value=repr(text), rule=rule, fix="Give a launch or a file alone"))
        values |= knobs or {}
    if faults:
        raise ConfigError(faults)
    return values


def load(target: str | None, flags: Mapping[str, Any] | None = None) -> Campaign:
    """The campaign that a target (a backend's name or a campaign file) and flags describe together.

    Args:
        target: The backend's name, or the file; None: the backend that reads the launch of `from`.
        flags: Blocks of a campaign as the flags give them, see `given`.
    """
    top = dict(flags or {})
    space = {"space": block} if (block := top.pop("space", None)) is not None else {}  # a space is replaced as a whole
    if target is None:
        if FROM not in top:
            rule, fix = "is missing", f"Give a backend ({', '.join(plugins.available('backend'))}), a campaign file, or --from LAUNCH"
            raise ConfigError(Fault(where="command line", field="TARGET", rule=rule, fix=fix))
        target = backend_of(str(top[FROM]))
    if names_a_file(target):
        return read_campaign(Path(target), lambda data: {**lay_over(data, top), **space})
    return build_campaign({**lay_over({"system": target}, top), **space}, where="command line")


def tell_left_out(sentences: Iterable[str]) -> None:
    """Say what was left out of the user's launch."""
    for sentence in sentences:
        errors.print(f"Your launch: {sentence}", markup=False, highlight=False, soft_wrap=True)


def on_hosts(campaign: Campaign, hostfile: Path | None) -> Campaign:
    """The campaign with its trials on the machines of a hostfile, unless it says itself where they run."""
    execute = campaign.execute
    if hostfile is None or execute.executor not in (None, "hosts") or "hostfile" in execute.options:
        return campaign
    options = {**execute.options, "hostfile": str(hostfile.absolute())}
    return campaign.model_copy(update={"execute": execute.model_copy(update={"executor": "hosts", "options": options})})


def emit(data: Mapping[str, Any]) -> None:
    """One JSON object on standard output, without secrets."""
    try:
        typer.echo(json.dumps(without_secrets(data), indent=2, sort_keys=False, default=str))
    except BrokenPipeError:
        mute(sys.stdout)


def say(text: str) -> None:
    """Plain text on standard output, without secrets."""
    typer.echo(hide_secrets(text))


def write_scripts(folder: Path, files: Mapping[str, str]) -> None:
    """Write hand-over files into a folder, which is made; scripts can be run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
        mode = 0o755 if name.endswith(".sh") else 0o644
        (folder / name).chmod(mode & 0o700 if is_private(text) else mode)


def shown_start(backend: Backend, config: Config, task: Task) -> dict[str, list[str]]:
    """The command line of the server that a launch starts, under `serve`; nothing for backends without one."""
    words = backend.serve(config, task)
    return {"serve": list(words)} if words else {}


def host_facts(path: Path) -> dict[str, Any]:
    """What a hostfile says of the machine: its hosts with their slots, and the facts `gpus` and `nodes`."""
    hosts = parse_hostfile(document.read_text(path), str(path))
    slots = {host: len(slots) for host, slots in hosts.items()}
    return {"hosts": slots, "nodes": len(slots), "gpus": sum(slots.values())}


def machine(texts: Iterable[str] | None, hostfile: Path | None = None, **facts: Any) -> dict[str, Any]:
    """The block `hardware` as flags give it."""
    return {**(host_facts(hostfile) if hostfile else {}), **settings(texts, "--hardware"), **given(**facts)}


def read_mapping(path: Path) -> dict[str, Any]:
    """A YAML file that must hold a mapping."""
    faults: list[Fault] = []
    root = document.load(path)
    root.entries(faults)
    if faults:
        raise ConfigError(faults)
    return {str(name): value for name, value in root.value.items()}

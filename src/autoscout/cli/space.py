"""`autoscout space`: look at what may be chosen, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.padding import Padding
from rich.text import Text

from autoscout.cli import complete, flags, options
from autoscout.common.document import load_json
from autoscout.common.text import show as show_value
from autoscout.core.errors import EXIT_BAD_INPUT, SpaceError
from autoscout.space import Knob, Listed, Space, read_space, write_space
from autoscout.space.interchange.optuna import is_optuna
from autoscout.space.knobs import shown
from autoscout.study.own import FROM
from autoscout.study.setup import pins, prepare

app = typer.Typer(help="Show, count or check a space of configurations.", no_args_is_help=True)

Target = Annotated[
    str | None,
    typer.Argument(
        autocompletion=complete.targets,
        help="A backend, a campaign file, or a file with just a space; with --from it may be left out.",
    ),
]
Pinned = Annotated[
    list[str] | None, typer.Option("--set", autocompletion=complete.settings, help="Pin a knob: KNOB=VALUE; may be repeated.")
]
Model = Annotated[str | None, typer.Option("--model", "-m", autocompletion=complete.models, help="The model to run.")]
Workload = Annotated[list[str] | None, typer.Option("--workload", "-w", help="NAME=VALUE of the workload; may be repeated.")]
Hardware = Annotated[list[str] | None, typer.Option("--hardware", help="NAME=VALUE of the machine; may be repeated.")]
Free = Annotated[
    list[str] | None, typer.Option("--free", autocompletion=complete.knob_names, help="Search this knob too, or all; may be repeated.")
]
Lossy = Annotated[bool, typer.Option("--allow-lossy", help="Search knobs that change the answers too.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


@app.command("show")
def show(
    target: Target = None,
    launch: flags.Launch = None,
    pinned: Pinned = None,
    model: Model = None,
    workload: Workload = None,
    hardware: Hardware = None,
    free: Free = None,
    allow_lossy: Lossy = False,
    as_json: Json = False,
) -> None:
    """Print knobs, conditions and constraints."""
    space = _load(target, launch, pinned, hardware, _workload(workload, model, free, allow_lossy))
    if as_json:
        options.emit(yaml.safe_load(write_space(space)))
        return
    for knob in space.knobs.values():
        show_knob(knob)
    for rule in space.constraints:
        why = f"   # {rule.why}" if rule.why else ""
        options.console.print(f"  {rule.text}{why}", highlight=False, markup=False, soft_wrap=True)
    if isinstance(space, Listed):
        options.console.print(f"  one of {len(space):,} listed configurations", highlight=False, markup=False, soft_wrap=True)


def show_knob(knob: Knob) -> None:
    """A knob in two or three lines: `--set` takes its name, so that is never cut."""
    title = Text.assemble((knob.name, "bold"), f"  {shown(knob.values)}, default {show_value(knob.default)}")
    title.append(f" {knob.unit}" if knob.unit else "")
    options.console.print(title, highlight=False)
    for words in (f"when {knob.when}" if knob.when else "", knob.help):
        if words:
            options.console.print(Padding(Text(words, style="dim"), (0, 0, 0, 4)), highlight=False)


@app.command("count")
def count(
    target: Target = None,
    launch: flags.Launch = None,
    pinned: Pinned = None,
    model: Model = None,
    workload: Workload = None,
    hardware: Hardware = None,
    free: Free = None,
    allow_lossy: Lossy = False,
    as_json: Json = False,
) -> None:
    """Count the valid configurations: exactly up to ten million, an estimate above."""
    size = _load(target, launch, pinned, hardware, _workload(workload, model, free, allow_lossy)).count()
    if as_json:
        options.emit({"count": size.value, "exact": size.exact})
        return
    options.console.print(str(size) if size.exact else f"{size} (estimated)", highlight=False)


@app.command("validate")
def validate(
    target: Target = None,
    launch: flags.Launch = None,
    config: Annotated[Path | None, typer.Option("--config", help="A YAML file with one configuration to check against the space.")] = None,
    pinned: Pinned = None,
    model: Model = None,
    workload: Workload = None,
    hardware: Hardware = None,
    free: Free = None,
    allow_lossy: Lossy = False,
    as_json: Json = False,
) -> None:
    """Check a space, or one configuration (`--config`, or all knobs by `--set`) against it."""
    space = _load(target, launch, None if config is None else pinned, hardware, _workload(workload, model, free, allow_lossy))
    chosen = options.assignments(pinned or (), "--set") if config is None else options.read_mapping(config)
    reasons = _reasons(space, chosen) if chosen or config is not None else []
    if as_json:
        options.emit({"valid": not reasons, "reasons": reasons})
    else:
        options.console.print("\n".join(reasons) if reasons else "valid", highlight=False, markup=False, soft_wrap=True)
    if reasons:
        raise typer.Exit(EXIT_BAD_INPUT)


def _reasons(space: Space, chosen: Mapping[str, Any]) -> list[str]:
    try:
        return space.check(pins(space, chosen, "configuration"))
    except SpaceError as error:
        return [str(fault) for fault in error.faults]


def _workload(texts: list[str] | None, model: str | None, free: list[str] | None, allow_lossy: bool) -> dict[str, Any]:
    return {**options.settings(texts, "--workload"), **options.given(model=model, free=free, allow_lossy=allow_lossy or None)}


def _load(
    target: str | None, launch: str | None, pinned: list[str] | None, hardware: list[str] | None, workload: Mapping[str, Any]
) -> Space:
    path = Path(target or "")
    if target is not None and launch is None and path.is_file() and options.names_a_file(target) and not _is_campaign(path):
        space = read_space(path)
        chosen = pins(space, options.assignments(pinned or (), "--set"))
        return space.pin(chosen) if chosen else space
    blocks = options.given(**{FROM: launch}, workload=workload, hardware=options.settings(hardware, "--hardware"))
    setup = prepare(options.load(target, {"set": options.assignments(pinned or (), "--set"), **blocks}))
    options.tell_left_out(setup.left_out)
    return setup.space


def _is_campaign(path: Path) -> bool:
    """Whether a file names a system; what another tool wrote (a sweep may be a list) does not."""
    if is_optuna(path):
        return False
    content = load_json(path) if path.suffix == ".json" else options.read_mapping(path)
    return isinstance(content, Mapping) and "system" in content

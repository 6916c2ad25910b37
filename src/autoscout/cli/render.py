"""`autoscout render`: show what a configuration would start, and start nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import complete, options
from autoscout.study.setup import prepare


def render(
    target: Annotated[str, typer.Argument(autocompletion=complete.targets, help="A backend or a campaign file.")],
    pinned: Annotated[
        list[str] | None,
        typer.Option("--set", autocompletion=complete.settings, help="KNOB=VALUE; the other knobs stay at their defaults."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", autocompletion=complete.models, help="The model to run.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs to use.")] = None,
    workload: Annotated[list[str] | None, typer.Option("--workload", "-w", help="NAME=VALUE of the workload.")] = None,
    hardware: Annotated[list[str] | None, typer.Option("--hardware", help="NAME=VALUE of the machine; may be repeated.")] = None,
    hostfile: Annotated[Path | None, typer.Option(help="Hosts to use, one `HOST slots=N` a line; gives the facts gpus, nodes.")] = None,
    train_cmd: Annotated[str | None, typer.Option(help="The program or training script to run, with {knob} placeholders.")] = None,
    space: Annotated[Path | None, typer.Option(help="A file with a space; with `deepspeed` also its own tuning space.")] = None,
    export: Annotated[bool, typer.Option("--export", help="Show the hand-over files instead of the measuring launch.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Show the command, variables and files of one configuration."""
    facts = {**options.settings(workload, "--workload"), **options.given(model=model, command=train_cmd)}
    machine = {**(options.host_facts(hostfile) if hostfile else {}), **options.settings(hardware, "--hardware"), **options.given(gpus=gpus)}
    flags = {
        "set": options.assignments(pinned or (), "--set"),
        **options.given(workload=facts, hardware=machine, space=space and str(space)),
    }
    setup = prepare(options.load(target, flags))
    launch = setup.backend.render(setup.default, setup.task, setup.campaign.search.seed)
    files = setup.backend.export(setup.default, setup.task) if export else launch.files
    start = options.shown_start(setup.backend, setup.default, setup.task)
    if as_json:
        data = {"config": setup.default.to_json(), **start, "argv": list(launch.argv), "env": dict(launch.env), "files": dict(files)}
        options.emit(data)
        return
    out = options.console
    out.print(f"# {setup.default}", markup=False, highlight=False, soft_wrap=True)
    if "serve" in start:
        out.print(shlex.join(start["serve"]), markup=False, highlight=False, soft_wrap=True)
    if not export:
        out.print(launch.line, markup=False, highlight=False, soft_wrap=True)
    for name, text in files.items():
        out.print(f"\n# file {name}", markup=False, highlight=False)
        out.print(text.rstrip(), markup=False, highlight=False, soft_wrap=True)

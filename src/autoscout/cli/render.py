"""`autoscout render`: show what a configuration would start, and start nothing."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from autoscout.cli import complete, flags, options
from autoscout.report import exported
from autoscout.study.own import FROM
from autoscout.study.setup import prepare_one


def render(
    target: Annotated[
        str | None, typer.Argument(autocompletion=complete.targets, help="A backend or a campaign file; with --from it may be left out.")
    ] = None,
    launch: flags.Launch = None,
    pinned: Annotated[
        list[str] | None,
        typer.Option("--set", autocompletion=complete.settings, help="KNOB=VALUE; the others are as in the launch, or at their defaults."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", autocompletion=complete.models, help="The model to run.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs to use.")] = None,
    workload: Annotated[list[str] | None, typer.Option("--workload", "-w", help="NAME=VALUE of the workload.")] = None,
    hardware: Annotated[list[str] | None, typer.Option("--hardware", help="NAME=VALUE of the machine; may be repeated.")] = None,
    hostfile: Annotated[Path | None, typer.Option(help="Machines to train on, one `HOST slots=N` a line, over ssh.")] = None,
    train_cmd: Annotated[str | None, typer.Option(help="The program or training script to run, with {knob} placeholders.")] = None,
    space: Annotated[Path | None, typer.Option(help="A file with a space; with `deepspeed` also its own tuning space.")] = None,
    export: Annotated[Path | None, typer.Option(help="Write the files that run it into this folder; `-` shows them.")] = None,
    show_env: Annotated[bool, typer.Option("--show-env", help="Show the values of environment variables; secrets stay hidden.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Show the command, variables and files of one configuration."""
    facts = {**options.settings(workload, "--workload"), **options.given(model=model, command=train_cmd)}
    blocks = {
        **options.given(**{FROM: launch}),
        "set": options.assignments(pinned or (), "--set"),
        **options.given(workload=facts, hardware=options.machine(hardware, hostfile, gpus=gpus), space=space and str(space)),
    }
    setup, config = prepare_one(options.load(target, blocks))
    options.tell_left_out(setup.left_out)
    command = setup.backend.render(config, setup.task, setup.campaign.search.seed)
    files = exported.export(setup.backend, config, setup.task) if export else command.files
    written = str(export or "-") != "-"
    if export is not None and written:
        options.write_scripts(export, files)
    line = command.line
    if not show_env:
        line, command = exported.shown_line(command, setup.task), exported.without_values(command, setup.task)
        files = {name: exported.refer_to_values(text, setup.task) for name, text in files.items()}
    start = options.shown_start(setup.backend, config, setup.task)
    if as_json:
        data = {"config": config.to_json(), **start, "argv": list(command.argv), "env": dict(command.env), "files": dict(files)}
        options.emit(data)
        return
    out = options.console
    out.print(f"# {config}", markup=False, highlight=False, soft_wrap=True)
    if "serve" in start:
        out.print(shlex.join(start["serve"]), markup=False, highlight=False, soft_wrap=True)
    if not export:
        out.print(line, markup=False, highlight=False, soft_wrap=True)
    if written and files:
        out.print(f"\nwritten to {export}: {', '.join(files)}", markup=False, highlight=False, soft_wrap=True)
    for name, text in files.items() if not written else ():
        out.print(f"\n# file {name}", markup=False, highlight=False)
        out.print(text.rstrip(), markup=False, highlight=False, soft_wrap=True)

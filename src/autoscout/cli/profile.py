"""`autoscout profile`: measure one configuration for real."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from autoscout.cli import complete, flags, options
from autoscout.cli.tune import interruptible
from autoscout.common.files import let_others_enter
from autoscout.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED
from autoscout.core.origin import By, Origin
from autoscout.core.trial import Measurement, Proposal
from autoscout.study.assemble import build_executor, build_profiler
from autoscout.study.own import FROM
from autoscout.study.setup import prepare_one


def profile(
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
    traffic: flags.Traffic = None,
    traffic_over: flags.TrafficOver = None,
    traffic_windows: flags.TrafficWindows = None,
    slo: Annotated[
        list[str] | None, typer.Option(autocompletion=complete.metrics, help="Limit to keep, such as 'p95_ttft_ms<=500'; may be repeated.")
    ] = None,
    limit: Annotated[str | None, typer.Option(help="Wall-clock limit.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="How often to measure it.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Measure one configuration for real and print its metrics; nothing is stored."""
    blocks = {
        **options.given(**{FROM: launch}),
        "set": options.assignments(pinned or (), "--set"),
        "workload": {**options.settings(workload, "--workload"), **options.given(model=model)},
        **options.given(traffic=options.given(source=traffic, over=traffic_over, windows=traffic_windows)),
        "hardware": options.given(gpus=gpus),
        "goal": options.given(slo=slo),
        "measure": options.given(limit=limit),
    }
    setup, config = prepare_one(options.load(target, blocks))
    options.tell_left_out(setup.left_out)
    with tempfile.TemporaryDirectory(prefix="autoscout-profile-") as folder, interruptible() as attach:
        let_others_enter(Path(folder))
        executor = build_executor(setup, Path(folder))
        try:
            evaluator = build_profiler(setup, executor)
            stopping = attach(evaluator)
            measurements: list[Measurement] = []
            for number in range(repeats):
                if not stopping.is_set():
                    measurements += evaluator.evaluate([Proposal(config=config, origin=Origin(by=By.PROFILE), repeat=number)])
        finally:
            executor.close()
    if as_json:
        options.emit({"config": config.to_json(), "measurements": [answer.to_json() for answer in measurements]})
    else:
        _show(measurements)
    if stopping.is_set():
        raise typer.Exit(EXIT_INTERRUPTED)
    if not any(answer.ok for answer in measurements):
        raise typer.Exit(EXIT_BAD_INPUT)


def _show(measurements: list[Measurement]) -> None:
    names = sorted({name for answer in measurements for name in answer.metrics})
    table = Table(title="measured")
    table.add_column("metric")
    for number in range(len(measurements)):
        table.add_column(f"#{number}", justify="right")
    table.add_row("status", *(answer.status.value for answer in measurements))
    for name in names:
        table.add_row(name, *(f"{answer.metrics[name]:.6g}" if name in answer.metrics else "-" for answer in measurements))
    options.console.print(table)
    for answer in measurements:
        if not answer.ok:
            options.console.print(f"{answer.status.value}: {answer.reason}\n{answer.log_tail[-2000:]}", markup=False, highlight=False)

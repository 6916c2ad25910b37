"""`autoscout curve`: a configuration, or the default against the best, under loads from light to heavy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autoscout.cli import complete, flags, options
from autoscout.cli.compare import report_of
from autoscout.cli.tune import interruptible
from autoscout.common.files import let_others_enter
from autoscout.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, ConfigError, Fault
from autoscout.core.protocols import Evaluator
from autoscout.report.curve import best_per_gpu, curve_json, curve_picture, curve_table
from autoscout.study.campaign import Campaign
from autoscout.study.curve import CurveLoad, measure_curve
from autoscout.study.folder import Folder

EXIT_BELOW = 3  # the last configuration gives less than --fail-below
MOST_LOADS = 40
USUAL = "1,2,4,8,16,32,64"


def curve(
    target: Annotated[str, typer.Argument(autocompletion=complete.targets, help="A backend, a campaign file, or a result folder.")],
    concurrency: Annotated[str, typer.Option(help=f"Requests in flight, one after another: {USUAL} when nothing is given.")] = "",
    rates: Annotated[str, typer.Option(help="Requests a second instead: 1,2,4.")] = "",
    pinned: flags.Pinned = None,
    model: flags.Model = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs to use.")] = None,
    workload: Annotated[list[str] | None, typer.Option("--workload", "-w", help="NAME=VALUE of the workload.")] = None,
    traffic: flags.Traffic = None,
    traffic_over: flags.TrafficOver = None,
    traffic_windows: flags.TrafficWindows = None,
    rounds: Annotated[int, typer.Option(min=1, max=50, help="How often each point is measured.")] = 3,
    fail_below: Annotated[
        float, typer.Option(help="End with exit code 3 if the most tokens/s per GPU are surely below this.", min=0.0)
    ] = 0.0,
    picture: Annotated[Path | None, typer.Option(help="Write the curve as an SVG file.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the rows as JSON, in the words of InferenceX.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")] = False,
) -> None:
    """Measure tokens/s per GPU against tokens/s per user over loads; of a result folder, the default and the best.

    Exit code 3: below --fail-below.
    """
    loads = read_loads(concurrency, rates)
    blocks = {
        "set": options.assignments(pinned or (), "--set"),
        "workload": {**options.settings(workload, "--workload"), **options.given(model=model)},
        "hardware": options.given(gpus=gpus),
        **options.given(traffic=options.given(source=traffic, over=traffic_over, windows=traffic_windows)),
    }
    campaign, configs = asked_for(target, blocks)
    with tempfile.TemporaryDirectory(prefix="autoscout-curve-") as folder, interruptible() as attach:
        let_others_enter(Path(folder))
        stops: list[Any] = []

        def noted(evaluator: Evaluator) -> Any:
            stops.append(attach(evaluator))
            return stops[-1]

        points = measure_curve(
            campaign,
            configs,
            loads,
            rounds,
            Path(folder),
            attach=noted,
            tell=lambda text: options.errors.print(text, style="dim", highlight=False),
        )
        interrupted = any(stop.is_set() for stop in stops)
    document = curve_json(points)
    if output is not None:
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    if picture is not None:
        picture.write_text(curve_picture(points), encoding="utf-8")
    if as_json:
        options.emit(document)
    else:
        options.console.print(curve_table(points))
    if interrupted:
        raise typer.Exit(EXIT_INTERRUPTED)
    best = best_per_gpu(points)
    if best is None:
        raise typer.Exit(EXIT_BAD_INPUT)
    if fail_below and (best[2] if rounds > 1 else best[0]) < fail_below:
        options.errors.print(f"{best[0]:.4g} tokens/s per GPU are below {fail_below:g}.", style="red", highlight=False)
        raise typer.Exit(EXIT_BELOW)


def read_loads(concurrency: str, rates: str) -> list[CurveLoad]:
    """The loads that the flags name.

    Raises:
        ConfigError: both are given, or a part is no number above 0.
    """
    if concurrency and rates:
        raise ConfigError(Fault(where="curve", field="--concurrency and --rates", rule="are two kinds of load", fix="Give one of them"))
    flag, text = ("--rates", rates) if rates else ("--concurrency", concurrency or USUAL)
    loads, faults = [], []
    for part in text.split(","):
        try:
            number = float(part)
            is_right = 0 < number < 1e6 and (rates or number == int(number))
        except ValueError:
            is_right = False
        if not is_right:
            rule = f"must be {'numbers' if rates else 'whole numbers'} above 0, separated by commas"
            faults.append(Fault(where="curve", field=flag, value=repr(part), rule=rule, fix=f"Example: {flag} 1,4,16"))
            continue
        loads.append(CurveLoad(rate=number) if rates else CurveLoad(concurrency=int(number)))
    if len(loads) > MOST_LOADS:
        faults.append(Fault(where="curve", field=flag, value=str(len(loads)), rule=f"has at most {MOST_LOADS} loads"))
    if faults:
        raise ConfigError(faults)
    return loads


def asked_for(target: str, blocks: Mapping[str, Any]) -> tuple[Campaign, dict[str, Mapping[str, Any] | None]]:
    """The campaign, and the configurations to measure: of a study its default and what it hands over, else the pinned one."""
    home = Folder(Path(target))
    if not home.campaign.is_file():
        return options.load(target, blocks), {"pinned" if blocks["set"] else "default": None}
    document = report_of(home.path)
    given = dict(blocks)
    pins = given.pop("set")
    if pins:
        fix = "Leave it out: the curve of a study is that of its default and its answer"
        raise ConfigError(Fault(where="curve", field="--set", value=str(pins), rule="is for a backend or a campaign", fix=fix))
    campaign = options.load(str(home.campaign), given)
    answer, default = document["answer"], (document["default"] or {}).get("config")
    return campaign, {"default": None} | ({"best": answer} if answer and answer != default else {})


__all__ = ["EXIT_BELOW", "curve"]

"""`autoscout estimate`: predicted breakdown and best configurations, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from autoscout.analysis.labels import PART_NAMES
from autoscout.cli import flags, options
from autoscout.cli.estimate_launch import read_asked, write_files
from autoscout.estimate import search
from autoscout.estimate.table import settings, show
from autoscout.report.breakdown import breakdown_svg
from autoscout.study.campaign import duration_s
from autoscout.study.folder import DEFAULT
from autoscout.traffic.read import read_traffic


def estimate(
    system: flags.System = None,
    launch: flags.ServedLaunch = None,
    model: flags.KnownModel = "",
    gpus: flags.Machines = "",
    gpu: Annotated[str, typer.Option(help="Predict for this GPU instead: hardware you do not own.")] = "",
    sequence: Annotated[int, typer.Option(help="Training: tokens per sequence.")] = 4096,
    batch: Annotated[int, typer.Option(help="Training: sequences per step.")] = 256,
    precision: Annotated[str, typer.Option(help="bf16, fp8 or fp4 linear layers; empty: bf16, for serving as published.")] = "",
    traffic: flags.Traffic = None,
    traffic_over: flags.TrafficOver = None,
    traffic_windows: flags.TrafficWindows = None,
    input_tokens: Annotated[int, typer.Option(help="Serving: tokens per prompt.")] = 1024,
    output_tokens: Annotated[int, typer.Option(help="Serving: tokens per answer.")] = 256,
    concurrency: Annotated[int, typer.Option(help="Serving: requests in flight; 0 with --rate.")] = 0,
    rate: Annotated[float, typer.Option(help="Serving: requests per second, Poisson arrivals.")] = 0.0,
    slo: flags.ServingLimit = None,
    allow_lossy: Annotated[bool, typer.Option("--allow-lossy", help="Serving: compare narrower weights and caches too.")] = False,
    disaggregated: Annotated[bool, typer.Option("--disaggregated", help="Serving: compare prompts on GPUs of their own too.")] = False,
    pin: Annotated[list[str] | None, typer.Option("--set", help="Pin a knob: tp=4; may be repeated.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many configurations to show.")] = 5,
    nic_gbps: Annotated[float, typer.Option(help="Network rate per GPU in GB/s; 0 = usual for the GPU.")] = 0.0,
    node_gpus: Annotated[int, typer.Option(help="GPUs per node; 0 = usual for the GPU.")] = 0,
    hardware_file: Annotated[str, typer.Option(help="YAML file with more GPUs.")] = "",
    calibration: Annotated[str, typer.Option(help="Calibration file instead of the shipped one.")] = "",
    results: Annotated[Path, typer.Option(help="Result folders of own studies, whose measurements scale the times.")] = DEFAULT,
    export: Annotated[
        Path | None,
        typer.Option(
            help="vllm and sglang: write the files that run the first one, or yours or the default where nothing gains more than the error."
        ),
    ] = None,
    picture: Annotated[str, typer.Option(help="Training: write the breakdown of the first as an SVG file.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the best configurations of a system and where their time and memory go. Nothing is run."""
    asked = read_asked(system, launch, model=model, gpus=gpus, gpu=gpu)
    options.tell_left_out(asked.left_out)
    read = read_traffic(traffic, duration_s(traffic_over) if traffic_over else 0.0, traffic_windows or 0) if traffic else None
    hardware = options.nonzero(nic_gbps=nic_gbps, node_gpus=node_gpus, hardware_file=hardware_file)
    result = search.estimate(
        asked.system,
        model=asked.model,
        gpus=asked.gpus,
        sequence=sequence,
        global_batch=batch,
        precision=precision,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        request_rate=rate,
        limits=slo or [],
        pins=options.assignments(pin or [], "--set"),
        top=top,
        calibration=calibration,
        hardware=hardware,
        results=results,
        allow_lossy=allow_lossy,
        disaggregated=disaggregated,
        baseline=asked.knobs,
        traffic=read,
    )
    if picture and result.candidates[0].parts:
        best = result.candidates[0]
        parts = {PART_NAMES.get(name, name): seconds for name, seconds in best.parts.items()}
        Path(picture).write_text(breakdown_svg(parts, settings(best)))
    if export is not None:
        lengths = {"input_tokens": input_tokens, "output_tokens": output_tokens}
        asks = lengths if read is None else {"workload": "traffic", "traffic": read.to_json()}
        workload = {**asks, **options.nonzero(request_rate=rate, concurrency=concurrency)}
        task = {"workload": workload, "hardware": {"gpus": asked.gpus, **hardware}, "objective": {"limits": list(slo or [])}}
        write_files(export, asked, task, result.recommended)
    if as_json:
        about = {"system": asked.system, "model": asked.model, "gpus": asked.gpus}
        typer.echo(json.dumps({**about, **result.to_json()}, indent=1, allow_nan=False))
        return
    show(result, Console())
    if export is not None:
        typer.echo(f"\n{said_of_files(result, asked.served, export)}")


def said_of_files(result: search.Estimate, model: str, folder: Path) -> str:
    """Which configuration the written files start, and what they need to start."""
    chosen, why = result.recommended, "since nothing is predicted to gain more over it than the error to expect"
    is_first = chosen is result.candidates[0]
    which = "the first one" if is_first else f"yours, {why}" if chosen.is_baseline else f"the default, {why}"
    is_nickname = "/" not in model and not Path(model).exists()
    more = f"; {model} is a name of AutoScout's own, start it with MODEL=ORGANISATION/NAME {folder}/run.sh" if is_nickname else ""
    more += "; fp4 weights are not made at the start, so MODEL must be published in fp4" if chosen.config.get("precision") == "fp4" else ""
    return f"files of {which}: {folder}{more}"


__all__ = ["estimate"]

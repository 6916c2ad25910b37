"""`autoscout estimate`: predicted breakdown and best configurations, without running anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.console import Console
from rich.table import Table

from autoscout.core.config import Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.simulators._estimate import SERVING_SYSTEMS, Candidate, Estimate, estimate_serving, estimate_training
from autoscout.simulators._picture import breakdown_svg

_NAMES = {
    "gemm_s": "matrix products",
    "attention_s": "attention",
    "elementwise_s": "element-wise",
    "recompute_s": "recomputation",
    "host_s": "waiting for the host",
    "tensor_parallel_s": "tensor-parallel traffic",
    "context_parallel_s": "context-parallel traffic",
    "expert_parallel_s": "expert-parallel traffic",
    "sharding_s": "ZeRO-3 gathers",
    "pipeline_s": "pipeline sends",
    "bubble_s": "pipeline bubble",
    "data_parallel_s": "gradient reduction",
    "optimizer_s": "optimizer",
}


def estimate(
    system: Annotated[str, typer.Argument(help="megatron, fsdp, deepspeed, ... for training; vllm, sglang, trtllm for serving.")],
    model: Annotated[str, typer.Option(help="A known model, a Hugging Face path, or a config.json.")],
    gpus: Annotated[str, typer.Option(help="COUNTxGPU, joined by + for mixed clusters: 8xA100-80+4xA40.")],
    gpu: Annotated[str, typer.Option(help="Predict for this GPU instead: hardware you do not own.")] = "",
    sequence: Annotated[int, typer.Option(help="Training: tokens per sequence.")] = 4096,
    batch: Annotated[int, typer.Option(help="Training: sequences per step.")] = 256,
    precision: Annotated[str, typer.Option(help="Training: bf16, fp8 or fp4 linear layers.")] = "bf16",
    input_tokens: Annotated[int, typer.Option(help="Serving: tokens per prompt.")] = 1024,
    output_tokens: Annotated[int, typer.Option(help="Serving: tokens per answer.")] = 256,
    concurrency: Annotated[int, typer.Option(help="Serving: requests in flight; 0 with --rate.")] = 0,
    rate: Annotated[float, typer.Option(help="Serving: requests per second, Poisson arrivals.")] = 0.0,
    slo: Annotated[list[str] | None, typer.Option(help="Serving: a limit such as 'p95_ttft_ms<=500'; may be repeated.")] = None,
    pin: Annotated[list[str] | None, typer.Option("--set", help="Pin a knob: tp=4; may be repeated.")] = None,
    top: Annotated[int, typer.Option(help="How many configurations to show.")] = 5,
    nic_gbps: Annotated[float, typer.Option(help="Network rate per GPU in GB/s; 0 = usual for the GPU.")] = 0.0,
    node_gpus: Annotated[int, typer.Option(help="GPUs per node; 0 = usual for the GPU.")] = 0,
    hardware_file: Annotated[str, typer.Option(help="YAML file with more GPUs.")] = "",
    calibration: Annotated[str, typer.Option(help="Calibration file instead of the shipped one.")] = "",
    picture: Annotated[str, typer.Option(help="Training: write the breakdown of the first as an SVG file.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Predict the best configurations of a system and where their time and memory go. Nothing is run."""
    fixed = _pins(pin or [])
    machines = f"{gpus.split('x', 1)[0]}x{gpu}" if gpu else gpus
    hardware = {
        name: value for name, value in (("nic_gbps", nic_gbps), ("node_gpus", node_gpus), ("hardware_file", hardware_file)) if value
    }
    if system.lower() in SERVING_SYSTEMS:
        found = estimate_serving(
            system.lower(),
            model=model,
            gpus=machines,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            concurrency=concurrency or (None if rate else 64),
            request_rate=rate or None,
            limits=slo or [],
            fixed=fixed,
            top=top,
            calibration=calibration,
            hardware=hardware,
        )
    else:
        found = estimate_training(
            system.lower(),
            model=model,
            gpus=machines,
            sequence=sequence,
            global_batch=batch,
            precision=precision,
            fixed=fixed,
            top=top,
            calibration=calibration,
            hardware=hardware,
        )
    if picture and found.candidates[0].parts:
        best = found.candidates[0]
        title = " ".join(f"{name}={value}" for name, value in best.config.items())
        Path(picture).write_text(breakdown_svg({_NAMES.get(name, name): seconds for name, seconds in best.parts.items()}, title))
    if as_json:
        typer.echo(json.dumps([candidate.to_json() for candidate in found.candidates], indent=1))
        return
    show(found, Console())


def _pins(texts: list[str]) -> dict[str, Value]:
    pins: dict[str, Value] = {}
    faults = []
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            faults.append(Fault(where="--set", value=repr(text), rule="a pinned knob reads NAME=VALUE", fix="Example: --set tp=4"))
        else:
            pins[name.strip()] = yaml.safe_load(value)
    if faults:
        raise ConfigError(faults)
    return pins


def show(found: Estimate, console: Console) -> None:
    """Print the table of candidates, and the first one's breakdown as bars."""
    table = Table(title=f"simulated, {found.compared} configurations compared, {found.fitting} expected to fit", title_justify="left")
    metrics = list(found.candidates[0].metrics)
    for name in ("configuration", *metrics, "memory", "fits", "error ±"):
        table.add_column(name, justify="left" if name == "configuration" else "right")
    for candidate in found.candidates:
        settings = " ".join(f"{name}={value}" for name, value in candidate.config.items())
        numbers = [f"{candidate.metrics.get(name, float('nan')):.4g}" for name in metrics]
        table.add_row(settings, *numbers, _memory(candidate), f"{candidate.feasible:.0%}", f"{candidate.spread:.0%}")
    console.print(table)
    best = found.candidates[0]
    if best.parts:
        total_s = sum(best.parts.values())
        console.print(f"\nwhere the time of the first goes ({total_s:.4g} s per step):")
        for name, seconds in sorted(best.parts.items(), key=lambda pair: -pair[1]):
            if seconds > 0.001 * total_s:
                console.print(
                    f"  {_NAMES.get(name, name):26s} {seconds:9.4f} s {seconds / total_s:6.1%} {'█' * round(40 * seconds / total_s)}"
                )
        console.print("and its memory:")
        for name, size in best.memory.items():
            console.print(f"  {name.removesuffix('_bytes'):26s} {size / 2**30:9.2f} GiB")
    console.print(f"\nconstants from: {found.made_from}")


def _memory(candidate: Candidate) -> str:
    if "cache_tokens" in candidate.memory:
        return f"{candidate.memory['cache_tokens']:,.0f} tok"
    need = sum(size for name, size in candidate.memory.items() if name != "capacity_bytes")
    return f"{need / 2**30:.0f} of {candidate.memory['capacity_bytes'] / 2**30:.0f} GiB"


__all__ = ["estimate"]

"""Layouts of training jobs and settings of servers on virtual machines, drawn by number. Nothing here was measured.

As in `benchmarks/_paper_cluster.py` the truth is the shipped model with constants of its own, effects that the shipped model lacks, and an
error of each structure; here model, GPUs, number of GPUs and load are drawn as well.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.simulators.training import TrainingModel
from autoscout.simulators.training.calibration import save_calibration
from autoscout.simulators.training.model import TrainingOptions
from autoscout.space import Choice, Flag, Grid, Space
from benchmarks._paper_cluster import SURPRISE, drawn_constants
from benchmarks._paper_serving import METRIC, token_ms
from benchmarks._paper_serving import space as server_space
from benchmarks.synthetic import Written

LAYOUT_MODELS = ("llama-3.1-8b", "llama-2-13b", "qwen3-14b", "qwen3-32b", "llama-3.1-70b", "mixtral-8x7b")
LAYOUT_GPUS = ("A100-80", "H100", "H200")
SERVER_MODELS = ("llama-3.1-8b", "qwen3-14b", "qwen3-32b", "llama-3.1-70b", "qwen3-30b-a3b")
SERVER_GPUS = ("4xA100-80", "8xA100-80", "8xH100", "8xH200")
LEAST_ROWS = 50
"""Layouts that fit."""
NOISE = 0.01
"""Standard deviation of the logarithm of a time that two launches of one configuration differ by; fixed in the table."""


def drawn_layout(folder: Path, number: int) -> Written:
    """Step times of every layout of one training job; None: out of memory. Jobs of which hardly any layout fits are drawn again."""
    rng = stream(number, "drawn layouts")
    while True:
        table = _layouts(folder, number, rng)
        if sum(cost is not None for _, cost in table.rows) >= LEAST_ROWS:
            return table


def _layouts(folder: Path, number: int, rng: np.random.Generator) -> Written:
    count = int(rng.choice([16, 32, 64, 128]))
    workload: dict[str, Any] = {
        "synthetic": True,
        "model": str(rng.choice(LAYOUT_MODELS)),
        "gpus": f"{count}x{rng.choice(LAYOUT_GPUS)}",
        "sequence": int(rng.choice([2048, 4096, 8192])),
        "global_batch": int(rng.choice([128, 256, 512])),
        "stack": "megatron",
    }
    workload["seq_len"] = workload["sequence"]
    task = Task(system="megatron", objective=Objective(metric="step_s"), workload=workload)
    space = layout_space(count, workload["global_batch"])
    configs = list(space.enumerate())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "truth.yaml"
    save_calibration(drawn_constants(number, task), path)
    told = TrainingModel(TrainingOptions(calibration=str(path))).predict(configs, task)
    own: dict[Config, float] = {}
    rows: list[tuple[Config, float | None]] = []
    for config, value, feasible in zip(configs, told.value, told.feasible, strict=True):
        structure = config.only(name for name in config if name not in ("bucket", "streams"))
        error = own.setdefault(structure, math.exp(SURPRISE * float(rng.standard_normal())))
        noise = math.exp(NOISE * float(rng.standard_normal()))
        works = feasible >= 0.5 and np.isfinite(value)
        rows.append((config, float(value) * error * noise * _unknown(config) if works else None))
    return Written(name=f"layouts-{number}", space=space, rows=rows, unit="s/step", workload=workload)


def layout_space(gpus: int, batch: int) -> Space:
    """Megatron's layout on nodes of eight equal GPUs, and two settings of its communication."""
    degrees = [1, 2, 4, 8]
    knobs = [
        Choice("tp", degrees, default=8),
        Choice("pp", degrees, default=1),
        Choice("cp", [1, 2], default=1),
        Choice("dp", [2**power for power in range(8) if 2**power <= gpus], default=gpus // 8),
        Flag("sp", when="tp > 1"),
        Flag("ar", default=True),
        Choice("mbs", [1, 2, 4, 8], default=1, sparse=False),
        Grid("bucket", values=[1, 4, 16, 64], default=16, when="dp > 1"),
        Grid("streams", values=[12, 16, 20, 24], default=16, when="tp > 1"),
    ]
    rules = ("tp * pp * cp * dp == gpus", "batch % (dp * mbs) == 0", "tp * cp <= 8")
    return Space(knobs, rules, {"gpus": gpus, "batch": batch})


def _unknown(config: Config) -> float:
    """How many times longer a step takes for reasons that the shipped model does not have."""
    tp, dp, mbs = (float(str(config.get(name, 1) or 1)) for name in ("tp", "dp", "mbs"))
    factor = 1.0
    if "streams" in config:
        factor *= 1.0 + 0.002 * (float(str(config["streams"])) - 12.0 - 2.0 * math.log2(tp) - math.log2(mbs)) ** 2
    if "bucket" in config:
        factor *= 1.0 + 0.01 * (math.log2(float(str(config["bucket"]))) - math.log2(2.0 + dp) / 1.5) ** 2
    return factor


def drawn_server(folder: Path, number: int) -> Written:
    """Latency of requests for every setting of one server under one load; None: it does not start."""
    rng = stream(number, "drawn servers")
    load: dict[str, Any] = {
        "model": str(rng.choice(SERVER_MODELS)),
        "gpus": str(rng.choice(SERVER_GPUS)),
        "input_tokens": int(rng.choice([128, 512, 2048, 4096])),
        "output_tokens": int(rng.choice([64, 256, 512])),
        "request_rate": float(rng.choice([2.0, 4.0, 8.0, 16.0])),
    }
    space = server_space(int(load["gpus"].partition("x")[0]))
    configs = list(space.enumerate())
    folder.mkdir(parents=True, exist_ok=True)
    times = token_ms(configs, folder, number, load)
    tokens = load["output_tokens"]
    rows = [(config, None if math.isnan(value) else tokens * value) for config, value in zip(configs, times, strict=True)]
    workload = {"synthetic": True, "metric": METRIC, **load}
    return Written(name=f"servers-{number}", space=space, rows=rows, unit="ms", workload=workload)


__all__ = ["drawn_layout", "drawn_server"]

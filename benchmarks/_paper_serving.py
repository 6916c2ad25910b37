"""The job of the paper's Figure 7: Qwen3-30B-A3B served by vLLM on the eight A100, on virtual servers. Nothing here was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.task import Objective, Task
from autoscout.simulators.serving import ServingModel
from autoscout.simulators.serving.calibration import save_serving, serving_calibration
from autoscout.simulators.serving.model import ServingOptions
from autoscout.space import Choice, Grid, Space
from benchmarks._paper_cluster import OPTIONS, SPREAD, SURPRISE
from benchmarks.synthetic import Written, write_tables

TITLE = "qwen-serving"
TOKENS = 256  # of an answer
LOAD = {"model": "qwen3-30b-a3b", "input_tokens": 512, "output_tokens": TOKENS, "request_rate": 16.0, "gpus": "8xA100-80"}
METRIC = "mean_e2e_ms"
"""Of the table: whole requests, as the serving model predicts them; figures are per token."""
MEASURE_S = 60.0  # of load in one profile


def space(gpus: int = 8) -> Space:
    """vLLM's batching knobs at its defaults, over all GPUs unless the search knows better."""
    return Space(
        [
            Choice("tensor_parallel_size", [size for size in (1, 2, 4, 8) if size <= gpus], default=gpus),
            Grid("max_num_seqs", values=[16, 32, 64, 128, 256, 512, 1024], default=256, log=True),
            Grid("max_num_batched_tokens", values=[512, 1024, 2048, 4096, 8192, 16384], default=8192, log=True),
            Grid("gpu_memory_utilization", values=[0.7, 0.75, 0.8, 0.85, 0.9, 0.95], default=0.9),
        ]
    )


def write_serving(folder: Path, number: int) -> dict[str, Any]:
    """Write virtual server `number` as a table, unless the folder has it already: milliseconds per request; what is known of it."""
    kept = folder / "about.json"
    if not kept.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        configs = list(space().enumerate())
        times = token_ms(configs, folder, number)
        rows = [(config, None if math.isnan(value) else TOKENS * value) for config, value in zip(configs, times, strict=True)]
        name = f"{TITLE}-{number}"
        write_tables(
            folder, [Written(name=name, space=space(), rows=rows, unit="ms", workload={"synthetic": True, "metric": METRIC, **LOAD})]
        )
        default = times[configs.index(space().default())]
        worked = [value for value in times if not math.isnan(value)]
        about = {
            "configurations": len(times),
            "feasible": len(worked),
            "best_s": TOKENS * min(worked),
            "megatron_s": TOKENS * default,
            "measure_s": MEASURE_S,
        }
        kept.write_text(json.dumps(about), encoding="utf-8")
    found: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def token_ms(configs: list[Config], folder: Path, number: int, load: Mapping[str, Any] = LOAD) -> list[float]:
    """Latency of requests per generated token: the serving model with drawn constants, effects that it lacks, an error of each layout."""
    base, rng = serving_calibration(), stream(number, "paper", "serving")
    drawn = {name: getattr(base.constants, name) * math.exp(SPREAD * float(rng.standard_normal())) for name in base.constants.names()}
    path = folder / "truth.yaml"
    save_serving(replace(base, name="virtual server", constants=replace(base.constants, **drawn)), path)
    task = Task(system="vllm", objective=Objective(metric=METRIC), workload=dict(load))
    told = ServingModel(ServingOptions(calibration=str(path))).predict(configs, task)
    own = {tp: math.exp(SURPRISE * float(rng.standard_normal())) for tp in (1, 2, 4, 8)}
    found = []
    for config, value, feasible in zip(configs, told.value, told.feasible, strict=True):
        chunk = math.log2(float(config["max_num_batched_tokens"])) - 11.0  # prompts in large chunks hold up the answers of others
        noise = OPTIONS.noise * float(stream(number, "paper", config.key).standard_normal())
        works = feasible >= 0.5 and np.isfinite(value)
        found.append(
            float(value) / load["output_tokens"] * own[int(config["tensor_parallel_size"])] * (1.0 + 0.008 * chunk**2) * math.exp(noise)
            if works
            else math.nan
        )
    return found

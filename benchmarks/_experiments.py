"""inference-sim's vLLM experiments: the recorded runs as questions to the serving model."""

from __future__ import annotations

from typing import Any

from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.simulators.serving.model import ServingModel
from benchmarks._simulator_tables import experiments


def experiment_rows() -> list[dict[str, Any]]:
    """One row per experiment, stage and metric, whoever predicted it."""
    found = {(row["experiment"], row["workload"], row["load_stage"], row["metric"]): row for row in experiments()}
    return list(found.values())


def experiment_metrics(simulator: ServingModel, row: dict[str, Any]) -> dict[str, float]:
    """What the model says about the experiment of a row."""
    tp = int(float(row["tp"]))
    task = Task(
        system="vllm",
        objective=Objective(metric="mean_e2e_ms"),
        workload={
            "model": row["model"],
            "input_tokens": row["input_tokens"],
            "output_tokens": row["output_tokens"],
            "request_rate": row["rate"],
            "requests": 1500,
        },
        hardware={"gpus": f"{tp}x{row['gpu']}"},
    )
    config = Config(
        tensor_parallel_size=tp,
        max_num_batched_tokens=int(float(row["max_num_batched_tokens"])),
        max_num_seqs=128,
        precision="fp8" if row["precision"] == "FP8" else "bf16",
        gpu_memory_utilization=float(row.get("gpu_mem_util", 0.9)),
    )
    return simulator.metrics(config, task)


__all__ = ["experiment_metrics", "experiment_rows"]

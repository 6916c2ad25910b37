"""Random questions to both simulators, sensible and not; each must be answered with finite numbers or refused with a fault."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np

from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.simulators.serving.model import ServingModel
from autoscout.simulators.training.model import TrainingModel

MODELS = ("llama-3.1-8b", "llama-3.1-405b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b", "gpt3-125m", "gemma-2-9b", "nope")
GPUS = ("H100", "A100-40", "T4", "B200", "GB200", "MI300X", "L40S", "abacus")
SIZES = (1, 2, 3, 4, 7, 8, 16, 64, 512, 2048)
ODD = (0, -1, 1, 3, 1e9, math.inf, math.nan, "", "many", None, True)
TRAINING = ("tp", "pp", "dp", "cp", "ep", "etp", "vp", "mbs", "sp", "ar", "zero", "compiled", "ddp_bucket", "tp_comm", "trained_share")
TRAINING += (
    "precision",
    "attention_backend",
    "peft",
    "recompute_modules",
    "gradient_bytes",
    "zero_group",
    "bucket_count",
    "base_bytes",
    "a40",
)
TRAINING += ("grad_reduce_in_bf16", "cross_entropy_loss_fusion", "bias_activation_fusion", "overlap_param_gather", "use_tp_pp_dp_mapping")
SERVING = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "max_num_seqs", "max_num_batched_tokens")
SERVING += (
    "gpu_memory_utilization",
    "enable_chunked_prefill",
    "enable_mixed_chunk",
    "schedule_conservativeness",
    "prefill_gpus",
    "prefill_tp",
)
WORDS = {"ar": ("none", "selective", "full"), "precision": ("bf16", "fp8", "awq", "fp4", "fp32"), "kv_cache_dtype": ("auto", "fp8")}
WORDS |= {"attention_backend": ("flash", "fused", "unfused", "auto"), "peft": ("lora", "none", "sft"), "base_bytes": ("nf4", "int8", 2)}
WORDS |= {"recompute_modules": ("core_attn", "layernorm moe_act", "mlp"), "gpu_memory_utilization": (0.2, 0.5, 0.9, 1.0)}
WORDS |= dict.fromkeys(("schedule_conservativeness", "trained_share"), (0.1, 0.5, 1.0))
CAPACITY_SHARE = 0.02
"""Of the questions to the serving simulator: the highest rate within limits, which takes as long as many others."""


def question(seed: int) -> tuple[str, Task, Config]:
    """A system, a task and a config; one value in twenty is none that anybody would give."""
    draw = random.Random(seed)

    def some(values: Any) -> Any:
        return draw.choice(ODD) if draw.random() < 0.05 else draw.choice(values)

    mixed = "+4xA40" if draw.random() < 0.05 else ""
    hardware = {"gpus": f"{some(SIZES)}x{draw.choice(GPUS)}{mixed}"}
    if draw.random() < 0.5:
        work = {"model": draw.choice(MODELS), "sequence": some((128, 2048, 8192, 131072)), "global_batch": some((1, 8, 48, 256, 4096))}
        work["precision"] = draw.choice(("bf16", "fp8"))
        knobs = {name: some(WORDS.get(name, SIZES)) for name in draw.sample(TRAINING, draw.randrange(1, 9))}
        system = draw.choice(("megatron", "fsdp", "deepspeed", "nemo", "other"))
        return system, Task(system=system, objective=Objective(metric="step_s"), workload=work, hardware=hardware), _config(knobs)
    load = {"concurrency": some((1, 8, 64, 300))} if draw.random() < 0.6 else {"request_rate": some((0.1, 2.0, 50.0))}
    lengths = {"input_tokens": some((1, 128, 1024, 8192)), "output_tokens": some((1, 2, 64, 400)), "requests": draw.choice((1, 8, 60))}
    knobs = {name: some(WORDS.get(name, SIZES)) for name in draw.sample(SERVING, draw.randrange(1, 5))}
    knobs |= {name: some(WORDS[name]) for name in ("precision", "kv_cache_dtype") if draw.random() < 0.3}
    knobs |= {"enable_expert_parallel": True} if draw.random() < 0.3 else {}
    system = draw.choice(("vllm", "sglang", "trtllm"))
    objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE)
    if draw.random() < CAPACITY_SHARE:
        limits = (Limit.parse("p95_ttft_ms<=800"), Limit.parse("p95_tpot_ms<=40"))
        objective, load = Objective(metric="capacity_rps", direction=Direction.MAXIMIZE, limits=limits), {}
    return (
        system,
        Task(system=system, objective=objective, workload={"model": draw.choice(MODELS), **lengths, **load}, hardware=hardware),
        _config(knobs),
    )


def _config(knobs: dict[str, Any]) -> Config:
    """Without what a config itself refuses."""
    return Config(
        {name: value for name, value in knobs.items() if value is not None and not (isinstance(value, float) and not math.isfinite(value))}
    )


def ask(asked: tuple[str, Task, Config]) -> None:
    """Predict; faults are answers, anything else that is no finite number is not."""
    system, task, config = asked
    simulator = ServingModel() if system in ("vllm", "sglang", "trtllm") else TrainingModel()
    try:
        found = simulator.predict([config], task)
    except ConfigError:
        return
    assert 0.0 <= found.feasible[0] <= 1.0
    assert np.isfinite(found.spread).all()
    assert np.isfinite(found.value).all() or found.feasible[0] < 0.5, (system, task.workload, task.hardware, config)

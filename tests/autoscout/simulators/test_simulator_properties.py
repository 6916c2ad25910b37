"""What must hold whatever is asked: physics, agreement of loop and closed form, an answer or a fault and nothing else."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import pytest
from _questions import ask, question

from autoscout.catalog.gpus import gpu, gpu_fields
from autoscout.catalog.models import model
from autoscout.simulators.serving.calibration import replay, serving_calibration
from autoscout.simulators.serving.job import ServingJob, model_serving_fields
from autoscout.simulators.serving.step import cache_tokens, decode_step, running_requests, token_interval_s
from autoscout.simulators.training.calibration import training_calibration
from autoscout.simulators.training.job import ParallelLayout, TrainingJob, hardware_fields, model_fields
from autoscout.simulators.training.step import step_time

CONSTANTS = serving_calibration().constants
SLOWEST_S = 5.0  # CPU seconds, against endless runs; no claim of speed


def serving(name: str, tp: float, batch: float, engine: float, inputs: float = 1024.0, outputs: float = 256.0) -> ServingJob:
    return ServingJob(
        **model_serving_fields(model(name)),
        **gpu_fields(gpu("H200")),
        **dict.fromkeys(("weight_bytes", "expert_bytes", "kv_bytes"), 2.0),
        **dict.fromkeys(("pp", "attention_dp", "moe_ep"), 1.0),
        tp=tp,
        moe_tp=tp,
        engine=engine,
        input_tokens=inputs,
        output_tokens=outputs,
        batch=batch,
    )


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3"])
@pytest.mark.parametrize("better", ["memory_rate", "flops", "gemm_flops", "bus_rate", "nic_rate"])
def test_faster_hardware_never_serves_slower(name: str, better: str) -> None:
    job = serving(name, 8.0, 64.0, 0.0)
    faster = replace(job, **{better: 1.5 * getattr(job, better)})
    assert float(decode_step(faster, CONSTANTS).total_s) <= float(decode_step(job, CONSTANTS).total_s)
    assert float(token_interval_s(faster, CONSTANTS)) <= float(token_interval_s(job, CONSTANTS)) * (1 + 1e-9)


def test_more_memory_never_holds_fewer_requests() -> None:
    sizes = [replace(serving("llama-3.1-70b", 4.0, 4096.0, 0.0), memory_bytes=size * 2.0**30) for size in (40, 80, 120, 160)]
    tokens = [float(cache_tokens(size)) for size in sizes]
    assert tokens == sorted(tokens)
    running = [float(running_requests(size)) for size in sizes[1:]]
    assert running == sorted(running)


@pytest.mark.parametrize("better", ["flops", "gemm_flops", "memory_rate", "bus_rate", "nic_rate"])
@pytest.mark.parametrize("stack", ["megatron-core", "fsdp", "megatron-deepspeed", "default"])
def test_faster_hardware_never_trains_slower(better: str, stack: str) -> None:
    layout = ParallelLayout(tp=4.0, pp=4.0, dp=8.0, micro_batch=2.0, sequence_parallel=1.0, zero=1.0)
    fields = {**model_fields(model("llama-3.1-70b")), **hardware_fields(gpu("H100"))}
    job = TrainingJob(**fields, sequence=4096.0, global_batch=512.0, layout=layout)
    faster = replace(job, **{better: 1.5 * getattr(job, better)})
    constants = training_calibration(stack).constants
    assert float(step_time(faster, constants).total_s) <= float(step_time(job, constants).total_s)


def test_the_loop_and_the_closed_form_agree() -> None:
    """Requests of drawn lengths, a cache that holds them all, prompts short of a step's tokens."""
    jobs = [
        serving(name, tp, batch, engine, inputs, outputs)
        for name, tp in (("llama-3.1-8b", 1.0), ("llama-3.1-70b", 4.0), ("qwen3-30b-a3b", 2.0), ("qwen3-32b", 2.0))
        for batch in (1.0, 8.0, 48.0)
        for inputs, outputs in ((512.0, 256.0), (2048.0, 512.0))
        for engine in (0.0, 1.0, 2.0)
    ]
    table = ServingJob(**{name: np.array([vars(job)[name] for job in jobs], dtype=float) for name in vars(jobs[0])})
    ratio = replay(table, CONSTANTS).interval_s / token_interval_s(table, CONSTANTS)
    assert np.abs(np.log(ratio)).max() < np.log(1.1)


def test_random_questions_get_an_answer_or_a_fault() -> None:
    for seed in range(1_500):
        begun = time.process_time()
        ask(question(seed))
        assert time.process_time() - begun < SLOWEST_S, seed


PART = 10_000
"""Questions of one case, so that processes share them."""


@pytest.mark.soak
@pytest.mark.parametrize("part", range(100))
def test_a_million_random_questions(part: int) -> None:
    first = int(os.environ.get("AUTOSCOUT_SOAK_SEED", "0")) + part * PART
    for seed in range(first, first + PART):
        begun = time.process_time()
        ask(question(seed))
        assert time.process_time() - begun < SLOWEST_S, seed

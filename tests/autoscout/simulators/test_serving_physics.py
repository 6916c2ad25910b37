"""No knob predicts a gain that it cannot have: the serving simulator on questions whose answer physics knows."""

from __future__ import annotations

from typing import Any

import pytest

from autoscout.core.config import Config
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.simulators.serving.model import ServingModel

CASES = [("llama-3.1-8b", "2xH100", "vllm"), ("llama-3.1-8b", "2xL40S", "sglang"), ("qwen3-30b-a3b", "4xH200", "vllm")]
SLACK = 1.02
"""The loop draws lengths and places requests in whole steps; that much may differ either way."""


def metrics(model: str, gpus: str, engine: str, asked: dict[str, Any] | None = None, **knobs: Any) -> dict[str, float]:
    load = {"concurrency": 32, "requests": 128} if asked is None else asked
    objective = Objective(metric="output_throughput", direction=Direction.MAXIMIZE)
    workload = {"model": model, "input_tokens": 1024, "output_tokens": 128, **load}
    return ServingModel().metrics(Config(knobs), Task(system=engine, objective=objective, workload=workload, hardware={"gpus": gpus}))


@pytest.mark.parametrize(("model", "gpus", "engine"), CASES)
@pytest.mark.parametrize("tp", [1, 2])
def test_narrower_weights_are_never_slower_nor_larger(model: str, gpus: str, engine: str, tp: int) -> None:
    wide, narrow = (metrics(model, gpus, engine, tp=tp, quantization=name) for name in ("bf16", "fp8"))
    assert narrow["output_throughput"] >= wide["output_throughput"] / SLACK
    assert narrow["cache_tokens"] > wide["cache_tokens"]


@pytest.mark.parametrize(("model", "gpus", "engine"), CASES)
def test_weights_that_are_only_stored_narrow_compute_no_faster(model: str, gpus: str, engine: str) -> None:
    """Prompts alone: all arithmetic, no reading of weights worth a word."""
    prompts = {"concurrency": 8, "requests": 32, "output_tokens": 1, "input_tokens": 8192}
    wide, stored = (metrics(model, gpus, engine, prompts, tp=1, dp=1, quantization=name) for name in ("bf16", "awq"))
    assert stored["mean_ttft_ms"] >= wide["mean_ttft_ms"] / SLACK


@pytest.mark.parametrize(("model", "gpus", "engine"), CASES)
def test_a_narrower_cache_holds_twice_as_much_and_serves_no_worse(model: str, gpus: str, engine: str) -> None:
    wide, narrow = (metrics(model, gpus, engine, tp=1, kv_cache_dtype=name) for name in ("auto", "fp8"))
    assert narrow["cache_tokens"] == pytest.approx(2.0 * wide["cache_tokens"])
    assert narrow["output_throughput"] >= wide["output_throughput"] / SLACK


@pytest.mark.parametrize(("model", "gpus", "engine"), CASES)
@pytest.mark.parametrize(
    ("knob", "values"),
    [("max_num_seqs", (64, 256, 1024)), ("max_num_batched_tokens", (65_536, 131_072)), ("gpu_memory_utilization", (0.9, 0.95))],
)
def test_room_that_nobody_uses_changes_nothing(model: str, gpus: str, engine: str, knob: str, values: tuple[float, ...]) -> None:
    found = {metrics(model, gpus, engine, tp=2, **{knob: value})["output_throughput"] for value in values}
    assert len(found) == 1


@pytest.mark.parametrize(("model", "gpus", "engine"), CASES)
def test_no_server_answers_more_than_it_is_asked(model: str, gpus: str, engine: str) -> None:
    for rate in (0.5, 4.0, 400.0):
        found = metrics(model, gpus, engine, {"request_rate": rate, "requests": 120}, tp=1)
        assert found["request_throughput"] <= rate * 1.001
        assert found["output_throughput"] <= rate * 128 * 1.15  # lengths are drawn around 128


@pytest.mark.parametrize(("model", "gpus", "engine"), CASES)
def test_two_gpus_are_never_more_than_twice_as_good_as_one(model: str, gpus: str, engine: str) -> None:
    """Under the same load, and where one holds the weights with room for all requests."""
    one = metrics(model, gpus, engine, tp=1, dp=1)
    for knobs in ({"tp": 2, "dp": 1}, {"tp": 1, "dp": 2}, {"tp": 1, "pp": 2, "dp": 1}):
        assert metrics(model, gpus, engine, **knobs)["output_throughput"] <= 2.0 * SLACK * one["output_throughput"], knobs


@pytest.mark.parametrize(("model", "gpus", "engine"), CASES)
def test_more_clients_wait_no_less(model: str, gpus: str, engine: str) -> None:
    found = [metrics(model, gpus, engine, {"concurrency": count, "requests": 4 * count}, tp=1) for count in (1, 8, 64)]
    assert [one["mean_tpot_ms"] for one in found] == sorted(one["mean_tpot_ms"] for one in found)
    assert found[0]["output_throughput"] < found[1]["output_throughput"] < found[2]["output_throughput"]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("knobs", [{"max_num_seqs": 64}, {"max_num_batched_tokens": 2048}, {"enable_chunked_prefill": False}])
def test_stricter_limits_never_allow_a_higher_rate(engine: str, knobs: dict[str, Any]) -> None:
    rates = []
    for bound in (5000, 1000, 300):
        limits = tuple(map(Limit.parse, (f"p95_ttft_ms<={bound}", "p95_tpot_ms<=50")))
        objective = Objective(metric="capacity_rps", direction=Direction.MAXIMIZE, limits=limits)
        workload = {"model": "llama-3.1-8b", "input_tokens": 1024, "output_tokens": 128}
        asked = Task(system=engine, objective=objective, workload=workload, hardware={"gpus": "1xH100"})
        rates.append(ServingModel().metrics(Config(knobs), asked)["capacity_rps"])
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.0

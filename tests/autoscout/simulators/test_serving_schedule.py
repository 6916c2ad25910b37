"""Who waits for whose prompt: engines that mix prompts into decode steps, and engines that stop for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autoscout.catalog.gpus import gpu, gpu_fields
from autoscout.catalog.models import model
from autoscout.core.config import Config
from autoscout.core.task import Objective, Task
from autoscout.simulators.serving.calibration import replay, serving_calibration
from autoscout.simulators.serving.cost import step_cost
from autoscout.simulators.serving.job import ServingConstants, ServingJob, model_serving_fields
from autoscout.simulators.serving.loop import EngineLimits, SimulatedRequest, serve
from autoscout.simulators.serving.model import ServingModel, ServingOptions
from autoscout.simulators.serving.step import decode_step, token_interval_s, waited_share

VLLM, SGLANG = 0.0, 1.0


def job(name: str = "qwen3-32b", **changes: float) -> ServingJob:
    values = {
        **model_serving_fields(model(name)),
        **gpu_fields(gpu("H100")),
        **dict.fromkeys(("weight_bytes", "expert_bytes", "kv_bytes"), 2.0),
        **dict.fromkeys(("pp", "attention_dp", "moe_tp", "moe_ep"), 1.0),
        "tp": 4.0,
        "engine": VLLM,
        "input_tokens": 2048.0,
        "output_tokens": 128.0,
        "batch": 32.0,
    }
    return ServingJob(**{**values, **changes})


def test_stopping_for_prompts_keeps_equal_requests_in_step() -> None:
    constants, requests = serving_calibration().constants, [SimulatedRequest(input_tokens=2048, output_tokens=128)] * 192
    cost = step_cost(job(), constants)
    mixed = serve(requests, cost, EngineLimits(), concurrency=32)
    stopping = serve(requests, cost, EngineLimits(mixed=False), concurrency=32)
    assert np.mean(stopping.first_token_s) > 2 * np.mean(mixed.first_token_s)
    assert np.mean(stopping.interval_s) < 0.8 * np.mean(mixed.interval_s)
    # what is not waited for between tokens is waited for before the first: the whole takes about as long
    assert np.mean(stopping.total_s) == pytest.approx(float(np.mean(mixed.total_s)), rel=0.15)


def test_unequal_requests_fall_out_of_step() -> None:
    cost = step_cost(job(), serving_calibration().constants)
    lengths = np.random.default_rng(3).integers(96, 160, size=192).tolist()
    requests = [SimulatedRequest(input_tokens=2048, output_tokens=length) for length in lengths]
    equal = serve([SimulatedRequest(input_tokens=2048, output_tokens=128)] * 192, cost, EngineLimits(mixed=False), concurrency=32)
    unequal = serve(requests, cost, EngineLimits(mixed=False), concurrency=32)
    assert np.mean(unequal.first_token_s) < 0.5 * np.mean(equal.first_token_s)


def test_nobody_waits_between_tokens_for_their_own_prompt() -> None:
    constants = serving_calibration().constants
    for engine in (VLLM, SGLANG):
        alone = job(batch=1.0, engine=engine)
        assert float(waited_share(alone, constants, np.array(1.0))) == 1.0
        assert float(token_interval_s(alone, constants)) == pytest.approx(float(decode_step(alone, constants).total_s))


def test_the_closed_form_follows_the_loop_for_both_kinds_of_engine() -> None:
    constants = serving_calibration().constants
    for engine in (VLLM, SGLANG):
        one = job(engine=engine)
        columns = ServingJob(**{name: np.array([value]) for name, value in vars(one).items()})
        seen = replay(columns, constants)
        assert seen.interval_s[0] == pytest.approx(float(token_interval_s(one, constants)), rel=0.15)
        assert seen.first_token_s[0] > 0


def test_reads_are_even_and_arithmetic_is_not() -> None:
    constants = replace(ServingConstants(), imbalance=0.5)
    few, many = ({"batch": batch, "tp": 4.0} for batch in (4.0, 100_000.0))
    for load, ratio in ((few, 1.0), (many, 2.0)):  # twice two doublings of half
        whole = decode_step(job("qwen3-30b-a3b", moe_tp=4.0, **load), constants, batch=load["batch"])
        spread = decode_step(job("qwen3-30b-a3b", moe_ep=4.0, **load), constants, batch=load["batch"])
        assert float(spread.experts_s / whole.experts_s) == pytest.approx(ratio)


def test_narrow_weights_reach_less_of_the_memory_rate() -> None:
    constants = replace(ServingConstants(), reduced_memory=0.5)
    wide, narrow = decode_step(job(), constants), decode_step(job(weight_bytes=1.0), constants)
    assert float(narrow.weights_s) == pytest.approx(float(wide.weights_s))


def asked(system: str, metric: str = "median_ttft_ms", name: str = "qwen3-32b", **load: object) -> Task:
    workload = {"model": name, "input_tokens": 1024, "output_tokens": 128, "requests": 64, **load}
    return Task(system=system, objective=Objective(metric=metric), workload=workload, hardware={"gpus": "4xH100"})


def test_sglang_stops_for_prompts_unless_it_is_told_to_mix() -> None:
    simulator, tp = ServingModel(ServingOptions(length_spread=0.0)), {"tensor_parallel_size": 4}
    first = simulator.predict([Config(tp), Config({**tp, "enable_mixed_chunk": True})], asked("sglang", concurrency=32)).value
    assert first[0] > 1.5 * first[1]


def test_a_group_wider_than_its_node_goes_over_the_network() -> None:
    constants = serving_calibration().constants
    inside, across = decode_step(job(tp=8.0), constants), decode_step(job(tp=8.0, node_gpus=4.0), constants)
    assert float(across.communication_s) > 2 * float(inside.communication_s)
    nodes = [replace(asked("vllm", "median_tpot_ms", concurrency=8), hardware={"gpus": "4xH100", "node_gpus": n}) for n in (4, 2)]
    values = [ServingModel().predict([Config(tensor_parallel_size=4)], task).value[0] for task in nodes]
    assert values[1] > 1.1 * values[0]


def test_an_infinite_rate_sends_everything_at_once() -> None:
    config = Config(tensor_parallel_size=4)
    at_once = ServingModel().metrics(config, asked("vllm", request_rate="inf"))
    closed = ServingModel().metrics(config, asked("vllm", concurrency=64))
    assert at_once["output_throughput"] == closed["output_throughput"]


def test_the_spread_is_that_of_the_metric_and_of_the_kind_of_model() -> None:
    found, config = serving_calibration(), [Config(tensor_parallel_size=4)]
    for metric, name, spread in (
        ("median_ttft_ms", "qwen3-32b", found.first_spread),
        ("median_tpot_ms", "qwen3-32b", found.spread),
        ("median_tpot_ms", "qwen3-30b-a3b", found.expert_spread),
    ):
        assert ServingModel().predict(config, asked("vllm", metric, name, concurrency=8)).spread[0] == pytest.approx(spread)
    assert found.spread < found.expert_spread < found.first_spread


def test_products_of_many_rows_run_as_fast_as_those_of_prompts() -> None:
    cost = step_cost(job(), serving_calibration().constants).plain()
    few, many = cost.answers_s(256), cost.answers_s(1256)
    assert few == pytest.approx(256 * cost.dense_token_s)
    assert many - few == pytest.approx(1000 * cost.large_token_s)
    assert cost.large_token_s <= cost.dense_token_s

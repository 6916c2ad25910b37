from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from autoscout.catalog.gpus import gpu, gpu_fields
from autoscout.catalog.models import model
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Limit, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.simulators.serving.calibration import serving_calibration
from autoscout.simulators.serving.cost import StepCost, step_cost
from autoscout.simulators.serving.job import ServingConstants, ServingJob, bytes_per_weight, model_serving_fields
from autoscout.simulators.serving.loop import EngineLimits, SimulatedRequest, serve
from autoscout.simulators.serving.model import ServingModel
from autoscout.simulators.serving.step import cache_tokens, decode_step, prefill_token_s, running_requests, token_interval_s

BARE = StepCost(
    dense_read_s=0.0,
    dense_token_s=0.0,
    large_token_s=0.0,
    prompt_token_s=0.0,
    cache_token_s=0.0,
    attention_s=0.0,
    expert_read_s=0.0,
    expert_token_s=0.0,
    expert_prompt_s=0.0,
    chosen_share=0.0,
    replicas=1.0,
    reduce_s=0.0,
    traffic_s=0.0,
    prompt_traffic_s=0.0,
    host_s=1.0,
    eager_s=0.0,
    request_s=0.0,
)
"""Every step takes one second, whatever it carries."""


def job(name: str = "llama-3.1-8b", **changes: float) -> ServingJob:
    values = {
        **model_serving_fields(model(name)),
        **gpu_fields(gpu("H100")),
        "weight_bytes": 2.0,
        "expert_bytes": 2.0,
        "kv_bytes": 2.0,
        "tp": 1.0,
        "pp": 1.0,
        "attention_dp": 1.0,
        "moe_tp": 1.0,
        "moe_ep": 1.0,
        "engine": 0.0,
        "input_tokens": 1000.0,
        "output_tokens": 100.0,
        "batch": 8.0,
    }
    return ServingJob(**{**values, **changes})


def test_one_request_alone() -> None:
    served = serve([SimulatedRequest(input_tokens=10, output_tokens=4)], BARE, EngineLimits())
    assert served.first_token_s.tolist() == [1.0]  # the prompt's step gives the first token
    assert served.total_s.tolist() == [4.0]
    assert served.interval_s.tolist() == [1.0]
    assert served.output_tokens == 4


def test_a_long_prompt_takes_several_chunks() -> None:
    served = serve([SimulatedRequest(input_tokens=10, output_tokens=1)], BARE, EngineLimits(max_step_tokens=4))
    assert served.first_token_s.tolist() == [3.0]  # 4 + 4 + 2
    whole = serve([SimulatedRequest(input_tokens=10, output_tokens=1)], BARE, EngineLimits(max_step_tokens=4, chunked=False))
    assert whole.first_token_s.tolist() == [1.0]


def test_the_second_request_waits_for_a_place() -> None:
    two = [SimulatedRequest(input_tokens=1, output_tokens=3), SimulatedRequest(input_tokens=1, output_tokens=3)]
    served = serve(two, BARE, EngineLimits(max_requests=1))
    assert served.first_token_s.tolist() == [1.0, 4.0]
    assert served.total_s.tolist() == [3.0, 6.0]


def test_arrivals_join_the_running_batch() -> None:
    served = serve(
        [SimulatedRequest(input_tokens=1, output_tokens=10), SimulatedRequest(input_tokens=1, output_tokens=2, arrival_s=2.5)],
        BARE,
        EngineLimits(),
    )
    assert served.first_token_s[1] == pytest.approx(4.0 - 2.5)  # the step from 3 to 4
    assert served.total_s.tolist() == [10.0, 2.5]


def test_a_closed_loop_keeps_its_concurrency() -> None:
    served = serve([SimulatedRequest(input_tokens=1, output_tokens=5)] * 6, BARE, EngineLimits(), concurrency=2)
    assert served.finished_s == 15.0
    assert served.total_s == pytest.approx([5.0] * 6)


def test_a_full_cache_sends_the_youngest_back() -> None:
    two = [SimulatedRequest(input_tokens=4, output_tokens=6), SimulatedRequest(input_tokens=4, output_tokens=6)]
    roomy = serve(two, BARE, EngineLimits(cache_tokens=100))
    tight = serve(two, BARE, EngineLimits(cache_tokens=13, kept_share=0.0))
    assert roomy.preemptions == 0
    assert tight.preemptions >= 1
    assert tight.total_s[0] == roomy.total_s[0]
    assert tight.total_s[1] > roomy.total_s[1]
    assert np.isfinite(tight.total_s).all()


def test_a_request_that_can_never_fit_is_not_served() -> None:
    served = serve(
        [SimulatedRequest(input_tokens=50, output_tokens=2), SimulatedRequest(input_tokens=2, output_tokens=2)],
        BARE,
        EngineLimits(cache_tokens=20),
    )
    assert math.isnan(served.total_s[0])
    assert np.isfinite(served.total_s[1])


def test_steps_taken_together_cost_what_they_cost_one_by_one() -> None:
    cost = replace(BARE, host_s=0.0, cache_token_s=1.0)
    served = serve([SimulatedRequest(input_tokens=10, output_tokens=5)], cost, EngineLimits())
    # contexts of the four decode steps: 11, 12, 13, 14
    assert served.total_s[0] == pytest.approx(11 + 12 + 13 + 14)


def test_decode_is_bound_by_reading_the_weights() -> None:
    constants = replace(ServingConstants(), memory_scale=1.0, layer_s=0.0, vllm_s=0.0, request_s=0.0)
    one = job(batch=1.0, input_tokens=1.0, output_tokens=2.0)
    weights = one.dense_params * 2.0 / one.memory_rate
    assert float(decode_step(one, constants).total_s) == pytest.approx(weights, rel=1e-3)
    assert float(decode_step(job(batch=1.0, input_tokens=1.0, weight_bytes=1.0), constants).total_s) < 0.6 * weights


def test_more_tokens_touch_more_experts() -> None:
    few = decode_step(job("qwen3-30b-a3b", batch=1.0), ServingConstants())
    many = decode_step(job("qwen3-30b-a3b", batch=64.0), ServingConstants())
    assert float(many.experts_s) > 5 * float(few.experts_s)
    # one token meets 8 of 128
    shape = model("qwen3-30b-a3b")
    read = 48 * 8 * shape.expert_params * 2.0
    rate = job("qwen3-30b-a3b").memory_rate * ServingConstants().memory_scale * ServingConstants().expert_scale
    assert float(few.experts_s) == pytest.approx(read / rate, rel=1e-6)


def test_the_loop_and_the_closed_form_agree_in_steady_state() -> None:
    constants = serving_calibration().constants
    one = job(batch=16.0, input_tokens=512.0, output_tokens=256.0)
    served = serve([SimulatedRequest(input_tokens=512, output_tokens=256)] * 160, step_cost(one, constants), EngineLimits(), concurrency=16)
    assert float(np.mean(served.interval_s)) == pytest.approx(float(token_interval_s(one, constants)), rel=0.15)


def test_cache_capacity_by_hand() -> None:
    one = job()
    free = 80 * 2**30 * 0.99 * 0.9 - one.dense_params * 2.0 - 2.5e9
    assert float(cache_tokens(one)) == pytest.approx(free / (2 * 8 * 128 * 2 * 32))
    assert float(cache_tokens(job("llama-3.1-70b"))) == 0.0
    assert float(running_requests(job(batch=10_000.0))) == pytest.approx(float(cache_tokens(one)) / 1050.0)


def test_prefill_gets_cheaper_with_more_gpus() -> None:
    constants = serving_calibration().constants
    assert float(prefill_token_s(job(tp=4.0), constants)) < float(prefill_token_s(job(), constants))
    assert bytes_per_weight("nvfp4") < bytes_per_weight("fp8") < bytes_per_weight("bf16")


def task(metric: str = "median_ttft_ms", limits: tuple[str, ...] = (), **load: object) -> Task:
    workload = {"model": "llama-3.1-8b", "input_tokens": 512, "output_tokens": 128, "requests": 100, **(load or {"concurrency": 16})}
    objective = Objective(metric=metric, limits=tuple(Limit.parse(text) for text in limits))
    return Task(system="vllm", objective=objective, workload=workload, hardware={"gpus": "2xH100"})


def test_metrics_and_predictions_agree() -> None:
    configs = [Config(tensor_parallel_size=1), Config(tensor_parallel_size=2)]
    asked = task()
    simulator = ServingModel()
    prediction = simulator.predict(configs, asked)
    assert prediction.value.tolist() == [simulator.metrics(config, asked)["median_ttft_ms"] for config in configs]
    values = simulator.metrics(configs[0], asked)
    assert values["p99_ttft_ms"] >= values["median_ttft_ms"]
    assert values["output_throughput"] == pytest.approx(values["request_throughput"] * 128, rel=0.02)


def test_a_higher_rate_waits_longer() -> None:
    simulator = ServingModel()
    config = Config(tensor_parallel_size=2)
    slow = simulator.predict([config], task("p95_ttft_ms", request_rate=2.0)).value[0]
    fast = simulator.predict([config], task("p95_ttft_ms", request_rate=500.0)).value[0]
    assert fast > 2 * slow


def test_goodput_counts_only_what_keeps_the_limits() -> None:
    simulator = ServingModel()
    config = Config(tensor_parallel_size=2)
    loose = simulator.metrics(config, task("request_goodput", ("p95_ttft_ms<=100000",)))
    strict = simulator.metrics(config, task("request_goodput", ("p95_ttft_ms<=0.001",)))
    assert loose["request_goodput"] == pytest.approx(loose["request_throughput"])
    assert strict["request_goodput"] == 0.0


def test_what_does_not_fit_is_not_feasible() -> None:
    asked = Task(
        system="vllm",
        objective=Objective(metric="output_throughput"),
        workload={"model": "llama-3.1-70b", "isl": 512, "osl": 64, "concurrency": 4},
        hardware={"gpus": "4xH100"},
    )
    chances = ServingModel().predict([Config(tp=1, dp=4), Config(tp=4, dp=1), Config(tp=8, dp=1)], asked).feasible
    assert chances[0] < 0.2
    assert chances[1] > 0.9
    assert chances[2] == 0.0


def test_fitting_scales_times_and_rates_in_opposite_ways() -> None:
    config = Config(tensor_parallel_size=1)
    for metric in ("median_tpot_ms", "output_throughput"):
        asked, simulator = task(metric), ServingModel()
        before = float(simulator.predict([config], asked).value[0])
        measured = Measurement(status=Status.OK, metrics={metric: before * 1.3})
        simulator.fit([Trial(proposal=Proposal(config=config), measurement=measured)] * 4, asked)
        assert simulator.predict([config], asked).value[0] == pytest.approx(before * 1.3, rel=0.03)


@pytest.mark.parametrize("knob", ["enforce_eager", "disable_cuda_graph"])
def test_steps_without_cuda_graphs_take_longer(knob: str) -> None:
    simulator, asked = ServingModel(), task("median_tpot_ms")
    off, on = simulator.predict([Config({"tensor_parallel_size": 1, knob: value}) for value in (False, True)], asked).value
    layers, constants = model("llama-3.1-8b").layers, serving_calibration().constants
    assert 0.0 < on - off < 1.1e3 * layers * constants.eager_layer_s, "as much as a step with prompts, which fit no graph"


def test_speculation_is_not_known() -> None:
    """The prediction is that of the same configuration without it, and says that it is worth little."""
    plain, guessing = Config(tensor_parallel_size=1), Config(tensor_parallel_size=1, speculative_method="mtp", num_speculative_tokens=3)
    asked, simulator = task("output_throughput"), ServingModel()
    answer = simulator.predict([plain, guessing, Config(plain, speculative_algorithm="none")], asked)
    assert answer.known[1] == 0 < answer.known[0] == answer.known[2]
    assert answer.spread[1] > answer.spread[0] == answer.spread[2]
    measured = Measurement(status=Status.OK, metrics={"output_throughput": 3 * float(answer.value[0])})
    simulator.fit([Trial(proposal=Proposal(config=guessing), measurement=measured)] * 4, asked)
    assert simulator.predict([plain], asked).value[0] == answer.value[0], "its trials say nothing of others"


def test_a_task_without_load_names_all_that_is_missing() -> None:
    broken = Task(system="vllm", objective=Objective(metric="x"), workload={"model": "llama-3.1-8b"}, hardware={"gpus": "1xH100"})
    with pytest.raises(ConfigError) as caught:
        ServingModel().predict([Config()], broken)
    assert {fault.field for fault in caught.value.faults} == {"workload.input_tokens", "workload.output_tokens", "workload.concurrency"}


def test_the_shipped_calibration_says_what_made_it() -> None:
    found = serving_calibration()
    assert found.rows > 1000
    assert "silicon" in found.made_from
    assert 0 < found.margin < 1

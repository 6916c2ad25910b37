"""A full cache: who is admitted, who is evicted, and what that costs."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from autoscout.catalog.gpus import gpu, gpu_fields
from autoscout.catalog.models import model
from autoscout.core.config import Config
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.simulators.serving.calibration import serving_calibration
from autoscout.simulators.serving.cost import exchange_s, step_cost
from autoscout.simulators.serving.job import ServingJob, model_serving_fields
from autoscout.simulators.serving.loop import EngineLimits, SimulatedRequest, serve
from autoscout.simulators.serving.model import ServingModel


def job(name: str = "llama-3.1-8b", **changes: float) -> ServingJob:
    values = {
        **model_serving_fields(model(name)),
        **gpu_fields(gpu("H100")),
        **dict.fromkeys(("weight_bytes", "expert_bytes", "kv_bytes"), 2.0),
        **dict.fromkeys(("tp", "pp", "attention_dp", "moe_tp", "moe_ep"), 1.0),
        "engine": 0.0,
        "input_tokens": 1024.0,
        "output_tokens": 256.0,
        "batch": 32.0,
    }
    return ServingJob(**{**values, **changes})


def throughputs(system: str, counts: tuple[int, ...], gpus: str = "4xA100-80", name: str = "llama-3.1-70b") -> list[float]:
    task = Task(
        system=system,
        objective=Objective(metric="output_throughput", direction=Direction.MAXIMIZE),
        workload={"model": name, "input_tokens": 1024, "output_tokens": 1024, "concurrency": 768},
        hardware={"gpus": gpus},
    )
    simulator = ServingModel()
    return [simulator.metrics(Config(tensor_parallel_size=4, max_num_seqs=count), task)["output_throughput"] for count in counts]


@pytest.mark.parametrize("system", ["vllm", "sglang", "trtllm"])
def test_more_requests_than_the_cache_holds_never_cost_throughput(system: str) -> None:
    found = throughputs(system, (64, 128, 192, 256, 512, 1024))
    assert all(later >= earlier for earlier, later in itertools.pairwise(found))


def test_room_is_kept_for_what_admitted_requests_will_write() -> None:
    requests = [SimulatedRequest(input_tokens=1000, output_tokens=1000)] * 40
    cost = step_cost(job(), serving_calibration().constants)
    kept = serve(requests, cost, EngineLimits(cache_tokens=10_000, kept_share=1.0), concurrency=40)
    greedy = serve(requests, cost, EngineLimits(cache_tokens=10_000, kept_share=0.0), concurrency=40)
    assert kept.preemptions == 0
    assert 0 < greedy.preemptions < 10 * len(requests)
    for served in (kept, greedy):
        assert np.isfinite(served.total_s).all()


def test_an_evicted_request_waits_until_there_is_head_room() -> None:
    requests = [SimulatedRequest(input_tokens=1000, output_tokens=500)] * 20
    cost = step_cost(job(), serving_calibration().constants)
    tight, roomy = (
        serve(requests, cost, EngineLimits(cache_tokens=8_000, kept_share=0.0, free_share=share), concurrency=20) for share in (0.0, 0.1)
    )
    assert roomy.preemptions < tight.preemptions


def test_one_prediction_is_bounded_in_work() -> None:
    requests = [SimulatedRequest(input_tokens=1, output_tokens=2)] * 200_000
    begun = time.process_time()
    served = serve(requests, step_cost(job(), serving_calibration().constants), EngineLimits(), concurrency=1)
    assert time.process_time() - begun < 5.0
    assert np.isfinite(served.total_s).sum() > 1_000  # what was served counts


def test_a_token_goes_once_to_each_other_rank_however_many_of_its_experts_are_there() -> None:
    two, eight = (job("deepseek-v3", attention_dp=ranks, moe_ep=ranks) for ranks in (2.0, 8.0))
    each_s = 4.0 * 58 * 7168 / two.bus_rate
    met = 1.0 - (1.0 - 1.0 / 2.0) ** 8
    assert float(exchange_s(two, 1.0)) == pytest.approx(met * each_s)  # one other rank, not eight experts
    assert float(exchange_s(eight, 1.0)) == pytest.approx(7.0 * (1.0 - (7.0 / 8.0) ** 8) * each_s)
    split = job("deepseek-v3", attention_dp=4.0, moe_tp=4.0)
    assert float(exchange_s(split, 1.0)) == pytest.approx(3.0 * each_s)


def test_between_nodes_a_token_goes_once_to_each_node() -> None:
    wide = job("deepseek-v3", attention_dp=16.0, moe_ep=16.0)
    across_s = (1.0 - 0.5**8) * 4.0 * 58 * 7168 / wide.nic_rate
    assert float(exchange_s(wide, 1.0)) == pytest.approx(across_s)


def test_prompts_on_gpus_of_their_own_disturb_nobody() -> None:
    task = Task(
        system="vllm",
        objective=Objective(metric="p99_itl_ms"),
        workload={"model": "llama-3.1-70b", "input_tokens": 4096, "output_tokens": 128, "request_rate": 1.0, "requests": 60},
        hardware={"gpus": "8xH100"},
    )
    simulator = ServingModel()
    together = simulator.metrics(Config(tensor_parallel_size=4), task)
    apart = simulator.metrics(Config(tensor_parallel_size=4, prefill_gpus=4, prefill_tp=4), task)
    assert apart["p99_itl_ms"] < 0.5 * together["p99_itl_ms"]
    assert apart["request_throughput"] == pytest.approx(together["request_throughput"], rel=0.1)
    # a cache of 4,096 tokens, 80 layers and 8 heads travels over four network cards
    travel_ms = 4096 * 2 * 8 * 128 * 2 * 80 / (50e9 * 4) * 1e3
    assert apart["median_ttft_ms"] > travel_ms
    small = simulator.metrics(Config(tensor_parallel_size=4, prefill_gpus=1, prefill_tp=1), task)
    assert small["feasible"] == 0.0  # one GPU cannot hold the weights


def test_the_highest_rate_within_limits_is_looked_for() -> None:
    def rate(limit: str) -> float:
        objective = Objective(metric="capacity_rps", direction=Direction.MAXIMIZE, limits=(Limit.parse(limit),))
        workload = {"model": "llama-3.1-8b", "input_tokens": 512, "output_tokens": 128}
        task = Task(system="vllm", objective=objective, workload=workload, hardware={"gpus": "1xH100"})
        return ServingModel().metrics(Config(tensor_parallel_size=1), task)["capacity_rps"]

    strict, loose = rate("p95_tpot_ms<=10"), rate("p95_tpot_ms<=30")
    assert 0.0 < strict < loose
    assert rate("p95_tpot_ms<=0.1") == 0.0

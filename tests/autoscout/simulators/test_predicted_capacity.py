"""The highest rate that keeps the limits, and the gaps between tokens, as the serving model predicts them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from autoscout.core.config import Config
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.simulators.serving import ServingModel
from autoscout.simulators.serving.calibration import serving_calibration
from autoscout.simulators.serving.capacity import highest
from autoscout.simulators.serving.cost import step_cost
from autoscout.simulators.serving.loop import Bars, EngineLimits, SimulatedRequest, serve
from autoscout.simulators.serving.read import read_deployment, read_serving_task

LOAD = {"model": "llama-3.1-8b", "input_tokens": 1024, "output_tokens": 128}


def task(*limits: str, metric: str = "capacity_rps", **workload: float) -> Task:
    objective = Objective(metric=metric, direction=Direction.MAXIMIZE, limits=tuple(map(Limit.parse, limits)))
    return Task(system="vllm", objective=objective, workload={**LOAD, **workload}, hardware={"gpus": 1, "gpu": "H200"})


@pytest.mark.parametrize("edge", [0.7, 3.0, 20.0, 63.9])
def test_the_highest_rate_is_found_within_a_few_per_cent(edge: float) -> None:
    found = highest(lambda rate: {"rate": rate} if rate <= edge else None, 64.0)
    assert found is not None
    assert 0.93 * edge < found[0] <= edge
    assert found[1] == {"rate": found[0]}, "the metrics are those at that rate"


def test_a_rate_that_nothing_limits_is_the_highest() -> None:
    assert highest(lambda rate: {}, 64.0) == (64.0, {})
    assert highest(lambda rate: None, 64.0) is None


def test_stricter_limits_leave_less_capacity() -> None:
    model, config = ServingModel(), Config(max_num_seqs=256, max_num_batched_tokens=8192)
    loose, strict = (model.metrics(config, task(limit))["capacity_rps"] for limit in ("p95_tpot_ms<=40", "p95_tpot_ms<=12"))
    assert 0.0 < strict < loose
    at = model.metrics(config, task("p95_tpot_ms<=12"))
    assert at["p95_tpot_ms"] <= 12.0
    assert model.metrics(config, task("p95_tpot_ms<=0.01"))["capacity_rps"] == 0.0


def test_small_steps_keep_gaps_even() -> None:
    """A prompt in a step lengthens the gap of every answer in it, which the mean over a request hides."""
    model = ServingModel()
    there = task(metric="output_throughput", request_rate=24.0)
    small, large = (model.metrics(Config(max_num_seqs=256, max_num_batched_tokens=tokens), there) for tokens in (512, 8192))
    assert small["p99_itl_ms"] < 0.5 * large["p99_itl_ms"]
    assert large["p99_itl_ms"] > 1.5 * large["p99_tpot_ms"]
    assert large["mean_itl_ms"] == pytest.approx(large["mean_tpot_ms"], rel=0.1)
    tight = task("p99_itl_ms<=40")
    few, many = (model.metrics(Config(max_num_seqs=256, max_num_batched_tokens=tokens), tight)["capacity_rps"] for tokens in (1024, 8192))
    assert few > 1.5 * many


def test_all_at_once_is_a_load() -> None:
    found = ServingModel().metrics(Config(), task(metric="output_throughput", requests=64))
    assert found["output_throughput"] > 0.0


@pytest.mark.parametrize("order", [(256, 1024), (1024, 256)])
def test_a_capacity_does_not_depend_on_what_was_asked_before(order: tuple[int, int]) -> None:
    """More requests at once than 256 are another question, since a probe sends more than that."""
    asked = task("p95_ttft_ms<=500", input_tokens=1024, output_tokens=256)
    model = ServingModel()
    together = {seqs: model.metrics(Config(max_num_seqs=seqs), asked)["capacity_rps"] for seqs in order}
    alone = {seqs: ServingModel().metrics(Config(max_num_seqs=seqs), asked)["capacity_rps"] for seqs in order}
    assert together == alone
    assert alone[256] < alone[1024]


BATCHING = {
    "max_num_seqs": (2, 8, 40, 256, 1024),
    "max_num_batched_tokens": (256, 1500, 8192, 32768),
    "gpu_memory_utilization": (0.22, 0.25, 0.3, 0.9),
    "enable_chunked_prefill": (True, False),
}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("asked", [{}, {"request_rate": 30.0}, {"concurrency": 48}])
def test_what_earlier_runs_did_not_use_up_changes_nothing(engine: str, asked: dict[str, Any]) -> None:
    """A simulator that has answered many neighbours says what a fresh one says."""
    draw = random.Random(0)
    metric = "capacity_rps" if not asked else "output_throughput"
    question = task("p95_ttft_ms<=500", "p90_tpot_ms<=25", metric=metric, output_tokens=64, **asked)
    question = Task(system=engine, objective=question.objective, workload=question.workload, hardware=question.hardware)
    configs = [Config({name: draw.choice(values) for name, values in BATCHING.items()}) for _ in range(25)]
    model = ServingModel()
    assert [model.metrics(config, question) for config in configs] == [ServingModel().metrics(config, question) for config in configs]


def test_a_run_that_ends_early_would_have_broken_its_limit() -> None:
    question = task(metric="output_throughput", request_rate=1.0)
    job = read_deployment(Config(), read_serving_task(question)).job
    cost, draw = step_cost(job, serving_calibration().constants), np.random.default_rng(0)
    ended = kept = 0
    for rate in (4.0, 16.0, 24.0, 32.0, 48.0, 96.0):
        arrivals = np.cumsum(draw.exponential(1.0 / rate, size=200)).tolist()
        requests = [SimulatedRequest(input_tokens=1024, output_tokens=64, arrival_s=one) for one in arrivals]
        for limits in (EngineLimits(), EngineLimits(max_requests=16), EngineLimits(cache_tokens=20_000.0)):
            whole = serve(requests, cost, limits)
            first_s, interval_s = np.percentile(whole.first_token_s, 95), np.percentile(whole.interval_s, 95)
            for bound_s in (0.05, 0.2, 1.0):
                # 11 of 200 above a bound put the 95th percentile, between the 11th and the 10th largest, above it
                early = serve(requests, cost, limits, bars=Bars(first_s=bound_s, late_first=10))
                assert early.failed <= (first_s > bound_s)
                assert early.failed >= (np.sum(whole.first_token_s > bound_s) > 10)
                slow = serve(requests, cost, limits, bars=Bars(interval_s=bound_s / 10.0, late_interval=10))
                assert slow.failed <= (interval_s > bound_s / 10.0)
                ended, kept = ended + early.failed + slow.failed, kept + (not early.failed) + (not slow.failed)
    assert ended > 10
    assert kept > 10

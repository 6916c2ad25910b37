"""The highest rate that keeps the limits, and the gaps between tokens, as the serving model predicts them."""

from __future__ import annotations

import pytest

from autoscout.core.config import Config
from autoscout.core.task import Direction, Limit, Objective, Task
from autoscout.simulators.serving import ServingModel
from autoscout.simulators.serving.model import highest

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

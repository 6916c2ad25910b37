from __future__ import annotations

from typing import Any

import pytest

from autoscout.common.derived import derived, price_faults
from autoscout.core.task import Goal, Guard, Limit, Objective, Task


def task(objective: Objective | None = None, **hardware: Any) -> Task:
    return Task(system="toy", objective=objective or Objective(metric="wall_s"), hardware=hardware)


def test_what_a_million_tokens_cost() -> None:
    metrics = {"output_throughput": 1000.0, "total_token_throughput": 5000.0}
    # 1e6 tokens at 1000 a second are 1000 seconds, of two GPUs at 3.6 an hour each
    assert derived(metrics, {}, task(price_per_gpu_hour=3.6), gpus=2) == pytest.approx({"cost_per_million_tokens": 2.0})
    assert derived(metrics, {}, task(price_per_gpu_hour=3.6, gpus="8xA100-80+4xA40"))["cost_per_million_tokens"] == pytest.approx(12.0)
    assert derived(metrics, {}, task(price_per_gpu_hour=3.6))["cost_per_million_tokens"] == pytest.approx(1.0)


def test_energy_is_known_where_the_gpus_report_it() -> None:
    seen = {"gpu_power_w": 500.0, "gpu_energy_j": 9000.0}
    assert derived({"output_throughput": 1000.0}, seen, task()) == {"energy_j": 9000.0, "tokens_per_joule": 2.0}
    assert derived({"wall_s": 3.0}, seen, task()) == {"energy_j": 9000.0}
    assert derived({"output_throughput": 0.0}, {}, task(price_per_gpu_hour=1.0)) == {}


@pytest.mark.parametrize(
    "objective",
    [
        Objective(metric="cost_per_million_tokens"),
        Objective(metric="wall_s", also=(Goal(metric="cost_per_million_tokens"),)),
        Objective(metric="wall_s", limits=(Limit.parse("cost_per_million_tokens<=3"),)),
        Objective(metric="wall_s", guards=(Guard.parse("cost_per_million_tokens<=1.2x"),)),
    ],
)
def test_a_cost_needs_a_price(objective: Objective) -> None:
    (fault,) = price_faults(task(objective))
    assert "--price" in fault.fix
    assert not price_faults(task(objective, price_per_gpu_hour=2))


@pytest.mark.parametrize("price", [0, -1.0, True, "cheap", float("nan")])
def test_a_price_is_a_number(price: object) -> None:
    (fault,) = price_faults(task(price_per_gpu_hour=price))
    assert fault.field == "price_per_gpu_hour"

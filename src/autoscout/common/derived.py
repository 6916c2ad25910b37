"""Metrics that every system gets for free: what its tokens cost, and the energy they take.

They are worked out from what a backend reported and what the executor saw, in one place for all backends, and may be goals, limits
and guards like any other metric.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from autoscout.core.errors import Fault
from autoscout.core.task import Task

PRICE = "price_per_gpu_hour"
"""Entry of a task's hardware: what one GPU costs in an hour, in any currency; of the whole machine where a launch uses no GPU."""
COST, ENERGY, EFFICIENCY = "cost_per_million_tokens", "energy_j", "tokens_per_joule"
DERIVED = (COST, ENERGY, EFFICIENCY)
POWER_CONDITION, ENERGY_CONDITION = "gpu_power_w", "gpu_energy_j"
"""Conditions that an executor records where the GPUs report their power: watts of all GPUs of the launch while they worked, and
joules over the whole launch."""
TOKEN_RATES = ("output_throughput", "output_tokens_per_s", "tokens_per_s", "tokens_per_sec", "tokens_per_second", "total_token_throughput")
"""Metrics that are tokens per second; the first that was reported counts, so generated tokens before all tokens."""


def derived(metrics: Mapping[str, float], conditions: Mapping[str, float], task: Task, gpus: int = 0) -> dict[str, float]:
    """The metrics that follow from others: as many as the price, the load and the hardware allow.

    Args:
        metrics: As the backend reported them.
        conditions: As the executor saw them.
        task: Its hardware may say a price.
        gpus: GPUs of the launch; those of the task's hardware where it did not ask for any.
    """
    results: dict[str, float] = {}
    rate = next((metrics[name] for name in TOKEN_RATES if metrics.get(name, 0.0) > 0.0), None)
    price, energy_j, power_w = task.hardware.get(PRICE), conditions.get(ENERGY_CONDITION), conditions.get(POWER_CONDITION)
    if rate is not None and price is not None:
        per_s = float(price) * (gpus or _gpus(task.hardware.get("gpus")) or 1) / 3600.0
        results[COST] = per_s / rate * 1e6
    if energy_j is not None:
        results[ENERGY] = energy_j
    if rate is not None and power_w:
        results[EFFICIENCY] = rate / power_w
    return {name: value for name, value in results.items() if math.isfinite(value)}


def price_faults(task: Task) -> list[Fault]:
    """What is wrong with the price of a task, or with the lack of one."""
    price, objective = task.hardware.get(PRICE), task.objective
    number = isinstance(price, (int, float)) and not isinstance(price, bool) and math.isfinite(price) and price > 0
    if price is not None and not number:
        return [Fault(where="hardware", field=PRICE, value=repr(price), rule="must be a number above zero")]
    named = (
        [each.metric for each in objective.goals] + [each.metric for each in objective.limits] + [each.metric for each in objective.guards]
    )
    if price is None and COST in named:
        fix = f"Give --price 2.5, or hardware: {{{PRICE}: 2.5}}"
        return [Fault(where="goal", value=COST, rule="what does a GPU cost in an hour?", fix=fix)]
    return []


def _gpus(given: object) -> int:
    """How many GPUs `4` or `8xA100-80+4xA40` are."""
    if isinstance(given, int):
        return int(given)
    return sum(int(count) for count in re.findall(r"(?:^|\+)\s*(\d{1,6})\s*x", str(given or "")))


__all__ = ["COST", "DERIVED", "EFFICIENCY", "ENERGY", "ENERGY_CONDITION", "POWER_CONDITION", "PRICE", "derived", "price_faults"]

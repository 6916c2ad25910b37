"""The highest rate of requests that keeps limits: a bound in closed form, and the search below it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from autoscout.simulators.serving.cost import step_cost
from autoscout.simulators.serving.job import ServingConstants
from autoscout.simulators.serving.read import ServingTask, SimulatedDeployment
from autoscout.simulators.serving.step import prefill_token_s, running_requests, token_interval_s

MOST_BUSY = 256
"""Requests in flight of a server that is as busy as it can be."""
RATES_PER_DOUBLING = 32
"""Rates that are tried are powers of 2 ** (1 / 32), two per cent apart: deployments that differ in little try the same ones."""
LARGE_STEP = RATES_PER_DOUBLING // 2
DOUBLINGS = 8
"""A rate below the bound by more than this counts as none."""


def busy_rate(deployment: SimulatedDeployment, reading: ServingTask, constants: ServingConstants) -> float:
    """Requests per second with as many in flight as a limit of the time between tokens allows, in closed form.

    No rate within the limits passes it by much. 0 where not even one request keeps the limit.
    """
    bound_s = min((limit / 1e3 for name, limit in reading.limits.items() if "tpot" in name or "itl" in name), default=math.inf)
    felt = replace(constants, together=0.0, lockstep=0.0)
    rate, flight = 0.0, min(deployment.limits.max_requests, MOST_BUSY)
    while flight >= 1 and not rate:
        job = replace(deployment.job, batch=float(flight))
        running = float(running_requests(job, deployment.memory_share))
        # prompts that are computed elsewhere cost nothing here
        at = replace(job, batch=running, input_tokens=1.0) if deployment.prompts is not None else replace(job, batch=running)
        interval_s = float(token_interval_s(at, felt))
        rate = deployment.replicas * running / (reading.output_tokens * interval_s) if interval_s <= bound_s else 0.0
        flight = flight * 3 // 4
    if deployment.prompts is None:
        return rate
    alone = deployment.prompts
    prompt_s = reading.input_tokens * float(prefill_token_s(alone.job, constants)) + float(step_cost(alone.job, constants).eager_s)
    return min(rate, alone.replicas / prompt_s)


def highest(probe: Callable[[float], dict[str, float] | None], top: float) -> tuple[float, dict[str, float]] | None:
    """The highest rate up to `top` for which `probe` has an answer, within a few per cent, and the answer; None where none has.

    >>> found = highest(lambda rate: {"x": rate} if rate <= 20 else None, 64.0)
    >>> found is not None and 19 < found[0] <= 20
    True
    """
    last = math.floor(RATES_PER_DOUBLING * math.log2(top) + 1e-9)
    lowest = last - DOUBLINGS * RATES_PER_DOUBLING

    def at(place: int) -> tuple[float, dict[str, float]] | None:
        rate = 2.0 ** (place / RATES_PER_DOUBLING)
        values = probe(rate) if place <= last else None
        return None if values is None else (rate, values)

    # down from the bound in steps that double, then halve what is left
    place = last // LARGE_STEP * LARGE_STEP
    step, best = LARGE_STEP, at(place)
    while best is None:
        place -= step
        if place < lowest:
            return None
        best = at(place)
        step = step if best is not None else 2 * step
    while step > 1:
        step //= 2
        answer = at(place + step)
        if answer is not None:
            place, best = place + step, answer
    return best


__all__ = ["MOST_BUSY", "busy_rate", "highest"]

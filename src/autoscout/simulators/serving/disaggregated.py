"""Prompts and answers on GPUs of their own: two batching loops, and the cache that travels between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autoscout.simulators.serving.cost import StepCost
from autoscout.simulators.serving.loop import EngineLimits, Served, SimulatedRequest, serve

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ServingPool:
    """Replicas that do the same."""

    cost: StepCost
    limits: EngineLimits
    replicas: int


def serve_apart(requests: Sequence[SimulatedRequest], prompts: ServingPool, answers: ServingPool, travel_s: float) -> Served:
    """Serve requests at their arrival times; each cache takes `travel_s` from one pool to the other. Requests take turns at replicas."""
    count = len(requests)
    arrivals = np.array([request.arrival_s for request in requests])
    short = [replace(request, output_tokens=1) for request in requests]
    first_s, _, _ = _pooled(short, prompts, list(range(count)))
    ready_s = arrivals + first_s + travel_s
    order = np.argsort(np.where(np.isfinite(ready_s), ready_s, np.inf), kind="stable").tolist()
    reached = [number for number in order if np.isfinite(ready_s[number])]
    decoding = replace(answers, limits=replace(answers.limits, cached=True), cost=replace(answers.cost, first_s=0.0))
    decodes = [replace(request, arrival_s=float(ready_s[number])) for number, request in enumerate(requests)]
    _, more_s, gaps = _pooled(decodes, decoding, reached)
    total_s = ready_s + more_s - arrivals
    outputs = np.array([float(request.output_tokens) for request in requests])
    good = np.isfinite(total_s)
    return Served(
        first_token_s=first_s + travel_s,
        interval_s=np.where(outputs > 1.0, more_s / np.maximum(1.0, outputs - 1.0), np.nan),
        total_s=total_s,
        gaps_s=gaps[0],
        gap_tokens=gaps[1],
        finished_s=float(np.max((arrivals + total_s)[good], initial=0.0)),
        preemptions=0,
        output_tokens=int(outputs[good].sum()),
        outputs=outputs,
    )


def _pooled(requests: Sequence[SimulatedRequest], pool: ServingPool, order: Sequence[int]) -> tuple[Vector, Vector, tuple[Vector, Vector]]:
    """(first token, end) of each request from its arrival, and gaps between tokens; nan where it was not served."""
    first_s, end_s = np.full(len(requests), np.nan), np.full(len(requests), np.nan)
    gaps, tokens = [np.zeros(0)], [np.zeros(0)]
    for replica in range(pool.replicas):
        mine = list(order[replica :: pool.replicas])
        if not mine:
            continue
        served = serve([requests[number] for number in mine], pool.cost, pool.limits)
        first_s[mine], end_s[mine] = served.first_token_s, served.total_s
        gaps.append(served.gaps_s)
        tokens.append(served.gap_tokens)
    return first_s, end_s, (np.concatenate(gaps), np.concatenate(tokens))


__all__ = ["ServingPool", "serve_apart"]

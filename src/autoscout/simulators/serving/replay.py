"""The batching loop over the rows of a table: what clients in a closed loop would have seen, with given constants."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from autoscout.core import seeds
from autoscout.simulators.serving.cost import step_cost
from autoscout.simulators.serving.job import KEPT_SHARE, PROMPTS_FIRST, ServingConstants, ServingJob
from autoscout.simulators.serving.loop import EngineLimits, SimulatedRequest, serve
from autoscout.simulators.serving.step import cache_tokens

ROUNDS = 6
"""Requests per client: benchmark tools send a few to ten; all begin at once, and of that beginning the mean keeps a part."""


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """Means over the requests of each row, in seconds."""

    first_token_s: NDArray[np.float64]
    interval_s: NDArray[np.float64]


def replay(job: ServingJob, constants: ServingConstants) -> Replayed:
    """Serve each row of a job of arrays: `batch` clients per replica, the engine's usual limits."""
    rows = [_row(ServingJob(**values), constants) for values in _rows(job)]
    return Replayed(first_token_s=np.array([one[0] for one in rows]), interval_s=np.array([one[1] for one in rows]))


def _rows(job: ServingJob) -> list[dict[str, float]]:
    columns = {item.name: np.asarray(getattr(job, item.name), dtype=float).tolist() for item in fields(ServingJob)}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _row(job: ServingJob, constants: ServingConstants) -> tuple[float, float]:
    clients = max(1, round(job.batch))
    capacity = float(cache_tokens(job))
    if capacity < job.input_tokens + job.output_tokens:  # the run exists: its weights or cache must be smaller than we think
        capacity = math.inf
    engine = int(job.engine)
    limits = EngineLimits(max_requests=clients, cache_tokens=capacity, kept_share=KEPT_SHARE[engine], mixed=not PROMPTS_FIRST[engine])
    draw = seeds.stream(0, "replay")
    lengths = draw.uniform(1.0 - job.length_spread, 1.0 + job.length_spread, size=(max(8, ROUNDS * clients), 2))
    inputs, outputs = (
        np.maximum(1, lengths[:, 0] * job.input_tokens).astype(int),
        np.maximum(2, lengths[:, 1] * job.output_tokens).astype(int),
    )
    requests = [
        SimulatedRequest(input_tokens=one, output_tokens=other) for one, other in zip(inputs.tolist(), outputs.tolist(), strict=True)
    ]
    served = serve(requests, step_cost(job, constants), limits, clients)
    return float(np.nanmean(served.first_token_s)), float(np.nanmean(served.interval_s))


__all__ = ["Replayed", "replay"]

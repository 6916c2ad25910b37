"""Time of decode steps and of prefill, capacity of the cache, and steady-state latency under a closed loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscout.simulators.serving.cost import StepCost, step_cost
from autoscout.simulators.serving.job import PROMPTS_FIRST, Array, ServingConstants, ServingJob


@dataclass(frozen=True, kw_only=True)
class DecodeTime:
    """Seconds of one decode step of a replica, split; the parts add up to `total_s`."""

    total_s: Array
    weights_s: Array  # reading weights, or computing, whichever is longer
    experts_s: Array
    cache_s: Array
    communication_s: Array
    host_s: Array


def decode_step(job: ServingJob, constants: ServingConstants, batch: Array | None = None, context: Array | None = None) -> DecodeTime:
    """One step in which every one of `batch` requests (per attention replica) gets one token at a mean `context`."""
    count = job.batch if batch is None else batch
    length = job.input_tokens + job.output_tokens / 2.0 if context is None else context
    return _decode_step(step_cost(job, constants), count, length)


def _decode_step(cost: StepCost, count: Array, length: Array) -> DecodeTime:
    tokens = count * cost.replicas
    # That ranks meet more or fewer experts than others in a step is left out: the measured runs show nothing of it.
    touched = 1.0 - (1.0 - cost.chosen_share) ** tokens
    weights_s = np.maximum(cost.dense_read_s, cost.answers_s(count))
    experts_s = np.maximum(cost.expert_read_s * touched, cost.expert_token_s * tokens)
    cache_s = count * length * cost.cache_token_s
    communication_s = cost.reduce_s + count * cost.traffic_s
    host_s = cost.host_s + count * cost.request_s
    return DecodeTime(
        total_s=weights_s + experts_s + cache_s + communication_s + host_s,
        weights_s=weights_s,
        experts_s=experts_s,
        cache_s=cache_s,
        communication_s=communication_s,
        host_s=host_s,
    )


def prefill_token_s(job: ServingJob, constants: ServingConstants, context: Array | None = None) -> Array:
    """Seconds that one prompt token costs a replica, at half of the prompt's length in front of it."""
    return step_cost(job, constants).prompt_s(job.input_tokens / 2.0 if context is None else context)


def token_interval_s(job: ServingJob, constants: ServingConstants) -> Array:
    """Mean time between output tokens in a closed loop: a decode step plus what it feels of the prompts that replace finished requests."""
    running, cost = running_requests(job), step_cost(job, constants)
    step = _decode_step(cost, running, job.input_tokens + job.output_tokens / 2.0)
    joining = running / job.output_tokens  # requests per step
    carrying = 1.0 - np.exp(-joining)  # share of steps with prompts
    prompts_s = joining * job.input_tokens * cost.prompt_s(job.input_tokens / 2.0)
    # tokens of prompts and of answers that share a step read the weights once
    shared_s = np.where(_prompts_first(job), 0.0, np.minimum(carrying * (step.weights_s + step.experts_s), prompts_s))
    more_s = carrying * cost.eager_s + prompts_s - shared_s
    return step.total_s + more_s * (1.0 - waited_share(job, constants, running))


def waited_share(job: ServingJob, constants: ServingConstants, running: Array) -> Array:
    """Share of the prompts' time that requests spend before their first token, not between later ones.

    A request never waits for its own prompt between two tokens. Requests of equal length finish together and start together ever after:
    where an engine stops decoding for prompts, each waits on average for half of the others before its first token.
    """
    together = np.where(_prompts_first(job), np.maximum(2.0 * constants.lockstep * running - 1.0, 1.0), constants.together)
    together = np.where(np.asarray(job.length_spread) > 0.0, 1.0, np.minimum(running, together))
    return np.minimum(1.0, (1.0 + together) / (2.0 * running))


def _prompts_first(job: ServingJob) -> Array:
    return np.asarray(PROMPTS_FIRST)[np.asarray(job.engine, dtype=np.intp)]


def running_requests(job: ServingJob, memory_share: Array = 0.9) -> Array:
    """Requests that run at once in a replica: those in flight, as far as the cache holds them; the others wait.

    Where not one request fits, the weights must be smaller than we think (the run exists), and nothing is held back.
    """
    room = cache_tokens(job, memory_share) / (job.input_tokens + job.output_tokens / 2.0)
    return np.where(room >= 1.0, np.minimum(room, job.batch), job.batch)


def cache_tokens(job: ServingJob, memory_share: Array = 0.9, fixed_bytes: float = 2.5e9) -> Array:
    """Tokens of cache that one attention replica can hold; 0 where not even the weights fit."""
    ranks = job.tp * job.pp
    experts = job.moe_layers * job.experts * job.expert_params * job.expert_bytes / (job.moe_tp * job.moe_ep * job.pp)
    weights = job.dense_params * job.weight_bytes / ranks + experts
    free = job.memory_bytes * memory_share - weights - fixed_bytes
    each = job.kv_width * job.kv_bytes * job.attention_layers / (np.minimum(job.tp, job.kv_shards) * job.pp)
    return np.maximum(0.0, free / each)


__all__ = [
    "DecodeTime",
    "cache_tokens",
    "decode_step",
    "prefill_token_s",
    "running_requests",
    "token_interval_s",
    "waited_share",
]

"""Time of decode steps and of prefill, capacity of the cache, and steady-state latency under a closed loop."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscout.simulators.serving.job import PROMPTS_FIRST, Array, ServingConstants, ServingJob


@dataclass(frozen=True, kw_only=True)
class DecodeTime:
    """Seconds of one decode step of a replica, split; the parts add up to `total_s`."""

    total_s: Array
    weights_s: Array  # reading weights and cache, or computing, whichever is longer
    experts_s: Array
    cache_s: Array
    communication_s: Array
    host_s: Array


def engine_s(job: ServingJob, constants: ServingConstants) -> Array:
    """Host time per step of the engine."""
    return np.choose(np.asarray(job.engine, dtype=np.intp), [constants.vllm_s, constants.sglang_s, constants.trtllm_s])


def decode_step(job: ServingJob, constants: ServingConstants, batch: Array | None = None, context: Array | None = None) -> DecodeTime:
    """One step in which every one of `batch` requests (per attention replica) gets one token at a mean `context`."""
    count = job.batch if batch is None else batch
    length = job.input_tokens + job.output_tokens / 2.0 if context is None else context
    rate = job.memory_rate * constants.memory_scale
    linear = _linear_flops(job, constants) * constants.decode_scale
    dense_s = np.maximum(
        job.dense_params * job.weight_bytes / (job.tp * job.pp) / (rate * narrow_share(job.weight_bytes, constants)),
        2.0 * job.dense_params * count / (job.tp * job.pp) / linear,
    )
    cache = count * length * job.kv_width * job.kv_bytes * job.attention_layers / (np.minimum(job.tp, job.kv_shards) * job.pp)
    cache_s = cache / (job.memory_rate * constants.cache_scale)
    experts_s: Array = 0.0
    host_s = job.layers * constants.layer_s + engine_s(job, constants) + count * constants.request_s
    if np.any(job.experts):
        experts_rate = rate * constants.expert_scale * narrow_share(job.expert_bytes, constants)
        experts_s = _experts_s(job, constants, count * job.attention_dp, experts_rate, linear)
        host_s = host_s + job.moe_layers * constants.expert_layer_s
    communication_s = _communication_s(job, constants, count)
    # with pipeline stages a token passes all of them, one after another
    device_s = (dense_s + cache_s + experts_s) * job.pp
    return DecodeTime(
        total_s=device_s + communication_s + host_s,
        weights_s=dense_s * job.pp,
        experts_s=experts_s * job.pp,
        cache_s=cache_s * job.pp,
        communication_s=communication_s,
        host_s=host_s,
    )


def prefill_token_s(job: ServingJob, constants: ServingConstants, context: Array | None = None) -> Array:
    """Seconds that one prompt token costs a replica, at half of the prompt's length in front of it."""
    length = job.input_tokens / 2.0 if context is None else context
    linear = _linear_flops(job, constants) * constants.prefill_scale
    ranks = job.tp * job.pp
    attention = 4.0 * length * job.heads * job.head_size * job.attention_layers / ranks
    compute_s = 2.0 * job.dense_params / ranks / linear + attention / (job.flops * constants.attention_share)
    if np.any(job.experts):
        # replicas that share their experts bring their prompts at the same time
        routed = 2.0 * job.moe_layers * job.active_experts * job.expert_params * job.attention_dp / _shards(job)
        compute_s = compute_s + routed / (linear * constants.expert_prompt_scale) * busiest_share(job, constants)
    traffic = np.where(job.tp > 1, 8.0 * job.layers * job.hidden * (job.tp - 1.0) / job.tp, 0.0)
    return compute_s + traffic / (group_rate(job) * constants.prefill_bus_scale)


def token_interval_s(job: ServingJob, constants: ServingConstants) -> Array:
    """Mean time between output tokens in a closed loop: a decode step plus what it feels of the prompts that replace finished requests."""
    running = running_requests(job)
    step = decode_step(job, constants, running)
    joining = running / job.output_tokens  # requests per step
    carrying = 1.0 - np.exp(-joining)  # share of steps with prompts
    prompts_s = joining * job.input_tokens * prefill_token_s(job, constants)
    # tokens of prompts and of answers that share a step read the weights once
    shared_s = np.where(_prompts_first(job), 0.0, np.minimum(carrying * (step.weights_s + step.experts_s), prompts_s))
    more_s = carrying * job.layers * constants.eager_layer_s + prompts_s - shared_s
    return step.total_s + more_s * (1.0 - waited_share(job, constants, running))


def waited_share(job: ServingJob, constants: ServingConstants, running: Array) -> Array:
    """Share of the prompts' time that requests spend before their first token, not between later ones.

    A request never waits for its own prompt between two tokens. Where an engine stops decoding for prompts, requests of equal
    length finish together and start together ever after: on average each waits for half of the others before its first token.
    """
    mixed = (1.0 + np.minimum(running, constants.together)) / (2.0 * running)
    return np.minimum(1.0, np.where(_prompts_first(job), np.maximum(constants.lockstep, 1.0 / running), mixed))


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


def _linear_flops(job: ServingJob, constants: ServingConstants) -> Array:
    return (job.flops + constants.reduced_share * (job.gemm_flops - job.flops)) * job.gemm_share


def _experts_s(job: ServingJob, constants: ServingConstants, tokens: Array, rate: Array, linear: Array) -> Array:
    """Weights of the experts that some token of the step meets, or their arithmetic, where the busiest rank sets the pace.

    That ranks meet more or fewer experts than others in a step is left out: the measured runs show nothing of it.
    """
    touched = 1.0 - (1.0 - job.active_experts / np.maximum(job.experts, 1.0)) ** tokens
    read_s = job.moe_layers * job.experts * touched * job.expert_params * job.expert_bytes / _shards(job) / rate
    compute_s = 2.0 * job.moe_layers * tokens * job.active_experts * job.expert_params / _shards(job) / linear
    return np.where(job.experts > 0, np.maximum(read_s, compute_s * busiest_share(job, constants)), 0.0)


def narrow_share(weight_bytes: Array, constants: ServingConstants) -> Array:
    """Of the memory rate that weights of this width reach."""
    return np.where(np.asarray(weight_bytes) < 2.0, constants.reduced_memory, 1.0)


def busiest_share(job: ServingJob, constants: ServingConstants) -> Array:
    """Arithmetic of the busiest rank as a multiple of the mean: popular experts sit somewhere."""
    return 1.0 + constants.imbalance * np.log2(np.maximum(1.0, job.moe_ep))


def _shards(job: ServingJob) -> Array:
    return np.maximum(1.0, job.moe_tp * job.moe_ep) * job.pp


def group_rate(job: ServingJob) -> Array:
    """Bytes per second of a tensor-parallel group's collectives: those of the network where it is wider than a node."""
    return np.where(job.tp > job.node_gpus, job.nic_rate, job.bus_rate)


def group_delay(job: ServingJob) -> Array:
    """How much longer a small collective takes to start where it leaves the node."""
    return np.where(job.tp > job.node_gpus, 3.0, 1.0)


def _communication_s(job: ServingJob, constants: ServingConstants, count: Array) -> Array:
    bus = group_rate(job) * constants.bus_scale
    message = 2.0 * count * job.hidden
    start_s = constants.latency_s * np.log2(np.maximum(2.0, job.tp)) * group_delay(job)
    reduces = 2.0 * job.layers * (start_s + 2.0 * (job.tp - 1.0) / job.tp * message / bus)
    wide = np.where(job.gpus > job.node_gpus, job.nic_rate, bus)
    exchange = 2.0 * job.moe_layers * (constants.latency_s * 2.0 + message * np.maximum(1.0, job.active_experts) / wide)
    exchange = np.where((job.attention_dp > 1) & (job.moe_layers > 0), exchange, 0.0)
    hops = (job.pp - 1.0) * (constants.latency_s * 3.0 + message / bus)
    return np.where(job.tp > 1, reduces, 0.0) + exchange + hops


__all__ = [
    "DecodeTime",
    "busiest_share",
    "cache_tokens",
    "decode_step",
    "engine_s",
    "group_delay",
    "group_rate",
    "narrow_share",
    "prefill_token_s",
    "running_requests",
    "token_interval_s",
    "waited_share",
]

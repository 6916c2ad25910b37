"""What one engine step costs, by part: the only place that knows, for the closed form (arrays) and for the batching loop (numbers)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autoscout.simulators.serving.job import ENGINES, Array, ServingConstants, ServingJob

MAX_NARROW_ROWS = 256
"""Tokens of a step up to which products have too few rows to reach the rate of long prompts: two tiles of 128."""


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """One replica; seconds, or seconds per token; numbers or arrays."""

    dense_read_s: Array
    dense_token_s: Array  # of up to FEW_ROWS tokens that are answered in a step
    large_token_s: Array  # of those beyond
    prompt_token_s: Array  # linear layers, prompts; the head is needed for the last token of each only
    cache_token_s: Array
    attention_s: Array  # per prompt token and token before it
    expert_read_s: Array  # all routed experts
    expert_token_s: Array
    expert_prompt_s: Array
    chosen_share: Array  # of the experts, one token
    replicas: Array  # attention replicas whose tokens meet in the experts
    reduce_s: Array  # start of all collectives of a step
    traffic_s: Array
    prompt_traffic_s: Array
    host_s: Array
    eager_s: Array  # more of it in steps that carry prompts
    request_s: Array
    first_s: Array = 0.0  # of a request's way to its first step and back, next to the steps of others

    def plain(self) -> StepCost:
        """These costs as plain numbers, for a loop; fields must be single values."""
        return StepCost(**{item.name: float(getattr(self, item.name)) for item in fields(self)})

    def step_s(self, decoding: int, context: float, prompt_tokens: int, prompt_work: float) -> float:
        """Seconds of a step: `decoding` requests over `context` cached tokens, `prompt_tokens` with `prompt_work` token pairs."""
        tokens = decoding + prompt_tokens
        compute_s = self.answers_s(decoding) + prompt_tokens * self.prompt_token_s
        total_s = max(self.dense_read_s, compute_s) + context * self.cache_token_s + prompt_work * self.attention_s
        if self.expert_read_s:
            touched = 1.0 - (1.0 - self.chosen_share) ** (tokens * self.replicas)
            compute_s = (decoding * self.expert_token_s + prompt_tokens * self.expert_prompt_s) * self.replicas
            total_s += max(self.expert_read_s * touched, compute_s)
        total_s += self.reduce_s + decoding * self.traffic_s + prompt_tokens * self.prompt_traffic_s
        return float(total_s + self.host_s + (self.eager_s if prompt_tokens else 0.0) + decoding * self.request_s)

    def answers_s(self, count: Array) -> Array:
        """Seconds that linear layers compute for one token of each of `count` requests: products of many rows run as fast as prompts'."""
        few = count if isinstance(count, int) and count <= MAX_NARROW_ROWS else np.minimum(count, MAX_NARROW_ROWS)
        return few * self.dense_token_s + (count - few) * self.large_token_s

    def prompt_s(self, context: Array) -> Array:
        """Seconds that one prompt token costs a replica with `context` tokens in front of it."""
        return self.prompt_token_s + context * self.attention_s + self.expert_prompt_s * self.replicas + self.prompt_traffic_s


def step_cost(job: ServingJob, constants: ServingConstants) -> StepCost:
    """The costs of a job, which may be one of arrays."""
    ranks = job.tp * job.pp
    rate = job.memory_rate * constants.memory_scale
    answers = _linear_flops(job, constants.reduced_share) * constants.decode_scale
    prompts = _linear_flops(job, constants.prompt_reduced_share) * constants.prefill_scale
    shards = np.maximum(1.0, job.moe_tp * job.moe_ep) * job.pp
    busiest = busiest_share(job, constants)
    chosen = 2.0 * job.moe_layers * job.active_experts * job.expert_params / shards * busiest
    routed = job.moe_layers * job.experts * job.expert_params * job.expert_bytes
    expert_rate = rate * constants.expert_scale * narrow_share(job.expert_bytes, constants)
    bytes_each = 8.0 * job.layers * job.hidden * (job.tp - 1.0) / job.tp  # two all-reduces of 2-byte numbers, there and back
    reduce_s = 2.0 * job.layers * constants.latency_s * np.log2(np.maximum(job.tp, 1.0)) * group_delay(job)
    sharing = (job.attention_dp > 1) & (job.moe_layers > 0)
    reduce_s = reduce_s + np.where(sharing, 4.0 * job.moe_layers * constants.latency_s, 0.0)
    bus = group_rate(job)
    hop = 2.0 * job.hidden * (job.pp - 1.0)
    dense = 2.0 * job.dense_params / ranks
    cache_bytes = job.kv_width * job.kv_bytes * job.attention_layers / np.minimum(job.tp, job.kv_shards)
    return StepCost(
        # with pipeline stages a token passes all of them, one after another
        dense_read_s=job.dense_params * job.weight_bytes / ranks / (rate * narrow_share(job.weight_bytes, constants)) * job.pp,
        dense_token_s=dense / answers * job.pp,
        large_token_s=np.minimum(dense / prompts, dense / answers) * job.pp,
        prompt_token_s=(dense - 2.0 * job.head_params / ranks) / prompts,
        cache_token_s=cache_bytes / (job.memory_rate * constants.cache_scale),
        attention_s=4.0 * job.heads * job.head_size * job.attention_layers / ranks / (job.flops * constants.attention_share),
        expert_read_s=routed / shards / expert_rate * job.pp,
        expert_token_s=chosen / answers * job.pp,
        expert_prompt_s=chosen / (prompts * constants.expert_prompt_scale),
        chosen_share=job.active_experts / np.maximum(1.0, job.experts),
        replicas=job.attention_dp,
        reduce_s=reduce_s + (job.pp - 1.0) * constants.latency_s * 3.0,
        traffic_s=(bytes_each + hop) / (bus * constants.bus_scale) + np.where(sharing, exchange_s(job, constants.bus_scale), 0.0),
        prompt_traffic_s=bytes_each / (bus * constants.prefill_bus_scale)
        + np.where(sharing, exchange_s(job, constants.prefill_bus_scale), 0.0),
        host_s=job.layers * (constants.layer_s + job.eager * constants.eager_layer_s)
        + engine_s(job, constants)
        + job.moe_layers * constants.expert_layer_s,
        eager_s=job.layers * (1.0 - job.eager) * constants.eager_layer_s,
        request_s=constants.request_s,
        first_s=_by_engine(job, constants.vllm_first_s, constants.sglang_first_s, constants.trtllm_first_s)
        + job.moe_layers * _by_engine(job, constants.expert_first_s, constants.sglang_expert_first_s, constants.expert_first_s),
    )


def exchange_s(job: ServingJob, scale: float) -> Array:
    """Seconds that one token costs its rank in all layers' way to the experts and back.

    A token goes once to each other rank that holds an expert it chose, however many of them are there; where experts are split over
    ranks instead, to all of those. Between nodes it goes once to each node.
    """
    ranks = np.maximum(1.0, job.moe_ep * job.moe_tp)
    copies = (ranks - 1.0) * _met(np.maximum(1.0, job.moe_ep), job.active_experts)
    nodes = np.maximum(1.0, np.ceil(ranks / job.node_gpus))
    each = 4.0 * job.moe_layers * job.hidden  # 2-byte numbers, there and back
    inside_s = copies * each / (job.bus_rate * scale)
    across_s = (nodes - 1.0) * _met(nodes, job.active_experts) * each / (job.nic_rate * scale)
    return np.maximum(inside_s, across_s)  # both kinds of links carry at once


def _met(options: Array, choices: Array) -> Array:
    """Chance that one of `options` is among `choices` even draws."""
    return 1.0 - (1.0 - 1.0 / options) ** np.maximum(1.0, choices)


def _linear_flops(job: ServingJob, reduced_share: float) -> Array:
    return (job.flops + reduced_share * (job.gemm_flops - job.flops)) * job.gemm_share


def _by_engine(job: ServingJob, *seconds: float) -> Array:
    return np.choose(np.asarray(job.engine, dtype=np.intp) % len(ENGINES), seconds)


def engine_s(job: ServingJob, constants: ServingConstants) -> Array:
    """Host time per step of the engine."""
    return _by_engine(job, constants.vllm_s, constants.sglang_s, constants.trtllm_s)


def narrow_share(weight_bytes: Array, constants: ServingConstants) -> Array:
    """Share of the memory rate that weights of this width reach."""
    return np.where(np.asarray(weight_bytes) < 2.0, constants.reduced_memory, 1.0)


def busiest_share(job: ServingJob, constants: ServingConstants) -> Array:
    """Arithmetic of the busiest rank as a multiple of the mean: popular experts sit somewhere."""
    return 1.0 + constants.imbalance * np.log2(np.maximum(1.0, job.moe_ep))


def group_rate(job: ServingJob) -> Array:
    """Bytes per second of a tensor-parallel group's collectives: those of the network where it is wider than a node."""
    return np.where(job.tp > job.node_gpus, job.nic_rate, job.bus_rate)


def group_delay(job: ServingJob) -> Array:
    """How much longer a small collective takes to start where it leaves the node."""
    return np.where(job.tp > job.node_gpus, 3.0, 1.0)


__all__ = ["StepCost", "exchange_s", "step_cost"]

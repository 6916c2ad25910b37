"""Cost of one engine step as plain numbers: what the batching loop asks thousands of times."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscout.simulators.serving.job import ENGINES, ServingConstants, ServingJob
from autoscout.simulators.serving.step import busiest_share, group_delay, group_rate, narrow_share


@dataclass(frozen=True, kw_only=True)
class StepCost:
    """One replica; seconds, or seconds per token."""

    dense_read_s: float
    dense_token_s: float
    prompt_token_s: float  # linear layers, prompts
    cache_token_s: float
    attention_s: float  # per prompt token and token before it
    expert_read_s: float  # all routed experts
    expert_token_s: float
    expert_prompt_s: float
    chosen_share: float  # of the experts, one token
    replicas: float  # attention replicas whose tokens meet in the experts
    reduce_s: float  # start of all collectives of a step
    traffic_s: float
    prompt_traffic_s: float
    host_s: float
    eager_s: float
    request_s: float

    def step_s(self, decoding: int, context: float, prompt_tokens: int, prompt_work: float) -> float:
        """Seconds of a step: `decoding` requests over `context` cached tokens, `prompt_tokens` with `prompt_work` token pairs."""
        tokens = decoding + prompt_tokens
        token_s = self.prompt_token_s if prompt_tokens > decoding else self.dense_token_s
        total_s = max(self.dense_read_s, tokens * token_s) + context * self.cache_token_s + prompt_work * self.attention_s
        if self.expert_read_s:
            touched = 1.0 - (1.0 - self.chosen_share) ** (tokens * self.replicas)
            token_s = self.expert_prompt_s if prompt_tokens > decoding else self.expert_token_s
            total_s += max(self.expert_read_s * touched, token_s * tokens * self.replicas)
        total_s += self.reduce_s + decoding * self.traffic_s + prompt_tokens * self.prompt_traffic_s
        return total_s + self.host_s + (self.eager_s if prompt_tokens else 0.0) + decoding * self.request_s


def step_cost(job: ServingJob, constants: ServingConstants) -> StepCost:
    """The numbers of one job (fields must be single values)."""
    ranks = job.tp * job.pp
    rate = job.memory_rate * constants.memory_scale
    expert_rate = rate * constants.expert_scale * narrow_share(job.expert_bytes, constants)
    linear = (job.flops + constants.reduced_share * (job.gemm_flops - job.flops)) * job.gemm_share
    shards = max(1.0, job.moe_tp * job.moe_ep) * job.pp
    busiest = busiest_share(job, constants)
    routed = job.moe_layers * job.experts * job.expert_params
    engine_s = (constants.vllm_s, constants.sglang_s, constants.trtllm_s)[int(job.engine) % len(ENGINES)]
    bus = float(group_rate(job))
    message = 8.0 * job.layers * job.hidden * (job.tp - 1.0) / job.tp
    exchange = 4.0 * job.moe_layers * job.hidden * max(1.0, job.active_experts) if job.attention_dp > 1 else 0.0
    reduces_s = 2.0 * job.layers * constants.latency_s * np.log2(job.tp) * group_delay(job) if job.tp > 1 else 0.0
    reduces_s += 4.0 * job.moe_layers * constants.latency_s if job.attention_dp > 1 else 0.0
    host_s = job.layers * constants.layer_s + engine_s + job.moe_layers * constants.expert_layer_s
    active_experts = job.moe_layers * job.active_experts * job.expert_params
    values = {
        "dense_read_s": job.dense_params * job.weight_bytes / ranks / (rate * narrow_share(job.weight_bytes, constants)) * job.pp,
        "dense_token_s": 2.0 * job.dense_params / ranks / (linear * constants.decode_scale) * job.pp,
        "prompt_token_s": 2.0 * job.dense_params / ranks / (linear * constants.prefill_scale),
        "cache_token_s": job.kv_width
        * job.kv_bytes
        * job.attention_layers
        / min(job.tp, job.kv_shards)
        / (job.memory_rate * constants.cache_scale),
        "attention_s": 4.0 * job.heads * job.head_size * job.attention_layers / ranks / (job.flops * constants.attention_share),
        "expert_read_s": routed * job.expert_bytes / shards / expert_rate * job.pp,
        "expert_token_s": 2.0 * active_experts / shards / (linear * constants.decode_scale) * busiest * job.pp,
        "expert_prompt_s": 2.0 * active_experts / shards / (linear * constants.prefill_scale * constants.expert_prompt_scale) * busiest,
        "chosen_share": job.active_experts / max(1.0, job.experts),
        "replicas": float(job.attention_dp),
        "reduce_s": reduces_s + (job.pp - 1.0) * constants.latency_s * 3.0,
        "traffic_s": (message + exchange) / (bus * constants.bus_scale),
        "prompt_traffic_s": (message + exchange) / (bus * constants.prefill_bus_scale),
        "host_s": host_s,
        "eager_s": job.layers * constants.eager_layer_s,
        "request_s": constants.request_s,
    }
    return StepCost(**{name: float(value) for name, value in values.items()})


__all__ = ["StepCost", "step_cost"]

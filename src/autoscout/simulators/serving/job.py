"""What the serving model is asked: model, load, layout, engine and hardware as numbers or arrays that broadcast."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from autoscout.catalog.gpus import PRECISIONS
from autoscout.catalog.models import ModelShape

Array = Any

WEIGHT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5625}  # four bits and their scales
WEIGHT_ONLY = dict.fromkeys(("int4", "int4_wo", "w4a16", "awq", "awq_marlin", "gptq", "gptq_marlin", "bitsandbytes"), 0.5625)
"""Names of formats whose weights are narrow in memory and computed with at 16 bits."""
WEIGHT_ONLY |= {"int8_wo": 1.0, "w8a16": 1.0}
NARROW = {"w8a8": "fp8", "int8": "fp8", "fp8_block": "fp8", "modelopt": "fp8", "modelopt_fp4": "fp4", "w4afp8": "fp8"}
"""Further names of formats that are computed with as they are."""
LENGTH_SPREAD = 0.1
"""Relative variation of the lengths of requests where a task names none: load generators draw them from 0.8 to 1 of the longest."""
ENGINES = ("vllm", "sglang", "trtllm")
PROMPTS_FIRST = (False, True, False)
"""Engines that run waiting prompts in steps of their own, with all decoding at a halt, unless they are told to mix."""
KEPT_SHARE = (0.7, 0.7, 1.0)
"""Share of the tokens still to be written for which the cache keeps room when another request is admitted.

SGLang begins at 0.7, TensorRT-LLM never evicts. vLLM keeps a hundredth of the cache free, and evicts; it is taken to do as SGLang."""


@dataclass(frozen=True, kw_only=True)
class ServingConstants:
    """Fitted to measured serving runs; each has a physical meaning."""

    memory_scale: float = 0.9  # of the rate that memory-bound kernels reach
    reduced_memory: float = 0.9  # of that rate for weights of fewer than 16 bits
    cache_scale: float = 1.0  # of the kernels' rate, attention reading the cache
    decode_scale: float = 0.8  # of the GEMM rate, small batches
    prefill_scale: float = 0.75  # of the GEMM rate, long prompts
    attention_share: float = 0.35  # of the bf16 peak, prefill attention
    latency_s: float = 8e-6  # one small collective
    bus_scale: float = 0.8  # of the rate that large collectives reach, decode steps
    prefill_bus_scale: float = 0.4  # the same for prompts: activations of whole chunks, not overlapped
    layer_s: float = 1.2e-5  # launch and gaps per layer and step
    eager_layer_s: float = 3e-5  # more of it in steps that carry prompts: no CUDA graph fits them
    vllm_s: float = 1.5e-3  # scheduling and sampling per step
    sglang_s: float = 1.2e-3
    trtllm_s: float = 5e-4
    request_s: float = 1e-5  # host time per request and step: scheduling, sampling, detokenising
    expert_scale: float = 0.7  # of the memory rate for routed experts' weights
    expert_prompt_scale: float = 0.7  # of the GEMM rate of prompts, routed experts: their rows are spread over many small matrices
    imbalance: float = 0.3  # more arithmetic of the busiest rank with every doubling of expert parallelism
    expert_layer_s: float = 2e-5  # routing, permuting, per MoE layer and step
    reduced_share: float = 0.6  # of the nominal gain of fp8/fp4 GEMMs, answers
    prompt_reduced_share: float = 0.6  # the same for prompts: large products, whose casts are a smaller part
    vllm_first_s: float = 0.0  # of a request's way to its first step and back: tokenising, queues between processes, streaming
    sglang_first_s: float = 0.0
    trtllm_first_s: float = 0.0
    expert_first_s: float = 0.0  # more of it per MoE layer: the host launches a step of prompts kernel by kernel
    sglang_expert_first_s: float = 0.0  # the same with SGLang, which holds up decoding for prompts
    together: float = 4.0  # requests that start in the same moment, engines that mix prompts into decode steps
    lockstep: float = 0.5  # of the prompts' time that is waited for before a first token, engines that stop decoding for prompts

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All constants, in order."""
        return tuple(item.name for item in fields(cls))


@dataclass(frozen=True, kw_only=True)
class ServingJob:
    """One replica under load; n of them where fields are arrays."""

    layers: Array
    hidden: Array
    heads: Array
    head_size: Array
    dense_params: Array  # everything but routed experts and the input embedding
    head_params: Array  # of those, the output head
    expert_params: Array  # of one expert in one layer
    experts: Array
    active_experts: Array
    moe_layers: Array
    active_params: Array  # met by one token, without the input embedding
    kv_width: Array  # cache elements per token and attending layer
    attention_layers: Array
    kv_shards: Array  # over how many tensor-parallel ranks the cache can be split

    weight_bytes: Array
    expert_bytes: Array  # per weight of a routed expert
    kv_bytes: Array
    tp: Array
    pp: Array
    attention_dp: Array
    moe_tp: Array
    moe_ep: Array
    engine: Array  # place in ENGINES

    input_tokens: Array
    output_tokens: Array
    batch: Array  # requests in flight per attention replica
    eager: Array = 0.0  # 1 where no step runs as a CUDA graph
    length_spread: Array = LENGTH_SPREAD  # lengths vary by this share around the mean

    gemm_flops: Array
    flops: Array
    gemm_share: Array
    memory_rate: Array
    memory_bytes: Array
    bus_rate: Array
    node_gpus: Array
    nic_rate: Array

    @property
    def gpus(self) -> Array:
        return self.tp * self.pp * self.attention_dp


def model_serving_fields(shape: ModelShape) -> dict[str, float]:
    """The part of a job that a model fills in."""
    names = ("layers", "hidden", "heads", "head_size", "experts", "active_experts", "moe_layers", "kv_width", "attention_layers")
    routed = shape.moe_layers * shape.experts * shape.expert_params
    embedding = shape.vocab * shape.hidden if not shape.tied else 0
    latent = shape.kv_width != 2 * shape.kv_heads * shape.head_size
    return {
        **{name: float(getattr(shape, name)) for name in names},
        "dense_params": float(shape.parameters - routed - embedding),
        "head_params": float(shape.vocab * shape.hidden),
        "expert_params": float(shape.expert_params if shape.experts else 0),
        "active_params": float(shape.active_parameters - embedding),
        "kv_shards": 1.0 if latent else float(shape.kv_heads),
    }


def precision_named(word: str) -> str | None:
    """The format that a name means: `bf16`, `fp8`, `fp4`, or a weight-only one by its name; None = unknown.

    >>> precision_named("FP8_block"), precision_named("awq"), precision_named("fp9")
    ('fp8', 'awq', None)
    """
    name = word.lower().replace("-", "_")
    if name in ("auto", "none", "half", ""):
        return "bf16"
    if name in WEIGHT_ONLY:
        return name
    parts = (("w4a16", "int4"), ("fp4", "fp4"), ("w4a8", "fp4"), ("fp8", "fp8"), ("int4", "int4"))  # in names of many engines
    return NARROW.get(name) or PRECISIONS.get(name) or next((kind for part, kind in parts if part in name), None)


def bytes_per_weight(precision: str) -> float:
    """Bytes that one weight takes in a precision.

    >>> bytes_per_weight("fp8"), bytes_per_weight("awq")
    (1.0, 0.5625)
    """
    name = precision_named(precision) or "bf16"
    return WEIGHT_ONLY.get(name) or WEIGHT_BYTES[name]


__all__ = [
    "ENGINES",
    "KEPT_SHARE",
    "LENGTH_SPREAD",
    "PROMPTS_FIRST",
    "Array",
    "ServingConstants",
    "ServingJob",
    "bytes_per_weight",
    "model_serving_fields",
    "precision_named",
]

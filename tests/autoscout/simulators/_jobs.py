"""Jobs with round numbers, so that times can be worked by hand."""

from __future__ import annotations

from typing import Any

from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import ParallelLayout, TrainingJob

PLAIN = TrainingConstants(
    gemm_scale=1.0,
    tile_half=0.0,
    inner_half=0.0,
    launch_s=0.0,
    layer_gap_s=0.0,
    head_host_s=0.0,
    attention_share=1.0,
    element_bytes=0.0,
    norm_bytes=0.0,
    micro_host_s=0.0,
    layer_host_s=0.0,
    host_skew=0.0,
    step_host_s=0.0,
    bus_scale=1.0,
    nic_share=1.0,
    nic_latency_s=0.0,
    dp_overlap=0.0,
    optimizer_bytes=0.0,
)
"""No losses at all: only arithmetic and links are left."""


def job(layout: ParallelLayout | None = None, **changes: Any) -> TrainingJob:
    """Four layers of hidden size 1024 on GPUs with 1e12 FLOP/s, endless memory rate, 1e9 bytes/s between them."""
    values: dict[str, Any] = {
        "layers": 4.0,
        "hidden": 1024.0,
        "heads": 8.0,
        "kv_heads": 8.0,
        "head_size": 128.0,
        "ffn": 4096.0,
        "ffn_matrices": 2.0,
        "vocab": 1024.0,
        "tied": 1.0,
        "attention_params": 4.0 * 1024 * 1024,
        "experts": 0.0,
        "active_experts": 0.0,
        "expert_ffn": 0.0,
        "shared_ffn": 0.0,
        "moe_layers": 0.0,
        "sequence": 1024.0,
        "global_batch": 8.0,
        "layout": layout or ParallelLayout(),
        "gemm_flops": 1e12,
        "flops": 1e12,
        "gemm_share": 1.0,
        "memory_rate": 1e18,
        "memory_bytes": 80e9,
        "multiprocessors": 100.0,
        "node_gpus": 8.0,
        "bus_rate": 1e9,
        "bus_latency_s": 0.0,
        "nic_rate": 1e8,
    }
    return TrainingJob(**{**values, **changes})


LINEAR_FLOP = 2 * 1024 * 12 * 1024**2
"""Of one layer's matrices, forward, one sequence of 1024 tokens: 12 h² weights."""
ATTENTION_FLOP = 2 * 1024 * 1024 * 1024
"""Scores and values, causal half, one sequence."""
LOGITS_FLOP = 2 * 1024 * 1024 * 1024

"""The few numbers that say what a software stack makes of the hardware."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, kw_only=True)
class TrainingConstants:
    """Fitted per software stack; each has a physical meaning, and a default that holds without any data."""

    gemm_scale: float = 1.0  # of the rate that bare GEMM kernels reach
    unaligned_cost: float = 2.0  # extra time of a GEMM whose width is odd, as a share: no 16-byte loads
    tile_half: float = 0.1  # tiles per SM at which a GEMM reaches half of its plateau
    inner_half: float = 160.0  # depth that begin and end of a GEMM cost: 149, 183, 144 on A100, H100, L40S by 5,928 kernels
    launch_s: float = 3e-6  # of each product, from one kernel's end to the next one's results: the smallest of 17,827 measured ones
    layer_gap_s: float = 1e-4  # GPU time lost between kernels of one layer's forward
    reduced_share: float = 0.5  # share of the nominal gain of fp8/fp4 over bf16 that linear layers reach
    attention_share: float = 0.5  # of the bf16 peak, fused attention
    score_passes: float = 9.0  # over the score matrix with plain attention kernels
    element_bytes: float = 20.0  # element-wise traffic per token and hidden unit, forward
    norm_bytes: float = 100.0  # more of it where norms are chains of kernels of their own
    layer_host_s: float = 0.9e-3  # host time to launch one layer's forward
    host_skew: float = 0.006  # growth of that time with the square of the ranks that must launch together
    micro_host_s: float = 5e-5  # host time of each micro-batch on every stage: data, schedule, waiting for neighbours
    head_host_s: float = 2e-4  # host time of embedding, head and loss of one micro-batch
    step_host_s: float = 5e-3  # data, logging, optimizer launch
    bus_scale: float = 1.0  # of the rate that bare collectives reach
    nic_share: float = 0.7
    nic_latency_s: float = 1e-5
    ring_share: float = 0.3  # of the hops of a ring over nodes that are felt beyond those of a tree, gathering and scattering
    dp_overlap: float = 0.0  # share of the last backward that hides gradient traffic
    tp_overlap: float = 0.5  # share of a layer's GEMM time that hides tensor-parallel traffic, where it is asked for
    shard_overlap: float = 0.8  # share of compute that hides ZeRO-3 gathers
    optimizer_bytes: float = 53.0  # per parameter
    expert_share: float = 0.75  # grouped GEMM efficiency relative to dense ones
    expert_host_s: float = 0.0  # extra host time of a MoE layer's forward

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All constants, in order."""
        return tuple(item.name for item in fields(cls))


__all__ = ["TrainingConstants"]

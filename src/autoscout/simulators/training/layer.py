"""One transformer layer on one rank: forward costs by kind, then forward, recomputation and backward together."""

from __future__ import annotations

from dataclasses import dataclass

from autoscout.simulators.training.arithmetic import Array, has_any, larger, smaller, sqrt, where
from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import TrainingJob
from autoscout.simulators.training.links import collective_s, exchange_s, send_s

TILE = 128.0 * 128.0
DEPTH_OF_PEAK = 4096.0
"""Depth of the products for which the GPUs' shares of the peak hold."""
EVEN_HEADS = 8.0
UNEVEN_COST = 1.4
"""Attention and its projections with heads that are no multiple of 8 wide: no 16-byte loads, as for an odd vocabulary."""


@dataclass(frozen=True, kw_only=True)
class LayerTime:
    """Seconds per layer and micro-batch on one rank, forward plus backward; the parts add up to `total_s`."""

    total_s: Array
    backward_s: Array  # for hiding gradient traffic
    gemm_s: Array
    attention_s: Array
    elementwise_s: Array
    recompute_s: Array
    host_s: Array
    tensor_parallel_s: Array
    context_parallel_s: Array
    expert_parallel_s: Array
    sharding_s: Array


@dataclass(frozen=True, kw_only=True)
class _Forward:
    gemm_s: Array
    attention_s: Array
    score_s: Array
    elementwise_s: Array
    tensor_s: Array
    context_s: Array
    expert_s: Array
    host_s: Array
    params: Array  # of one rank, for ZeRO-3 gathers


def linear_flops(job: TrainingJob, constants: TrainingConstants) -> Array:
    """Rate of large linear layers; narrow types reach only a part of their nominal gain (casts, scales, cooler kernels)."""
    peak = job.flops + constants.reduced_share * (job.gemm_flops - job.flops)
    return peak * job.gemm_share * constants.gemm_scale


def gemm_s(rows: Array, columns: Array, inner: Array, job: TrainingJob, constants: TrainingConstants) -> Array:
    """Roofline of one matrix product whose compute rate saturates with the number of output tiles per SM."""
    area = larger(rows * columns, 1.0)
    saturation = 1.0 + constants.tile_half * job.multiprocessors * TILE / area
    compute_s = 2.0 * area * inner * _depth(inner, constants) * saturation / linear_flops(job, constants)
    return larger(compute_s, job.layout.number_bytes * (area + (rows + columns) * inner) / job.memory_rate) + constants.launch_s


def _depth(inner: Array, constants: TrainingConstants) -> Array:
    """How much longer a product takes per FLOP than one 4096 deep."""
    return (1.0 + constants.inner_half / inner) / (1.0 + constants.inner_half / DEPTH_OF_PEAK)


def dense_layer(job: TrainingJob, constants: TrainingConstants) -> LayerTime:
    """A layer with an ordinary feed-forward part."""
    lay, tokens = job.layout, job.tokens
    up = (job.ffn_matrices - 1.0) * job.ffn / lay.tp
    ffn_s = gemm_s(tokens, up, job.hidden, job, constants) + gemm_s(tokens, job.hidden, job.ffn / lay.tp, job, constants)
    inner_bytes = 0.4 * _element_bytes(job, constants) * tokens * job.ffn / lay.tp
    params = (job.attention_params + job.ffn_matrices * job.hidden * job.ffn) / lay.tp
    return _total(job, constants, _forward(job, constants, ffn_s, inner_bytes, params))


def moe_layer(job: TrainingJob, constants: TrainingConstants) -> LayerTime:
    """A layer with routed experts, and shared ones where the model has them."""
    lay, tokens = job.layout, job.tokens
    rows = tokens * job.active_experts * lay.expert_row_share
    local = larger(1.0, job.experts / lay.ep)
    inner = larger(1.0, job.expert_ffn / lay.expert_tp)
    tiles = larger(rows * inner / TILE, 1e-9)
    rate = linear_flops(job, constants) * constants.expert_share / (1.0 + constants.tile_half * job.multiprocessors / tiles)
    weights = job.ffn_matrices * job.hidden * inner
    depth = ((job.ffn_matrices - 1.0) * _depth(job.hidden, constants) + _depth(inner, constants)) / job.ffn_matrices
    ffn_s = larger(2.0 * rows * weights * depth / rate, lay.number_bytes * smaller(local, rows) * weights / job.memory_rate)
    width = larger(1.0, job.shared_ffn / lay.tp)
    up_s = gemm_s(tokens, (job.ffn_matrices - 1.0) * width, job.hidden, job, constants)
    shared_s = up_s + gemm_s(tokens, job.hidden, width, job, constants)
    ffn_s = ffn_s + where(job.shared_ffn > 0, shared_s, 0.0)
    moved = lay.number_bytes * (tokens / lay.sequence_spread) * job.active_experts * job.hidden
    routed_s = where(lay.ep > 1, 2.0 * exchange_s(moved, lay.ep, lay.expert_tp, job, constants), 0.0)
    # the ranks that share an expert gather the tokens of all of them before it, and scatter their sums behind it
    shared = collective_s(lay.number_bytes * rows * job.hidden, lay.expert_tp, 2.0, 1.0, job, constants)
    routed_s = routed_s + where(lay.expert_tp > 1, shared, 0.0)
    inner_bytes = (0.4 * _element_bytes(job, constants) * inner + 6.0 * lay.number_bytes * job.hidden) * rows
    params = job.attention_params / lay.tp + local * weights
    exchanges = where(job.shared_ffn > 0, 2.0, 1.0)
    return _total(job, constants, _forward(job, constants, ffn_s, inner_bytes, params, routed_s, exchanges, constants.expert_host_s))


def _element_bytes(job: TrainingJob, constants: TrainingConstants) -> Array:
    """Element-wise traffic per token and hidden unit; the constant is that of 2-byte numbers."""
    return constants.element_bytes * job.layout.number_bytes / 2.0


def _forward(
    job: TrainingJob,
    constants: TrainingConstants,
    ffn_s: Array,
    inner_bytes: Array,
    params: Array,
    routed_s: Array = 0.0,
    exchanges: Array = 2.0,
    host_s: float = 0.0,
) -> _Forward:
    """The forward pass; a tensor-parallel group gathers and scatters its tokens `exchanges` times: for attention, and for what follows."""
    lay, tokens = job.layout, job.tokens
    width = job.heads * job.head_size
    inward = (job.attention_params / job.hidden - width) / lay.tp  # query, key and value matrices side by side
    projections_s = gemm_s(tokens, inward, job.hidden, job, constants) + gemm_s(tokens, job.hidden, width / lay.tp, job, constants)
    pairs = tokens * job.sequence * job.heads / lay.tp
    attention_s = 2.0 * pairs * job.head_size / (job.flops * constants.attention_share)  # causal: half of 4 x pairs
    if has_any(job.head_size % EVEN_HEADS):
        slowed = where(job.head_size % EVEN_HEADS > 0, UNEVEN_COST, 1.0)
        attention_s, projections_s = attention_s * slowed, projections_s * slowed
    norm_bytes = constants.norm_bytes * (1.0 - lay.norm_fused) * lay.number_bytes / 2.0
    plain_bytes = (_element_bytes(job, constants) + norm_bytes) * tokens * job.hidden / lay.sequence_spread
    message = lay.number_bytes * tokens * job.hidden
    tensor_s = where(lay.tp > 1, exchanges * collective_s(message, lay.tp, 2.0, 1.0, job, constants), 0.0)
    matmul_s, tensor_s = _overlap(projections_s + ffn_s, tensor_s, job, constants)
    return _Forward(
        gemm_s=matmul_s,
        attention_s=attention_s,
        score_s=lay.attention * constants.score_passes * lay.number_bytes * pairs / job.memory_rate,
        elementwise_s=(plain_bytes + inner_bytes) / job.memory_rate + constants.layer_gap_s * (1.0 - 0.8 * lay.compiled),
        tensor_s=tensor_s,
        context_s=_ring_s(job, constants, attention_s),
        expert_s=routed_s,
        host_s=(constants.layer_host_s + host_s) * (1.0 + constants.host_skew * (lay.tp - 1.0) ** 2) * (1.0 - 0.8 * lay.compiled),
        params=params,
    )


def _overlap(matmul_s: Array, tensor_s: Array, job: TrainingJob, constants: TrainingConstants) -> tuple[Array, Array]:
    """Tensor-parallel traffic during GEMMs: hidden up to a share of their time, at the price of the SMs it occupies."""
    lay = job.layout
    if not has_any(lay.tp_overlap):
        return matmul_s, tensor_s
    sms = where(lay.tp_comm_sms > 0, lay.tp_comm_sms, 16.0)
    slowed_s = matmul_s / (1.0 - smaller(0.5, sms / job.multiprocessors))
    carried_s = tensor_s * (1.0 + 4.0 / sms) / 1.25  # full rate at 16 SMs
    exposed_s = larger(0.05 * carried_s, carried_s - constants.tp_overlap * slowed_s)
    use = (lay.tp_overlap > 0) & (lay.tp > 1)
    return where(use, slowed_s, matmul_s), where(use, exposed_s, tensor_s)


def _ring_s(job: TrainingJob, constants: TrainingConstants, attention_s: Array) -> Array:
    """Context-parallel ring: keys and values travel while the previous block is worked on."""
    lay = job.layout
    if not has_any(lay.cp > 1):
        return 0.0
    block = 2.0 * lay.number_bytes * job.tokens * job.kv_heads * job.head_size / lay.tp
    hop_s = send_s(block, lay.tp * (lay.cp - 1.0), job, constants)
    return where(lay.cp > 1, (lay.cp - 1.0) * larger(0.1 * hop_s, hop_s - attention_s / lay.cp), 0.0)


def _total(job: TrainingJob, constants: TrainingConstants, one: _Forward) -> LayerTime:
    """Forward, recomputation and backward with the host's floor under the two halves."""
    lay = job.layout
    traffic_s = one.tensor_s + one.context_s + one.expert_s
    forward_s = one.gemm_s + one.attention_s + one.score_s + one.elementwise_s + traffic_s
    core_s = one.attention_s + one.score_s
    recompute_s = lay.recompute * forward_s + lay.selective * (1.0 - lay.recompute) * core_s
    weights = 1.0 + lay.trained_share  # gradients of inputs always, of weights where they are trained
    backward_s = weights * one.gemm_s + 2.5 * one.attention_s + 2.0 * one.score_s + 1.6 * one.elementwise_s + traffic_s
    rest_s = recompute_s + backward_s
    shard_one_s, shard_two_s = _gathers_s(job, constants, one.params, forward_s, rest_s)
    first_s = soft_maximum(forward_s + shard_one_s, one.host_s)
    second_s = soft_maximum(rest_s + shard_two_s, one.host_s * (2.0 + lay.recompute))
    sharding_s = shard_one_s + shard_two_s
    return LayerTime(
        total_s=first_s + second_s,
        backward_s=second_s,
        gemm_s=(1.0 + weights) * one.gemm_s,
        attention_s=3.5 * one.attention_s + 3.0 * one.score_s,
        elementwise_s=2.6 * one.elementwise_s,
        recompute_s=recompute_s,
        host_s=first_s + second_s - forward_s - rest_s - sharding_s,
        tensor_parallel_s=2.0 * one.tensor_s,
        context_parallel_s=2.0 * one.context_s,
        expert_parallel_s=2.0 * one.expert_s,
        sharding_s=sharding_s,
    )


def _gathers_s(job: TrainingJob, constants: TrainingConstants, params: Array, forward_s: Array, rest_s: Array) -> tuple[Array, Array]:
    """ZeRO-3: gather weights before each pass, scatter gradients after it, as far as compute does not hide it."""
    lay = job.layout
    if not has_any(lay.zero >= 3):
        return 0.0, 0.0
    once_s = collective_s(lay.number_bytes * params, lay.dp, 1.0, lay.cp * lay.replica_stride, job, constants)
    sharded = (lay.zero >= 3) & (lay.dp > 1)
    one_s = where(sharded, larger(0.0, once_s - constants.shard_overlap * forward_s), 0.0)
    scatter = lay.gradient_bytes / lay.number_bytes
    return one_s, where(sharded, larger(0.0, (1.0 + scatter) * once_s - constants.shard_overlap * rest_s), 0.0)


def soft_maximum(one: Array, other: Array) -> Array:
    """A maximum without a corner: queues between host and GPU smooth it, and so it can be fitted."""
    most = larger(larger(one, other), 1e-12)
    squared = (smaller(one, other) / most) ** 2
    return most * sqrt(sqrt(sqrt(1.0 + (squared**2) ** 2)))  # the 8-norm, in cheap steps


__all__ = ["LayerTime", "dense_layer", "gemm_s", "linear_flops", "moe_layer", "soft_maximum"]

"""Time of one training step, term by term. Formulas in docs/reference/simulators.md; everything broadcasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from autoscout.simulators.training.arithmetic import Array, ceil, floor, has_any, larger, smaller, where
from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import Stages, TrainingJob
from autoscout.simulators.training.layer import LayerTime, dense_layer, gemm_s, moe_layer
from autoscout.simulators.training.links import BUCKET_HALF_BYTES, collective_s, send_s

ALIGNED = 8.0
"""Half-precision numbers in 16 bytes, the widest load: tensor cores are fed at full speed when rows begin on such a border."""

_LAYER_PARTS = tuple(item.name for item in fields(LayerTime) if item.name not in ("total_s", "backward_s"))


@dataclass(frozen=True, kw_only=True)
class StepTime:
    """Seconds per optimizer step of one rank, split; the parts add up to `total_s`."""

    total_s: Array
    gemm_s: Array
    attention_s: Array
    elementwise_s: Array
    recompute_s: Array
    host_s: Array  # the GPU waits for the host to launch kernels, and per-step constants
    tensor_parallel_s: Array
    context_parallel_s: Array
    expert_parallel_s: Array
    sharding_s: Array  # ZeRO-3 gathers and scatters that compute does not hide
    pipeline_s: Array  # sends between stages
    bubble_s: Array  # fill, drain and uneven stages
    data_parallel_s: Array
    optimizer_s: Array

    def parts(self) -> dict[str, Any]:
        """All parts by name, without the total."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "total_s"}


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Seconds of one micro-batch on one rank, forward plus backward: of a layer, and of the head behind the last one."""

    layer_s: Array
    backward_s: Array  # of a layer, for hiding gradient traffic
    head_s: Array
    micro_s: Array  # of each stage, whatever its layers
    layer_parts: Mapping[str, Array]
    head_parts: Mapping[str, Array]


def passes(job: TrainingJob, constants: TrainingConstants, layer_factor: Array | None = None) -> Passes:
    """What GPUs of one kind take; `layer_factor` is what measured layers take of their predicted time."""
    plain = dense_layer(job, constants)
    layer_s, backward_s = plain.total_s, plain.backward_s
    parts = {name: getattr(plain, name) for name in _LAYER_PARTS}
    if has_any(job.moe_layers):
        routed = moe_layer(job, constants)
        share = job.moe_layers / job.layers
        layer_s = layer_s + (routed.total_s - layer_s) * share
        backward_s = backward_s + (routed.backward_s - backward_s) * share
        parts = {name: value + (getattr(routed, name) - value) * share for name, value in parts.items()}
    if layer_factor is not None:
        layer_s, backward_s = layer_s * layer_factor, backward_s * layer_factor
        parts = {name: value * layer_factor for name, value in parts.items()}
    logits_s = _logits_s(job, constants)
    felt = 1.0 - 0.8 * job.layout.compiled
    host_s = constants.head_host_s * felt
    head_parts = {"gemm_s": logits_s, "host_s": host_s}
    return Passes(
        layer_s=layer_s,
        backward_s=backward_s,
        head_s=logits_s + host_s,
        micro_s=constants.micro_host_s * felt,
        layer_parts=parts,
        head_parts=head_parts,
    )


def step_time(job: TrainingJob, constants: TrainingConstants, layer_factor: Array | None = None) -> StepTime:
    """Predict one optimizer step of a uniform cluster; `layer_factor` is what measured layers take of their predicted time."""
    lay, one = job.layout, passes(job, constants, layer_factor)
    held = job.all_stages
    chain_s = one.layer_s * job.layers + one.head_s + one.micro_s * lay.pp
    largest_s = smaller(held.layers * one.layer_s, chain_s)
    slowest_s = larger(largest_s, floor(job.layers / lay.pp) * one.layer_s + one.head_s) + one.micro_s
    pipeline_s = job.micro_batches * slowest_s + larger(0.0, chain_s - slowest_s) / lay.virtual_stages
    mine = job.micro_batches / lay.pp  # what one rank does of all passes over the layers
    parts = {name: (value * job.layers + one.head_parts.get(name, 0.0)) * mine for name, value in one.layer_parts.items()}
    parts["host_s"] = parts["host_s"] + one.micro_s * job.micro_batches
    ends = {"pipeline_s": sends_s(job, constants, held.micro_batches), **step_ends(job, constants, held, one)}
    return whole_step(pipeline_s, chain_s * mine, parts, ends, constants)


def step_ends(job: TrainingJob, constants: TrainingConstants, held: Stages, one: Passes) -> dict[str, Array]:
    """Seconds after the passes over the layers: gradients that backward and forward do not hide, and the optimizer."""
    params = stage_params(job, held.layers)
    backward_s, forward_s = one.backward_s * held.layers, (one.layer_s - one.backward_s) * held.layers
    return {
        "data_parallel_s": _data_parallel_s(job, constants, params, backward_s, forward_s),
        "optimizer_s": _optimizer_s(job, constants, params),
    }


def whole_step(
    pipeline_s: Array, busy_s: Array, parts: Mapping[str, Array], ends: Mapping[str, Array], constants: TrainingConstants
) -> StepTime:
    """The step of a pipeline in which a rank is busy for `busy_s`, by `parts`, and waits for the rest."""
    return StepTime(
        total_s=pipeline_s + sum(ends.values()) + constants.step_host_s,
        bubble_s=pipeline_s - busy_s,
        **ends,
        **{**parts, "host_s": parts["host_s"] + constants.step_host_s},
    )


def stage_params(job: TrainingJob, stage_layers: Array) -> tuple[Array, Array]:
    """Weights of the heaviest rank: (replicated over data parallelism, routed experts)."""
    lay = job.layout
    moe_share = job.moe_layers / job.layers
    ffn = job.ffn_matrices * job.hidden * (job.ffn * (1.0 - moe_share) + job.shared_ffn * moe_share)
    embedding = job.vocab * job.hidden * where(lay.pp > 1, 1.0, 2.0 - job.tied)
    dense = (stage_layers * (job.attention_params + ffn) + embedding) / lay.tp
    experts = stage_layers * moe_share * job.ffn_matrices * job.hidden * job.expert_ffn * job.experts / (lay.ep * lay.expert_tp)
    return dense, experts


def _logits_s(job: TrainingJob, constants: TrainingConstants) -> Array:
    """Head and loss, forward and backward, one micro-batch."""
    columns = job.head_columns
    matmul_s = gemm_s(job.tokens, columns, job.hidden, job, constants)
    if has_any(columns % ALIGNED):
        # the largest power of two that divides the width, up to 8
        unit = where(columns % 8 == 0, 8.0, where(columns % 4 == 0, 4.0, where(columns % 2 == 0, 2.0, 1.0)))
        matmul_s = matmul_s * (1.0 + constants.unaligned_cost * (ALIGNED / unit - 1.0) / (ALIGNED - 1.0))
    return (2.0 + job.layout.trained_share) * matmul_s + 24.0 * job.tokens * columns / job.memory_rate


def sends_s(job: TrainingJob, constants: TrainingConstants, micro_batches: Array) -> Array:
    """Activations forward and gradients backward over each stage boundary; half of it hides behind other micro-batches."""
    lay = job.layout
    bytes_ = lay.number_bytes * job.tokens * job.hidden / lay.sequence_spread
    once_s = send_s(bytes_, lay.stage_stride, job, constants)
    return where(lay.pp > 1, (0.5 * micro_batches * lay.virtual_stages + lay.pp - 1.0) * 2.0 * once_s, 0.0)


def _data_parallel_s(
    job: TrainingJob, constants: TrainingConstants, params: tuple[Array, Array], backward_s: Array, forward_s: Array
) -> Array:
    """Gradient reduction, by buckets, that the last backward does not hide, nor the first forward where it gathers weights."""
    lay = job.layout
    ranks = lay.dp * lay.cp
    dense, experts = params
    gradient_bytes = dense * lay.gradient_bytes * lay.trained_share
    expert_bytes = experts * lay.gradient_bytes * lay.trained_share
    total_bytes = gradient_bytes + expert_bytes
    bucket = smaller(total_bytes, 1.6e8)
    if has_any(lay.bucket_mb > 0):
        bucket = where(lay.bucket_mb > 0, lay.bucket_mb * 1e6, bucket)
    if has_any(lay.bucket_count > 0):
        bucket = where(lay.bucket_count > 0, total_bytes / larger(lay.bucket_count, 1.0), bucket)
    buckets = larger(1.0, ceil(total_bytes / larger(bucket, 1.0)))
    once_s = _reduce_s(gradient_bytes, ranks, lay.replica_stride, buckets, job, constants)
    if has_any(experts):
        expert_ranks = larger(1.0, ranks * lay.tp / (lay.ep * lay.expert_tp))
        expert_s = _reduce_s(expert_bytes, expert_ranks, lay.ep * lay.expert_tp, buckets, job, constants)
        once_s = once_s + where(expert_ranks > 1, expert_s, 0.0)
    once_s = once_s * (1.0 + BUCKET_HALF_BYTES / larger(bucket, 1.0))
    window_s = backward_s + lay.gather_overlap * forward_s
    exposed_s = larger(once_s / buckets, once_s - constants.dp_overlap * lay.dp_overlap * window_s)
    return where((ranks > 1) & (lay.zero < 3), exposed_s, 0.0)


def _reduce_s(bytes_: Array, ranks: Array, stride: Array, buckets: Array, job: TrainingJob, constants: TrainingConstants) -> Array:
    """All-reduce, or with sharded optimizer state: scatter gradients, then gather weights in the sharing group."""
    lay = job.layout
    plain_s = buckets * collective_s(bytes_ / buckets, ranks, 2.0, stride, job, constants)
    if not has_any(lay.zero > 0):
        return plain_s
    group = where(lay.zero_group > 0, smaller(lay.zero_group, ranks), ranks)
    gather_s = buckets * collective_s(bytes_ * lay.number_bytes / lay.gradient_bytes / buckets, group, 1.0, stride, job, constants)
    scatter_s = buckets * collective_s(bytes_ / buckets, ranks, 1.0, stride, job, constants)
    partial_s = where(group < ranks, plain_s, scatter_s)
    return where(lay.zero > 0, partial_s + gather_s, plain_s)


def _optimizer_s(job: TrainingJob, constants: TrainingConstants, params: tuple[Array, Array]) -> Array:
    lay = job.layout
    dense, experts = params
    group = where(lay.zero_group > 0, lay.zero_group, lay.dp * lay.cp)
    share = where(lay.zero >= 1, 1.0 / group, 1.0)
    expert_share = where(lay.zero >= 1, 1.0 / larger(1.0, group * lay.tp / (lay.ep * lay.expert_tp)), 1.0)
    return (dense * share + experts * expert_share) * lay.trained_share * constants.optimizer_bytes / job.memory_rate


__all__ = ["Passes", "StepTime", "passes", "sends_s", "stage_params", "step_ends", "step_time", "whole_step"]

"""Device memory of one training step on the fullest rank, and how likely it is to fit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from autoscout.simulators.training.arithmetic import Array, has_any, larger, smaller, where
from autoscout.simulators.training.job import Stages, TrainingJob
from autoscout.simulators.training.step import stage_params

FUSED_SOFTMAX, PLAIN_SOFTMAX = 0.3, 0.9
"""Passes over the score matrix, of those of plain kernels, above which scores are written out, and above which the softmax is a kernel."""


@dataclass(frozen=True, kw_only=True)
class MemoryConstants:
    """One set for all software: what differs between stacks is what a layout says they do. Counted, but for the last two."""

    activation_scale: float = 1.0  # of the textbook count
    norm_bytes: float = (
        12.0  # per token and hidden unit of a layer with eager norms: two 4-byte copies, two 2-byte products with the weight
    )
    logit_bytes: float = 12.0  # per token and word: 2-byte logits, their 4-byte copy, the gradients of both
    fused_logit_bytes: float = 4.0  # the same where the loss works in place: 2-byte logits, and gradients in their place
    gathered_bytes: float = 4.0  # per token and word of logits gathered over a tensor-parallel group: the parts, and all of them in one
    fixed_bytes: float = 3.0e9  # context, workspaces, communication buffers
    fragment_share: float = 0.04  # of everything, lost to fragments
    usable_share: float = 0.97  # of nominal capacity
    spread: float = 0.3  # standard deviation of the log error of activations; weights and optimizer state are known
    margin: float = 0.05  # logarithm of how much more than counted must be free for activations at even odds (safe side)


@dataclass(frozen=True, kw_only=True)
class StepMemory:
    """Bytes on the fullest rank, split."""

    total_bytes: Array
    weights_bytes: Array
    gradients_bytes: Array
    optimizer_bytes: Array
    activations_bytes: Array
    logits_bytes: Array
    fixed_bytes: Array

    def parts(self) -> dict[str, Any]:
        """All parts by name, without the total."""
        return {item.name: getattr(self, item.name) for item in fields(self) if item.name != "total_bytes"}


def step_memory(job: TrainingJob, constants: MemoryConstants, stages: Stages | None = None) -> StepMemory:
    """Predict the peak of the fullest rank (first or last stage, whichever holds more) of these stages, of all when left out."""
    lay, held = job.layout, stages or job.all_stages
    stage_layers = held.layers
    dense, experts = stage_params(job, stage_layers)
    weights, gradients, optimizer = _states(job, dense, experts)
    shards: Array = 0.0
    if has_any(lay.zero >= 3):
        # two layers at a time; with pipelines weights stay gathered from micro-batch to micro-batch, and gradients are summed unsharded
        layers = where(lay.pp > 1, (1.0 + lay.gradient_bytes / lay.number_bytes) * stage_layers, 2.0)
        shards = where(lay.zero >= 3, lay.number_bytes * layers * (dense + experts) / larger(1.0, stage_layers), 0.0)
    flight = where(lay.pp > 1, smaller(held.micro_batches, lay.pp - held.ahead), 1.0)
    if has_any(lay.virtual_stages > 1):
        flight = flight * where(lay.virtual_stages > 1, 1.0 + (lay.pp - 1.0) / (lay.pp * lay.virtual_stages), 1.0)
    stored, working = _layer_bytes(job, constants)
    activations = constants.activation_scale * (stage_layers * stored * flight + working)
    gathered = (lay.tp > 1) & (lay.loss_parallel <= 0)
    columns = job.vocab / where(lay.loss_parallel > 0, lay.tp, 1.0)
    each = where(lay.loss_fused > 0, constants.fused_logit_bytes, constants.logit_bytes) + where(gathered, constants.gathered_bytes, 0.0)
    logits = job.tokens * columns * each * held.last
    peak_activations = larger(activations, logits + constants.activation_scale * (stage_layers * stored + working))  # first or last stage
    fixed = constants.fixed_bytes
    total = (weights + shards + gradients + optimizer + peak_activations) * (1.0 + constants.fragment_share) + fixed
    return StepMemory(
        total_bytes=total,
        weights_bytes=weights + shards,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=peak_activations - activations,
        fixed_bytes=total - weights - shards - gradients - optimizer - peak_activations,
    )


def feasible(memory: StepMemory, job: TrainingJob, constants: MemoryConstants) -> Array:
    """Probability that the need fits: a logistic of the room for activations, moved to the safe side by the margin."""
    odds = 1.702 * (spare_room(memory, job.memory_bytes, constants) - constants.margin) / constants.spread
    return 1.0 / (1.0 + np.exp(np.clip(-odds, -60.0, 60.0)))


def spare_room(memory: StepMemory, capacity_bytes: Array, constants: MemoryConstants) -> Array:
    """Logarithm of what is left for activations over what they are counted at.

    Weights, gradients and optimizer state can be counted to the byte; activations, workspaces of kernels and fragments cannot.
    """
    certain = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes + constants.fixed_bytes
    loose = (memory.activations_bytes + memory.logits_bytes) * (1.0 + constants.fragment_share)
    return np.log(larger(capacity_bytes * constants.usable_share - certain, 1.0) / larger(loose, 1.0))


def _states(job: TrainingJob, dense: Array, experts: Array) -> tuple[Array, Array, Array]:
    lay = job.layout
    group = where(lay.zero_group > 0, lay.zero_group, lay.dp * lay.cp)
    expert_group = larger(1.0, group * lay.tp / (lay.ep * lay.expert_tp))

    def sharded(bytes_each: Array, stage: float) -> Array:
        split = lay.zero >= stage
        if not has_any(split):
            return bytes_each * (dense + experts)
        return bytes_each * (dense * where(split, 1.0 / group, 1.0) + experts * where(split, 1.0 / expert_group, 1.0))

    # fp32 weights, two moments; FSDP keeps fp32 weights instead of both, and weights in fp32 have no second copy
    master = where(lay.number_bytes > 2.0, 8.0, where(lay.zero >= 3, 10.0, 12.0))
    weights = sharded(lay.number_bytes * lay.trained_share + lay.base_bytes * (1.0 - lay.trained_share), 3)
    sums = lay.sum_bytes * lay.trained_share * (dense + experts)
    return weights, sharded(lay.gradient_bytes * lay.trained_share, 2) + sums, sharded(master * lay.trained_share, 1)


def _layer_bytes(job: TrainingJob, constants: MemoryConstants) -> tuple[Array, Array]:
    """(kept for the backward per layer and micro-batch, working space of the layer that is being recomputed)."""
    lay, tokens = job.layout, job.tokens
    narrow = lay.narrow_inputs * (2.0 - larger(1.0, smaller(2.0, lay.linear_bytes)))  # bytes saved on each input of a linear layer
    inputs = 2.0 - narrow
    unfused = (constants.norm_bytes + 2.0) * (1.0 - lay.norm_fused)  # more copies, and masks
    whole = 4.0 + 2.0 * inputs * (1.0 - lay.again_norms) + unfused  # inputs of two norms, and their outputs
    queries = 2.0 * (job.heads + 2.0 * job.kv_heads) * (1.0 - lay.again_heads) + (2.0 + narrow) * job.heads
    scores = 5.0 * job.heads * job.sequence / (lay.cp * lay.tp) * (lay.attention > FUSED_SOFTMAX) * lay.cp
    # what the activation function gives, and in gated ones of separate kernels what it was multiplied with
    eager = where(job.ffn_matrices > 2.0, 2.0, 0.0) * (1.0 - larger(lay.act_fused, lay.compiled))
    acted = (inputs + eager) * (1.0 - lay.again_activations)
    dense_ffn = (where(job.ffn_matrices > 2.0, 4.0, 2.0) + acted) * job.ffn / lay.tp * (1.0 - lay.again_dense)
    moe_share = job.moe_layers / job.layers
    # a token's copies for its experts are kept; what experts give is weighted and added without being kept
    routed = job.active_experts * ((4.0 + acted) * job.expert_ffn / lay.expert_tp + inputs * job.hidden)
    routed = routed * lay.expert_row_share
    shared = (4.0 + acted) * job.shared_ffn / lay.tp
    ffn = dense_ffn * (1.0 - moe_share) + (routed + shared) * moe_share
    selective = tokens * (whole * job.hidden / lay.sequence_spread + queries * job.head_size / lay.tp + ffn)
    full = selective + tokens * scores
    checkpoint = tokens * 2.0 * job.hidden / lay.sequence_spread
    plain = where(lay.selective > 0, selective, full)
    held = plain + lay.recompute * (checkpoint - plain)
    working = where(lay.recompute > 0, full, where(lay.selective > 0, full - selective, 0.0))
    # where scores are written out, their gradients before and after the softmax lie next to them; with plain kernels a 4-byte copy too
    pairs = tokens * job.heads * job.sequence / lay.tp
    working = working + pairs * (4.0 * (lay.attention > FUSED_SOFTMAX) + 4.0 * (lay.attention > PLAIN_SOFTMAX))
    return held * lay.number_bytes / 2.0, working * lay.number_bytes / 2.0  # counted with two bytes a number


__all__ = ["MemoryConstants", "StepMemory", "feasible", "spare_room", "step_memory"]

"""What the training model is asked: model, load, layout and hardware as numbers or arrays that broadcast together."""

from __future__ import annotations

from dataclasses import dataclass

from autoscout.catalog.gpus import Cluster, GpuKind, gpu_fields
from autoscout.catalog.models import ModelShape
from autoscout.simulators.training.arithmetic import Array, ceil, floor, has_any, larger, where

LINEAR_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5}
"""Precision -> bytes of a number that linear layers compute with."""


@dataclass(frozen=True, kw_only=True)
class ParallelLayout:
    """How a training step is laid out over GPUs; each field a number or an array.

    `recompute`: share of a layer's forward that is run again (0 none, 1 full); `selective`: 1 when only the attention core is.
    `number_bytes`: of a weight and of an activation; `linear_bytes`: of a number that linear layers compute with.
    `attention`: passes over the score matrix relative to plain kernels (1 plain, about 0.5 fused softmax, 0 flash).
    `norm_fused`: 1 when norms and residuals run as one kernel. `act_fused`: 1 when a gated activation function does.
    `compiled`: 1 with CUDA graphs or a compiler (no host floor).
    `again_norms`, `again_activations`, `again_heads`, `again_dense`: 1 when outputs of norms, of activation functions, the heads' vectors
    or whole dense feed-forward parts are computed again instead of kept (Megatron's recompute_modules).
    """

    tp: Array = 1.0
    pp: Array = 1.0
    dp: Array = 1.0
    cp: Array = 1.0
    ep: Array = 1.0
    expert_tp: Array = 1.0
    virtual_stages: Array = 1.0
    listed_stages: Array = 0.0  # 1 when the layers of each stage are listed, so that any number of them can be split
    micro_batch: Array = 1.0
    number_bytes: Array = 2.0
    linear_bytes: Array = 2.0
    sequence_parallel: Array = 0.0
    recompute: Array = 0.0
    selective: Array = 0.0
    again_norms: Array = 0.0
    again_activations: Array = 0.0
    again_heads: Array = 0.0
    again_dense: Array = 0.0
    zero: Array = 0.0
    zero_group: Array = 0.0  # ranks that share optimizer state; 0 = all of dp
    attention: Array = 0.0
    norm_fused: Array = 0.0
    act_fused: Array = 0.0
    compiled: Array = 0.0
    tp_overlap: Array = 0.0
    tp_comm_sms: Array = 0.0  # SMs set aside for overlapped tensor-parallel communication; 0 = engine's choice
    dp_overlap: Array = 1.0
    gather_overlap: Array = 0.0  # 1 when updated weights are gathered during the next forward
    bucket_mb: Array = 0.0  # 0 = engine's choice
    bucket_count: Array = 0.0  # instead of bucket_mb
    gradient_bytes: Array = 4.0
    sum_bytes: Array = 0.0  # per parameter, of a second buffer in which gradients are added up, never sharded
    base_bytes: Array = 2.0  # per weight that is not trained: below 2 where it is quantised
    narrow_inputs: Array = 0.0  # 1 when inputs of fp8 layers are kept in one byte for the backward
    loss_parallel: Array = 1.0  # 0 when logits are gathered over tensor-parallel ranks
    loss_fused: Array = 0.0  # 1 when the loss works in place on the logits
    vocab_multiple: Array = 128.0  # the vocabulary is padded to this many words times tp; 1 = not at all
    trained_share: Array = 1.0  # below 1 for LoRA: no weight gradients for the frozen rest
    stages_inner: Array = 0.0  # 1 when the stages of a replica are neighbours and the replicas far apart

    @property
    def sequence_spread(self) -> Array:
        """Ranks of a tensor-parallel group over which the tokens are spread between its products."""
        return where(self.sequence_parallel > 0, self.tp, 1.0)

    @property
    def expert_row_share(self) -> Array:
        """Rows that an expert's products have on a rank, of one for each expert of each token of the micro-batch.

        The ranks that share an expert gather each other's tokens, so that cutting experts saves no work; ranks of a tensor-parallel group
        that hold the same tokens need not.
        """
        spread = self.sequence_spread
        return larger(1.0, self.expert_tp * spread / self.tp) / spread

    @property
    def replica_stride(self) -> Array:
        """Ranks between the data-parallel copies of a shard."""
        return self.tp * where(self.stages_inner > 0, self.pp, 1.0)

    @property
    def stage_stride(self) -> Array:
        """Ranks between the stages of a pipeline."""
        return self.tp * self.cp * where(self.stages_inner > 0, 1.0, self.dp)


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """One question, or n of them."""

    layers: Array
    hidden: Array
    heads: Array
    kv_heads: Array
    head_size: Array
    ffn: Array
    ffn_matrices: Array  # 3 when gated, else 2
    vocab: Array
    tied: Array
    attention_params: Array
    experts: Array
    active_experts: Array
    expert_ffn: Array
    shared_ffn: Array
    moe_layers: Array

    sequence: Array
    global_batch: Array
    layout: ParallelLayout

    gemm_flops: Array  # peak of the precision that linear layers use
    flops: Array  # bf16 peak
    gemm_share: Array
    memory_rate: Array  # bytes/s, reached
    memory_bytes: Array
    multiprocessors: Array
    node_gpus: Array
    bus_rate: Array  # bytes/s inside a node, reached
    bus_latency_s: Array
    nic_rate: Array

    @property
    def tokens(self) -> Array:
        """Per rank and micro-batch."""
        return self.layout.micro_batch * self.sequence / self.layout.cp

    @property
    def head_columns(self) -> Array:
        """Words of the vocabulary on one rank, padding included; engines that do not pad leave out what does not divide."""
        unit = self.layout.vocab_multiple
        padded = ceil(self.vocab / (unit * self.layout.tp)) * unit
        return where(unit > 1.0, padded, floor(self.vocab / self.layout.tp)) if has_any(unit <= 1.0) else padded

    @property
    def micro_batches(self) -> Array:
        return larger(1.0, ceil(self.global_batch / (self.layout.micro_batch * self.layout.dp)))

    @property
    def all_stages(self) -> Stages:
        """The whole pipeline in equal parts, as on GPUs of one kind."""
        lay = self.layout
        return Stages(layers=ceil(self.layers / (lay.pp * lay.virtual_stages)) * lay.virtual_stages, micro_batches=self.micro_batches)


@dataclass(frozen=True, kw_only=True)
class Stages:
    """The stages of a pipeline that GPUs of one kind hold.

    `layers`: of the largest of them; `ahead`: stages before the first of them; `last`: 1 where the last of the pipeline is among them;
    `micro_batches`: of the replica with the most.
    """

    layers: Array
    micro_batches: Array
    ahead: Array = 0.0
    last: Array = 1.0


def model_fields(shape: ModelShape) -> dict[str, float]:
    """The part of a job that a model fills in."""
    names = ("layers", "hidden", "heads", "kv_heads", "head_size", "ffn", "vocab", "tied", "attention_params")
    experts = ("experts", "active_experts", "expert_ffn", "shared_ffn", "moe_layers")
    return {name: float(getattr(shape, name)) for name in (*names, *experts)} | {"ffn_matrices": 2.0 + shape.gated}


def hardware_fields(gpu: GpuKind, cluster: Cluster | None = None, linear_bytes: Array = 2.0) -> dict[str, Array]:
    """The part of a job that a GPU and its cluster fill in."""
    rates: dict[str, Array] = {**gpu_fields(gpu, cluster), "multiprocessors": float(gpu.multiprocessors)}
    rates["bus_latency_s"] = gpu.latency_us * 1e-6
    for precision, bytes_ in LINEAR_BYTES.items():
        rates["gemm_flops"] = where(linear_bytes == bytes_, gpu.flops(precision), rates["gemm_flops"])
    return rates


__all__ = ["LINEAR_BYTES", "ParallelLayout", "Stages", "TrainingJob", "hardware_fields", "model_fields"]

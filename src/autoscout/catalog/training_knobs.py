"""By which names the knobs of training are known, in the papers, in engines and in published tables: the one place that maps them."""

from __future__ import annotations

from autoscout.catalog.gpus import kinds, long_name, short_name

KNOBS: dict[str, tuple[str, ...]] = {
    "tp": ("tp", "tensor_parallel", "tensor_model_parallel_size", "tensor_parallel_size", "tensor_parallel_degree"),
    "pp": ("pp", "pipeline_parallel", "pipeline_model_parallel_size", "pipeline_parallel_size", "pipeline_parallel_degree"),
    "dp": ("dp", "data_parallel", "data_parallel_size", "data_parallel_degree"),
    "cp": ("cp", "context_parallel", "context_parallel_size", "context_parallel_degree"),
    "ep": ("ep", "expert_parallel", "expert_model_parallel_size", "expert_parallel_degree"),
    "expert_tp": ("etp", "expert_tp", "expert_tensor_parallel_size"),
    "virtual_stages": ("vp", "virtual_stages", "virtual_pipeline_model_parallel_size", "interleave"),
    "listed_stages": ("listed_stages", "pipeline_model_parallel_layout"),
    "micro_batch": ("mbs", "micro_batch", "micro_batch_size", "local_batch", "per_device_train_batch_size"),
    "sequence_parallel": ("sp", "sequence_parallel"),
    "recompute": ("ar", "recompute", "activation_checkpointing", "activation_recompute", "act_ckpt", "recompute_granularity"),
    "recompute_share": ("recompute_share",),
    "recompute_modules": ("recompute_modules",),
    "zero": ("zero", "zero_stage", "sharding", "use_distributed_optimizer", "distributed_optimizer", "zero1"),
    "zero_group": ("zero_group", "zero1_group"),
    "attention": ("attention", "kernel", "attention_backend", "use_flash_attn", "attention_kernel"),
    "norm_fused": ("norm_fused", "fused_norm"),
    "act_fused": ("act_fused", "bias_activation_fusion", "bias_swiglu_fusion"),
    "compiled": ("compiled", "compile", "cuda_graph", "enable_cuda_graph"),
    "tp_overlap": ("tp_overlap", "async_tp", "tp_comm_overlap"),
    "tp_comm_sms": ("tp_comm", "tp_comm_sms", "tp_comm_overlap_sms"),
    "dp_overlap": ("dp_overlap", "overlap_grad_reduce", "ddp_overlap"),
    "gather_overlap": ("gather_overlap", "overlap_param_gather"),
    "bucket_mb": ("ddp_bucket", "bucket_mb", "ddp_bucket_mb", "bucket_cap_mb"),
    "bucket_count": ("ddp", "bucket_count", "ddp_num_buckets"),
    "precision": ("precision",),
    "gradient_bytes": ("gradient_bytes",),
    "half_gradients": ("grad_reduce_in_bf16",),
    "sum_bytes": ("sum_bytes",),
    "base_bytes": ("base_bytes", "base_quantization"),
    "narrow_inputs": ("narrow_inputs",),
    "loss_parallel": ("loss_parallel", "vocab_parallel"),
    "loss_fused": ("loss_fused", "cross_entropy_loss_fusion"),
    "vocab_multiple": ("vocab_multiple", "make_vocab_size_divisible_by"),
    "trained_share": ("trained_share", "peft", "method"),
    "stages_inner": ("stages_inner", "use_tp_pp_dp_mapping"),
}
"""Layout field -> the knob names it is known by; the first one that a config assigns counts."""

KIND = "data_parallel"
"""Knob that names a kind of data parallelism in PyTorch; elsewhere it is a degree."""

SHARE = "_share"
"""Ends the name of the knob that says how much work a GPU of a kind gets, of what one of the first kind gets: `a40_share`."""

GPU_KNOBS = tuple(dict.fromkeys(name(kind) for kind in kinds() for name in (short_name, long_name)))
HARDWARE_KNOBS = (*GPU_KNOBS, *(f"{kind}{SHARE}" for kind in GPU_KNOBS))
"""Knobs of mixed clusters: how many GPUs of a kind are used (`a40`), as in the paper, and how much of the work each gets."""

"""megatron-core's own GPT for the built-in runner: its parts on this process, and weights that are the same for every layout."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.module import Float16Module, MegatronModule
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import distributed
from torch.nn import functional

if not hasattr(moe_utils, "te_general_gemm"):
    moe_utils.te_general_gemm = None  # without Transformer Engine megatron-core 0.16 asks for it, but does not define it

DEVIATION = 0.02  # of initial weights; projections back to the residual stream get less, by the number of layers


class TorchAttention(MegatronModule):
    """PyTorch's fused attention in the place of megatron-core's own, which computes all scores."""

    def __init__(self, config: TransformerConfig, *_: Any, **__: Any) -> None:
        super().__init__(config=config)

    def forward(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        q, k, v = (part.permute(1, 2, 0, 3) for part in (query, key, value))  # from [sequence, batch, heads, size]
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return mixed.permute(2, 0, 1, 3).reshape(query.shape[0], query.shape[1], -1)


class TorchNorm:
    """PyTorch's norms in the place of Apex's; unlike megatron-core's own substitute they go with sequence parallelism."""

    def __new__(cls, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **_: Any) -> Any:
        kind = torch.nn.RMSNorm if config.normalization == "RMSNorm" else torch.nn.LayerNorm
        norm = kind(hidden_size, eps=eps)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined] # its gradients are summed over the parts
        return norm


def transformer_config(settings: Mapping[str, Any], layers: int) -> TransformerConfig:
    """megatron-core's configuration from the file of a trial, with as many layers as this run is to build."""
    fields = dict(settings["TransformerConfig"])
    for name in ("params_dtype", "pipeline_dtype"):
        if name in fields:
            fields[name] = getattr(torch, fields[name])
    fields["num_layers"] = layers
    if "moe_layer_freq" in fields:
        fields["moe_layer_freq"] = fields["moe_layer_freq"][:layers]
    activation = functional.silu if settings["activation"] == "silu" else functional.gelu
    # A send of gloo reads the memory of an output until it is through, so that memory may be taken back only where NCCL sends.
    taken_back = not (distributed.is_initialized() and distributed.get_backend() == "gloo")
    return TransformerConfig(**fields, activation_func=activation, deallocate_pipeline_outputs=taken_back)


def build_parts(settings: Mapping[str, Any], config: TransformerConfig, shape: Mapping[str, Any], seed: int) -> list[Any]:
    """The parts of the model that this process holds, one for each virtual stage, wrapped for the exchange of gradients."""
    virtual = config.virtual_pipeline_model_parallel_size
    parts = []
    for stage in range(virtual or 1):
        vp_stage = stage if virtual else None
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, vp_stage=vp_stage)
        spec.layer_norm = TorchNorm
        for layer in spec.layer_specs:
            layer.submodules.input_layernorm = layer.submodules.pre_mlp_layernorm = TorchNorm
            if settings["attention"] == "sdpa":
                layer.submodules.self_attention.submodules.core_attention = ModuleSpec(module=TorchAttention)
        model = GPTModel(
            config=config,
            transformer_layer_spec=spec,
            vocab_size=int(shape["vocabulary"]),
            max_sequence_length=int(shape["sequence"]),
            pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp_stage),
            post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp_stage),
            share_embeddings_and_output_weights=bool(shape["tied"]),
            position_embedding_type="rope" if shape["gated"] else "learned_absolute",
            vp_stage=vp_stage,
        )
        set_weights(model, config, seed, tied=bool(shape["tied"]))
        model.to(torch.cuda.current_device())
        parts.append(Float16Module(config, model) if config.fp16 or config.bf16 else model)
    exchange = dict(settings["DistributedDataParallelConfig"])
    if settings["bucket_count"]:
        count = sum(parameter.nelement() for part in parts for parameter in part.parameters())
        exchange["bucket_size"] = max(1, count // int(settings["bucket_count"]))
    ddp_config = DistributedDataParallelConfig(**exchange)
    # As Megatron-LM does: buckets only in the first part, since the others are exchanged while it is computed.
    return [DistributedDataParallel(config, ddp_config, part, disable_bucketing=number > 0) for number, part in enumerate(parts)]


def set_weights(model: GPTModel, config: TransformerConfig, seed: int, *, tied: bool) -> None:
    """Draw every matrix as a whole from a stream of its own and keep this process's share: the same model in every layout."""
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue  # biases and norms begin as zeros and ones everywhere
        whole = list(parameter.shape)
        expert = ".local_experts." in name
        cut = int(getattr(parameter, "partition_dim", -1)) if getattr(parameter, "tensor_model_parallel", False) else -1
        size = parallel_state.get_expert_tensor_parallel_world_size() if expert else parallel_state.get_tensor_model_parallel_world_size()
        rank = parallel_state.get_expert_tensor_parallel_rank() if expert else parallel_state.get_tensor_model_parallel_rank()
        if cut >= 0:
            whole[cut] *= size
        random = torch.Generator(device=parameter.device)
        random.manual_seed(seed + zlib.crc32(_whole_name(model, config, name, tied=tied).encode()))
        back = name.endswith(("linear_proj.weight", "linear_fc2.weight"))
        deviation = DEVIATION / (2.0 * config.num_layers) ** 0.5 if back else DEVIATION
        drawn = torch.empty(whole, device=parameter.device, dtype=torch.float32).normal_(0.0, deviation, generator=random)
        if cut >= 0 and config.gated_linear_unit and name.endswith("linear_fc1.weight"):
            drawn = drawn.view(2, -1, *drawn.shape[1:]).chunk(size, dim=1)[rank].reshape(parameter.shape)  # a share of gate and of value
        elif cut >= 0:
            drawn = drawn.chunk(size, dim=cut)[rank]
        parameter.data.copy_(drawn)


def _whole_name(model: GPTModel, config: TransformerConfig, name: str, *, tied: bool) -> str:
    """A name with the numbers that layer and expert have in the whole model."""
    words = name.split(".")
    if words[:2] == ["decoder", "layers"]:
        words[2] = str(model.decoder.layers[int(words[2])].layer_number)
    if "local_experts" in words:
        at = words.index("local_experts") + 1
        local = int(config.num_moe_experts) // parallel_state.get_expert_model_parallel_world_size()
        words[at] = str(parallel_state.get_expert_model_parallel_rank() * local + int(words[at]))
    whole = ".".join(words)
    return "embedding.word_embeddings.weight" if tied and whole == "output_layer.weight" else whole

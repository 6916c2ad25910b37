"""What a model's own `config.json` says: in a folder, or in the local cache of downloads from Hugging Face."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autoscout.catalog.shape import MOST_SIZE, ModelShape
from autoscout.common.document import load_json
from autoscout.core.errors import ConfigError, Fault

TEXT = ("text_config", "llm_config", "language_config")
"""Where models of text and other things keep what belongs to the text."""
ENCODERS = ("vision_config", "audio_config", "vit_config", "encoder_config")
LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "model_max_length", "max_seq_len", "n_ctx")
"""Names under which configurations keep the longest sequence."""
DRAFT_LAYERS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "mtp_num_layers")
"""Names under which they keep the number of layers that guess further tokens, as vLLM reads them in `config/speculative.py`."""


def downloaded(name: str) -> Path | None:
    """The newest snapshot of a remote model in the local cache of Hugging Face; None when there is none."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    snapshots = cache / f"models--{name.replace('/', '--')}" / "snapshots"
    try:
        configs = sorted(snapshots.glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    except (OSError, ValueError, NotImplementedError):  # a name that no file can have
        return None
    return configs[-1].parent if configs else None


def load_config(path: Path) -> dict[str, Any]:
    """The fields of a `config.json`, those of the text above those of the whole.

    Raises:
        ConfigError: it is missing, or no mapping.
    """
    data = load_json(path)
    if not isinstance(data, dict):
        raise ConfigError(Fault(where=str(path), rule="the model's config must be a JSON object"))
    inner: dict[str, Any] = next((data[name] for name in TEXT if isinstance(data.get(name), dict)), {})
    return {**data, **inner}


def read_config(path: str | Path) -> ModelShape:
    """Read a Hugging Face `config.json`; the text part of multimodal ones."""
    data = load_config(Path(path))
    faults: list[Fault] = []

    def text(*names: str, default: str = "") -> str:
        return next((str(data[name]) for name in names if data.get(name) is not None), default)

    def first(*names: str, default: int = 0) -> int:
        name = next((name for name in names if data.get(name) is not None), "")
        value = data.get(name, default)
        if type(value) is not int or not 0 <= value <= MOST_SIZE:
            faults.append(Fault(where=str(path), field=name, value=repr(value), rule=f"must be a whole number up to {MOST_SIZE:,}"))
            return default
        return value

    hidden, heads, layers = (
        first("hidden_size", "n_embd", "d_model"),
        first("num_attention_heads", "n_head", "n_heads"),
        first("num_hidden_layers", "n_layer", "n_layers"),
    )
    needed = {"hidden_size": hidden, "num_attention_heads": heads, "num_hidden_layers": layers}
    if missing := [name for name, size in needed.items() if not size]:
        named_fields = {fault.field for fault in faults}
        fix = "Give the config.json of a language model"
        faults += [Fault(where=str(path), field=name, rule="is required", fix=fix) for name in missing if name not in named_fields]
        raise ConfigError(faults)
    experts = first("num_local_experts", "num_experts", "n_routed_experts")
    expert_ffn = first("moe_intermediate_size", "intermediate_size") if experts else 0
    ffn = first("intermediate_size", "n_inner", "ffn_dim", default=4 * hidden)
    latent = first("kv_lora_rank")
    activation = text("hidden_act", "hidden_activation", "activation_function", default="silu")
    sizes: dict[str, int] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": first("num_key_value_heads", "num_kv_heads", default=heads),
        "head_size": first("v_head_dim", "head_dim", default=hidden // heads),
        "ffn": ffn,
        "vocab": first("vocab_size", default=32000),
        "experts": experts,
        "active_experts": first("num_experts_per_tok", "num_experts_per_token", "top_k_experts", "moe_topk", default=0),
        "expert_ffn": expert_ffn,
        "shared_ffn": first("shared_expert_intermediate_size") or expert_ffn * first("n_shared_experts"),
        "dense_layers": first("first_k_dense_replace") if experts else 0,
        "kv_width": latent + first("qk_rope_head_dim", default=64) if latent else 0,
        "attention_params": _latent_params(first, hidden, heads) if latent else 0,
        "attention_layers": _attention_layers(data, layers),
        "draft_layers": first(*DRAFT_LAYERS),
        "longest": max((data[name] for name in LENGTHS if type(data.get(name)) is int and 0 < data[name] <= MOST_SIZE), default=0),
    }
    if faults:
        raise ConfigError(faults)
    return ModelShape(
        name=text("_name_or_path", "model_type", default="model") or "model",
        gated=activation in ("silu", "swiglu", "swish") or "gemma" in text("model_type"),
        tied=data.get("tie_word_embeddings") is True,
        stored=_stored(data.get("quantization_config")),
        encoder=any(isinstance(data.get(name), dict) for name in ENCODERS),
        **sizes,
    )


def _stored(quantization: Any) -> str:
    """The format of published weights by the config's own words; bf16 where it says nothing that is known."""
    words = json.dumps(quantization, default=str).lower() if isinstance(quantization, dict) else ""
    return next((kind for kind in ("nvfp4", "mxfp4", "awq", "gptq", "fp8") if kind in words), "bf16")


def _attention_layers(data: Mapping[str, Any], layers: int) -> int:
    """Layers that keep a cache which grows with the text; 0 for all of them. Linear attention and Mamba keep a state of fixed size."""
    kinds, every = data.get("layer_types"), data.get("full_attention_interval")
    if isinstance(kinds, list) and len(kinds) == layers:
        count = sum("attention" in str(kind) and "linear" not in str(kind) for kind in kinds)
    elif type(every) is int and every > 1:
        count = layers // every
    elif isinstance(pattern := data.get("hybrid_override_pattern"), str):
        count = pattern.count("*")  # as Nemotron-H writes it: M for Mamba, * for attention, - or E for the rest
    else:
        return 0
    return count if 0 < count < layers else 0


def _latent_params(first: Callable[[str], int], hidden: int, heads: int) -> int:
    latent, rope, plain, values = map(first, ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    query = first("q_lora_rank")
    queries = hidden * query + query * heads * (plain + rope) if query else hidden * heads * (plain + rope)
    return int(queries + hidden * (latent + rope) + latent * heads * (plain + values) + heads * values * hidden)


__all__ = ["downloaded", "load_config", "read_config"]

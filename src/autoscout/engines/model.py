"""What is known of the model before anything is started: from its folder, from the local cache of downloads, or from the catalogue."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autoscout.catalog.models import ModelShape, model, read_config
from autoscout.common.document import load_json
from autoscout.core.errors import ConfigError, Fault

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.npz")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "model_max_length", "max_seq_len", "n_ctx")
"""Names under which configurations keep the longest sequence."""
BITS = {"fp8": 8, "int8": 8, "mxfp4": 4, "nvfp4": 4, "awq": 4, "gptq": 4, "bitsandbytes": 4}
"""Bits of a weight by the name of a quantisation method."""
PUBLISHED = {"deepseek-v3": 8, "deepseek-r1": 8, "kimi-k2": 8, "gpt-oss": 4}
"""Bits of a weight of models that are published with fewer than 16, by part of their names."""


@dataclass(frozen=True, kw_only=True)
class EngineModelFacts:
    """Facts of a model; zero or false where nothing is known.

    Attributes:
        heads, layers, experts, vocab: Its shape; 0 when unknown.
        max_len: The longest sequence it was made for.
        quantized: Its weights are quantised already.
        latent: It keeps a compressed cache (MLA).
        weights_gb: Size of its weights as they are stored, in GB (10^9 bytes).
        dummy: There is a configuration but no weights: random ones are used.
        tokenizer: There is one, or the model is a remote one that brings it.
    """

    heads: int = 0
    layers: int = 0
    experts: int = 0
    vocab: int = 0
    max_len: int = 0
    quantized: bool = False
    latent: bool = False
    weights_gb: float = 0.0
    dummy: bool = False
    tokenizer: bool = True


def model_facts(name: str) -> tuple[EngineModelFacts, list[Fault]]:
    """Facts of a model by the path of its folder or its name, and what is wrong with the folder."""
    folder = Path(name).expanduser()
    if not _is_folder(folder):
        if folder.is_absolute() or name.startswith((".", "~")):
            fix = "Give a folder with a config.json, or the name of a model such as Qwen/Qwen3-8B"
            return EngineModelFacts(), [Fault(where="workload", field="model", value=repr(name), rule="there is no such folder", fix=fix)]
        cached = downloaded(name)
        if cached is None:
            return _remote(name), []
        facts, faults = _local(cached)
        return facts, [] if faults else faults
    return _local(folder)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long for a name of a file; holds a zero byte
        return False


def downloaded(name: str) -> Path | None:
    """The newest snapshot of a remote model in the local cache of Hugging Face; None when there is none."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    try:
        snapshots = sorted(
            (cache / f"models--{name.replace('/', '--')}" / "snapshots").glob("*/config.json"), key=lambda path: path.stat().st_mtime
        )
    except (OSError, ValueError):
        return None
    return snapshots[-1].parent if snapshots else None


def _remote(name: str) -> EngineModelFacts:
    try:
        shape = model(name)
    except ConfigError:
        return EngineModelFacts()
    bits = next((bits for word, bits in (BITS | PUBLISHED).items() if word in name.lower()), 16)
    return _of(shape, max_len=0, bits=bits, dummy=False, tokenizer=True)


def _local(folder: Path) -> tuple[EngineModelFacts, list[Fault]]:
    path = folder / "config.json"
    try:
        shape, data = read_config(path), load_json(path)
    except ConfigError as error:
        return EngineModelFacts(), list(error.faults)
    inner = data.get("text_config")
    data = {**data, **(inner if isinstance(inner, dict) else {})}
    quantisation = data.get("quantization_config")
    method = str(quantisation.get("quant_method", "")) if isinstance(quantisation, dict) else ""
    bits = next((bits for word, bits in BITS.items() if word in method), 8) if method else 16
    weights = any(next(folder.glob(pattern), None) is not None for pattern in WEIGHTS)
    tokenizer = any((folder / name).exists() for name in TOKENIZERS)
    return _of(shape, max_len=_longest(data), bits=bits, dummy=not weights, tokenizer=tokenizer), []


def _longest(data: dict[str, Any]) -> int:
    lengths = [data[name] for name in LENGTHS if type(data.get(name)) is int and data[name] > 0]
    return max(lengths, default=0)


def _of(shape: ModelShape, *, max_len: int, bits: int, dummy: bool, tokenizer: bool) -> EngineModelFacts:
    return EngineModelFacts(
        heads=shape.heads,
        layers=shape.layers,
        experts=shape.experts,
        vocab=shape.vocab,
        max_len=max_len,
        quantized=bits < 16,
        latent=shape.kv_width != 2 * shape.kv_heads * shape.head_size,
        weights_gb=round(shape.parameters * bits / 8 / 1e9, 3),
        dummy=dummy,
        tokenizer=tokenizer,
    )


__all__ = ["EngineModelFacts", "downloaded", "model_facts"]

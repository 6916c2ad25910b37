"""What is known of the model before anything is started: from its folder, from the local cache of downloads, or from the catalogue."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from autoscout.catalog.models import ModelShape, model
from autoscout.catalog.published import downloaded, load_config, read_config
from autoscout.core.errors import ConfigError, Fault

WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf", "*.npz")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
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
        hybrid: Some of its layers keep a state of fixed size instead of a cache (Mamba, linear attention).
        encoder: It reads images, video or sound with an encoder of its own.
        draft_layers: Layers published with it that guess further tokens (multi-token prediction).
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
    hybrid: bool = False
    encoder: bool = False
    draft_layers: int = 0
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
        facts, _ = _local(cached)
        return replace(facts, dummy=False, tokenizer=True), []  # the engine downloads what the cache lacks
    return _local(folder)


GUESSERS = ("eagle3", "eagle", "dflash", "dspark", "mtp")
"""Kinds of models that are made for guessing, by a word of their name or architecture, as vLLM tells them apart."""
ALIASES = {"nextn": "mtp", "assistant": "mtp"}


GUESS_WITH_MODEL = ("draft_model", "eagle", "eagle3", "dflash", "dspark")
"""Methods that guess with a model, whatever its name says it was made for; `mtp` only with one that is made for it."""


def draft_kind(name: str) -> str:
    """What kind of guessing a draft model is made for: one of `GUESSERS`, `draft_model` for any small model; empty for none."""
    if not name:
        return ""
    folder = Path(name).expanduser()
    cached = folder if _is_folder(folder) else downloaded(name)
    try:
        architectures = str(load_config(cached / "config.json").get("architectures", "")) if cached else ""
    except ConfigError:
        architectures = ""
    for text in (architectures.lower(), name.lower()):
        for word in (*GUESSERS, *ALIASES):
            if word in text:
                return ALIASES.get(word, word)
    return "draft_model"


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # too long for a name of a file; holds a zero byte
        return False


def _remote(name: str) -> EngineModelFacts:
    try:
        shape = model(name)
    except ConfigError:
        return EngineModelFacts()
    bits = next((bits for word, bits in (BITS | PUBLISHED).items() if word in name.lower()), 16)
    return _of(shape, bits=bits, dummy=False, tokenizer=True)


def _local(folder: Path) -> tuple[EngineModelFacts, list[Fault]]:
    path = folder / "config.json"
    try:
        shape, data = read_config(path), load_config(path)
    except ConfigError as error:
        return EngineModelFacts(), list(error.faults)
    quantisation = data.get("quantization_config")
    method = str(quantisation.get("quant_method", "")) if isinstance(quantisation, dict) else ""
    bits = next((bits for word, bits in BITS.items() if word in method), 8) if method else 16
    weights = any(next(folder.glob(pattern), None) is not None for pattern in WEIGHTS)
    tokenizer = any((folder / name).exists() for name in TOKENIZERS)
    return _of(shape, bits=bits, dummy=not weights, tokenizer=tokenizer), []


def _of(shape: ModelShape, *, bits: int, dummy: bool, tokenizer: bool) -> EngineModelFacts:
    return EngineModelFacts(
        heads=shape.heads,
        layers=shape.layers,
        experts=shape.experts,
        vocab=shape.vocab,
        max_len=shape.longest,
        quantized=bits < 16,
        latent=shape.kv_width != 2 * shape.kv_heads * shape.head_size,
        hybrid=shape.attention_layers < shape.layers,
        encoder=shape.encoder,
        draft_layers=shape.draft_layers,
        weights_gb=round(shape.parameters * bits / 8 / 1e9, 3),
        dummy=dummy,
        tokenizer=tokenizer,
    )


__all__ = ["GUESS_WITH_MODEL", "EngineModelFacts", "draft_kind", "model_facts"]

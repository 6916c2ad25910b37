"""Shapes of transformers: from a built-in list, a Hugging Face `config.json`, or plain numbers in the task."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from autoscout.common.document import load_json
from autoscout.common.text import suggestion
from autoscout.core.errors import ConfigError, Fault

MOST_SIZE = 10**12  # of any number in a model's shape


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """What of a transformer costs time and memory; MoE when `experts` is not 0."""

    name: str = "model"
    layers: int
    hidden: int
    heads: int
    kv_heads: int = 0  # 0 = as many as heads
    head_size: int = 0  # 0 = hidden / heads
    ffn: int = 0  # 0 = 4 x hidden
    gated: bool = True
    vocab: int = 32000
    tied: bool = False
    experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0  # leading layers without experts
    kv_width: int = 0  # cache elements per token and layer; 0 = 2 x kv_heads x head_size
    attention_params: int = 0  # per layer, where the usual four matrices are not what the model has
    attention_layers: int = 0  # layers that keep a cache; 0 = all
    stored: str = "bf16"  # the format that the weights are published in

    def __post_init__(self) -> None:
        rule = f"must be a whole number up to {MOST_SIZE:,}"
        sizes = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("name", "stored")}
        strange = [
            Fault(where="model", field=name, value=repr(value), rule=rule)
            for name, value in sizes.items()
            if not (isinstance(value, (int, np.integer)) and 0 <= value <= MOST_SIZE)
        ]
        if strange:
            raise ConfigError(strange)
        for name, value in (
            ("kv_heads", self.kv_heads or self.heads),
            ("head_size", self.head_size or self.hidden // max(1, self.heads)),
            ("ffn", self.ffn or 4 * self.hidden),
            ("attention_layers", self.attention_layers or self.layers),
        ):
            object.__setattr__(self, name, value)
        if not self.attention_params:
            params = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
            object.__setattr__(self, "attention_params", params)
        if not self.kv_width:
            object.__setattr__(self, "kv_width", 2 * self.kv_heads * self.head_size)
        faults = [
            Fault(where="model", field=item, value=str(getattr(self, item)), rule="must be a positive whole number")
            for item in ("layers", "hidden", "heads", "vocab")
            if getattr(self, item) < 1
        ]
        if self.experts and not 0 < self.active_experts <= self.experts:
            faults.append(Fault(where="model", field="active_experts", value=str(self.active_experts), rule="must lie in 1..experts"))
        if faults:
            raise ConfigError(faults)

    @property
    def dense_ffn_params(self) -> int:
        return (2 + self.gated) * self.hidden * self.ffn

    @property
    def expert_params(self) -> int:
        """Weights of one expert in one layer."""
        return (2 + self.gated) * self.hidden * self.expert_ffn

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def parameters(self) -> int:
        """All weights."""
        return self._count(self.experts)

    @property
    def active_parameters(self) -> int:
        """Weights that one token meets."""
        return self._count(self.active_experts)

    def _count(self, experts: int) -> int:
        shared = (2 + self.gated) * self.hidden * self.shared_ffn + self.hidden * self.experts
        embedding = self.vocab * self.hidden * (1 if self.tied else 2)
        dense = (self.layers - self.moe_layers) * self.dense_ffn_params
        return embedding + self.layers * self.attention_params + dense + self.moe_layers * (experts * self.expert_params + shared)


def model(name: str) -> ModelShape:
    """A model by name, by Hugging Face path (`Qwen/Qwen3-8B`), or by the path of a `config.json` or its folder.

    >>> model("llama-3.1-8b").layers
    32
    """
    path = Path(name)
    if path.suffix == ".json" or _is_present(path / "config.json"):
        return read_config(path if path.suffix == ".json" else path / "config.json")
    by_alias = _by_alias()
    plain_name = _plain(name.rsplit("/", 1)[-1])
    if plain_name in by_alias:
        return by_alias[plain_name]
    base = next((plain for plain in _without_endings(name.rsplit("/", 1)[-1]) if plain in by_alias), None)
    if base is not None:
        return by_alias[base]
    if _is_present(path):
        return read_config(path / "config.json")  # there is none: says so
    fix = f"The path of its config.json works too. {suggestion(name.rsplit('/', 1)[-1], accepted_names(), listed=1000)}"
    raise ConfigError(Fault(where="model", value=repr(name), rule="unknown model", fix=fix))


_ENDING = re.compile(
    r"(instruct|chat|hf|it|base|thinking|preview|dynamic|quantized|block|modelopt|gguf|marlin|v\d+(p\d+)?|\d{4,8}|"
    r"(nv|mx)?(bf|fp|int)\d+|w\d+a\d+|awq|gptq|kv|\d+bit|q\d[a-z]*)",
)
"""Parts of a name that say nothing of the shape: tuned how, stored how, when."""


def _without_endings(name: str) -> Iterator[str]:
    """The name with fewer and fewer such parts at its end: Llama-3.1-8B-Instruct-FP8 is a llama-3.1-8b, Phi-4-mini no phi-4."""
    parts = re.split(r"[-_ ]", name)
    while len(parts) > 1 and _ENDING.fullmatch(_plain(parts[-1])):
        parts.pop()
        yield _plain("-".join(parts))


def _is_present(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that no file can have
        return False


def model_from(facts: Mapping[str, Any]) -> ModelShape:
    """A shape from a mapping: field names of `ModelShape`; unknown keys are a fault."""
    allowed = {item.name for item in fields(ModelShape)}
    unknown = sorted(map(str, facts.keys() - allowed))
    missing = sorted({"layers", "hidden", "heads"} - facts.keys())
    faults = [Fault(where="model", field=key, rule=f"unknown field; there are: {', '.join(sorted(allowed))}") for key in unknown]
    faults += [Fault(where="model", field=key, rule="this field is needed") for key in missing]
    if faults:
        raise ConfigError(faults)
    return ModelShape(**facts)


def read_config(path: str | Path) -> ModelShape:
    """Read a Hugging Face `config.json`; text part of multimodal ones."""
    data = load_json(Path(path))
    if not isinstance(data, dict):
        raise ConfigError(Fault(where=str(path), rule="the model's config must be a JSON object"))
    inner = data.get("text_config")
    data = {**data, **(inner if isinstance(inner, dict) else {})}
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
    activation = text("hidden_act", "activation_function", default="silu")
    sizes: dict[str, int] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": first("num_key_value_heads", "num_kv_heads", default=heads),
        "head_size": first("v_head_dim", "head_dim", default=hidden // heads),
        "ffn": ffn,
        "vocab": first("vocab_size", default=32000),
        "experts": experts,
        "active_experts": first("num_experts_per_tok", "num_experts_per_token", "moe_topk", default=0),
        "expert_ffn": expert_ffn,
        "shared_ffn": first("shared_expert_intermediate_size") or expert_ffn * first("n_shared_experts"),
        "dense_layers": first("first_k_dense_replace") if experts else 0,
        "kv_width": latent + first("qk_rope_head_dim", default=64) if latent else 0,
        "attention_params": _latent_params(first, hidden, heads) if latent else 0,
    }
    if faults:
        raise ConfigError(faults)
    return ModelShape(
        name=text("_name_or_path", "model_type", default="model") or "model",
        gated=activation in ("silu", "swiglu", "swish") or "gemma" in text("model_type"),
        tied=data.get("tie_word_embeddings") is True,
        stored=_stored(data.get("quantization_config")),
        **sizes,
    )


def _stored(quantization: Any) -> str:
    """The format of published weights by the config's own words; bf16 where it says nothing that is known."""
    words = json.dumps(quantization, default=str).lower() if isinstance(quantization, dict) else ""
    return next((kind for kind in ("nvfp4", "mxfp4", "awq", "gptq", "fp8") if kind in words), "bf16")


def _latent_params(first: Callable[[str], int], hidden: int, heads: int) -> int:
    latent, rope, plain, values = map(first, ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    query = first("q_lora_rank")
    queries = hidden * query + query * heads * (plain + rope) if query else hidden * heads * (plain + rope)
    return int(queries + hidden * (latent + rope) + latent * heads * (plain + values) + heads * values * hidden)


def accepted_names() -> tuple[str, ...]:
    """All built-in models under all of their names."""
    return tuple(sorted(alias for name, entry in _entries().items() for alias in (name, *entry.get("aliases", ()))))


def _plain(name: str) -> str:
    """Letters and digits only; a decimal point stays visible, so that 1.3b is not 13b."""
    pointed = re.sub(r"(?<=\d)\.(?=\d)", "p", name.lower().replace("meta-llama-3", "llama-3"))
    return re.sub(r"[^a-z0-9]", "", pointed)


@cache
def _entries() -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = yaml.safe_load(files("autoscout.catalog").joinpath("data/models.yaml").read_text())["models"]
    return entries


@cache
def _by_alias() -> dict[str, ModelShape]:
    by_alias: dict[str, ModelShape] = {}
    for name, entry in _entries().items():
        shape = model_from({"name": name, **{key: value for key, value in entry.items() if key != "aliases"}})
        for alias in (name, *entry.get("aliases", ())):
            if by_alias.get(_plain(alias), shape) is not shape:
                raise ConfigError(Fault(where="data/models.yaml", value=alias, rule="two models have the same name"))
            by_alias[_plain(alias)] = shape
    return by_alias


__all__ = ["ModelShape", "accepted_names", "model", "model_from", "read_config"]

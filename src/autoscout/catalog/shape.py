"""The shape of a transformer: what of it costs time and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

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
    draft_layers: int = 0  # layers published with the model that guess further tokens (multi-token prediction)
    longest: int = 0  # tokens of the longest sequence it was made for; 0 = unknown
    encoder: bool = False  # it reads images, video or sound with an encoder of its own

    def __post_init__(self) -> None:
        rule = f"must be a whole number up to {MOST_SIZE:,}"
        sizes = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in ("name", "stored", "encoder")}
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


__all__ = ["MOST_SIZE", "ModelShape", "model_from"]

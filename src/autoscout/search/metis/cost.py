"""What a three-dimensional parallel plan of a transformer costs, roughly: compute, tensor and pipeline and gradient traffic, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from autoscout.core.config import Value

ALIASES = {
    "tp": ("tp", "tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size", "tp_size", "mp", "mp_size"),
    "pp": ("pp", "pipeline_parallel", "pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size"),
    "dp": ("dp", "data_parallel", "data_parallel_size", "dp_size"),
    "mbs": ("mbs", "micro_batch", "micro_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size_per_gpu"),
}
"""Part of a plan -> names that knobs have for it."""


def find_parts(names: Iterable[str]) -> dict[str, str]:
    """Part of a plan -> the knob that sets it, by the usual names; dashes, dots and case do not matter."""
    plain = {name.lower().replace("-", "_").rsplit(".", 1)[-1]: name for name in names}
    found = {}
    for part, aliases in ALIASES.items():
        name = next((plain[alias] for alias in aliases if alias in plain), None)
        if name is not None:
            found[part] = name
    return found


@dataclass(frozen=True, kw_only=True)
class Model:
    """The facts a cost needs; where a task does not say, a medium transformer on nodes of eight 80 GB GPUs."""

    layers: float = 32
    hidden: float = 4096
    seq_len: float = 2048
    vocab: float = 32000
    global_batch: float = 512
    gpus: float = 0
    gpus_per_node: float = 8
    memory_gb: float = 80
    flops: float = 312e12

    @classmethod
    def of(cls, facts: Mapping[str, Value]) -> Model:
        """From the facts of a task that have these names."""
        given = {}
        for name in cls.__dataclass_fields__:
            value = facts.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                given[name] = float(value)
        return cls(**given)

    @property
    def parameters(self) -> float:
        return 12.0 * self.layers * self.hidden**2 + self.vocab * self.hidden


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Degrees and micro batch."""

    tp: float = 1
    pp: float = 1
    dp: float = 1
    mbs: float = 1

    def step_s(self, model: Model) -> float:
        """Seconds of one step: stages in lockstep with a bubble, all-reduces inside layers, gradients at the end."""
        micro_batches = max(1.0, model.global_batch / (self.dp * self.mbs))
        tokens = self.mbs * model.seq_len
        efficiency = 0.55 * tokens / (tokens + 1024.0)
        compute = 6.0 * model.parameters * tokens / (self.tp * self.pp) / (model.flops * efficiency)
        inside, outside = 200e9, 20e9
        lane = inside if self.tp <= model.gpus_per_node else outside
        tensor = 8.0 * tokens * model.hidden * 2 * (self.tp - 1) / self.tp * model.layers / self.pp / lane
        hops = 0.0 if self.pp == 1 else 4.0 * tokens * model.hidden * 2 / (inside if self.tp * self.pp <= model.gpus_per_node else outside)
        gradient = 4.0 * model.parameters / (self.tp * self.pp) * (self.dp - 1) / self.dp / outside
        return (compute + tensor + hops) * (micro_batches + self.pp - 1) + gradient

    def memory_gb(self, model: Model) -> float:
        """Peak memory of a GPU of the first stage."""
        states = model.parameters / (self.tp * self.pp) * (4.0 + 12.0 / self.dp) * 1e-9
        in_flight = min(self.pp, max(1.0, model.global_batch / (self.dp * self.mbs)))
        activations = self.mbs * model.seq_len * model.hidden * 34e-9 / self.tp * model.layers / self.pp * in_flight
        return states + activations + 2.0

"""What a parallel plan of a transformer costs, roughly: compute, tensor and pipeline and gradient traffic, memory; by kind of GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autoscout.catalog.gpus import Cluster, cluster
from autoscout.catalog.models import ModelShape, model
from autoscout.catalog.placement import Placement, place
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError

ALIASES = {
    "tp": ("tp", "tensor_parallel", "tensor_parallel_size", "tensor_model_parallel_size", "tp_size", "mp", "mp_size"),
    "pp": ("pp", "pipeline_parallel", "pipeline_parallel_size", "pipeline_model_parallel_size", "pp_size"),
    "dp": ("dp", "data_parallel", "data_parallel_size", "dp_size"),
    "mbs": ("mbs", "micro_batch", "micro_batch_size", "train_micro_batch_size_per_gpu", "micro_batch_size_per_gpu"),
}
"""Part of a plan -> names that knobs have for it."""

EFFICIENCY = 0.55  # of the peak, that layers reach with endless micro-batches
INSIDE, OUTSIDE = 200e9, 20e9  # bytes/s between GPUs of a node, and between nodes, where the cluster does not say


def find_parts(names: Iterable[str]) -> dict[str, str]:
    """Part of a plan -> the knob that sets it, by the usual names; dashes, dots and case do not matter."""
    plain = {name.lower().replace("-", "_").rsplit(".", 1)[-1]: name for name in names}
    parts = {}
    for part, aliases in ALIASES.items():
        name = next((plain[alias] for alias in aliases if alias in plain), None)
        if name is not None:
            parts[part] = name
    return parts


@dataclass(frozen=True, kw_only=True)
class Kind:
    """GPUs of one kind."""

    gpus: float = 0
    flops: float = 312e12
    memory_gb: float = 80
    per_node: float = 8
    inside: float = INSIDE
    outside: float = OUTSIDE


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
    shape: ModelShape | None = None  # where the task names a model of the catalog
    cluster: Cluster | None = None  # where it names its GPUs

    @classmethod
    def of(cls, facts: Mapping[str, Value], workload: Mapping[str, Any] | None = None, hardware: Mapping[str, Any] | None = None) -> Model:
        """Read them from the facts of a task with these names, and from the model and the GPUs that it names."""
        values: dict[str, Any] = {}
        for name in ("layers", "hidden", "seq_len", "vocab", "global_batch", "gpus", "gpus_per_node", "memory_gb", "flops"):
            value = facts.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
                values[name] = float(value)
        load, machines = dict(workload or {}), dict(hardware or {})
        if isinstance(load.get("sequence"), (int, float)):
            values.setdefault("seq_len", float(load["sequence"]))
        named, text = load.get("model"), machines.get("gpus")
        if isinstance(named, str):
            with suppress(ConfigError):  # a model that nobody knows: the facts must do
                shape = model(named)
                values |= {"layers": float(shape.layers), "hidden": float(shape.hidden), "vocab": float(shape.vocab), "shape": shape}
        if isinstance(text, str) and not text.strip().isdecimal():
            with suppress(ConfigError):  # the same for GPUs
                gpus = cluster(text, machines.get("hardware_file"), nic_gbps=float(machines.get("nic_gbps") or 0.0))
                values |= {"gpus": float(gpus.gpus), "memory_gb": gpus.groups[0][0].memory_gb, "cluster": gpus}
        return cls(**values)

    @property
    def parameters(self) -> float:
        return float(self.shape.parameters) if self.shape else 12.0 * self.layers * self.hidden**2 + self.vocab * self.hidden

    @property
    def active_parameters(self) -> float:
        """Weights that one token meets."""
        return float(self.shape.active_parameters) if self.shape else self.parameters

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of GPU, in the order in which ranks fill them."""
        if self.cluster is None:
            return (Kind(gpus=self.gpus, flops=self.flops, memory_gb=self.memory_gb, per_node=self.gpus_per_node),)
        nic_gbps = [self.cluster.nic_gbps or gpu.nic_gbps for gpu, _ in self.cluster.groups]
        return tuple(
            Kind(
                gpus=float(count),
                flops=gpu.flops("bf16"),
                memory_gb=gpu.memory_gb,
                per_node=float(self.cluster.node_gpus or gpu.node_gpus),
                inside=gpu.scaleup_gbps * 1e9 * gpu.bus,
                outside=min(nic_gbps) * 1e9,
            )
            for gpu, count in self.cluster.groups
        )


@dataclass(frozen=True, kw_only=True)
class MetisPlan:
    """Degrees and micro batch; on several kinds of GPU also how many of each are used, what share of the work each gets, and the order."""

    tp: float = 1
    pp: float = 1
    dp: float = 1
    mbs: float = 1
    counts: tuple[float, ...] = ()
    shares: tuple[float, ...] = ()
    stages_inner: bool = False

    def step_s(self, model: Model) -> float:
        """Seconds of one step: stages in lockstep with a bubble, all-reduces inside layers, gradients at the end."""
        placed = self._placed(model)
        stage_s = np.array([[self._layer_s(model, model.kinds[kind]) for kind in row] for row in placed.kinds]) * placed.layers[
            :, None
        ] + self._hops_s(model, placed)
        slowest_s = stage_s.max(axis=0)
        pipeline_s = placed.micro_batches * slowest_s + stage_s.sum(axis=0) - slowest_s
        heaviest = float(placed.layers.max()) / model.layers
        outside = min(model.kinds[kind].outside for kind in np.unique(placed.kinds))
        gradient_s = 4.0 * model.parameters * heaviest / self.tp * (self.dp - 1) / self.dp / outside
        return float(pipeline_s.max() + gradient_s)

    def memory_gb(self, model: Model) -> float:
        """Peak memory of a GPU, of the fullest as a share of what it has, in terms of the first kind's."""
        placed = self._placed(model)
        needs = []
        for stage, row in enumerate(placed.kinds):
            held = float(placed.layers[stage]) / model.layers
            states = model.parameters * held / self.tp * (4.0 + 12.0 / self.dp) * 1e-9
            in_flight = min(self.pp - stage, float(placed.micro_batches.max()))
            activations = self.mbs * model.seq_len * model.hidden * 34e-9 / self.tp * float(placed.layers[stage]) * in_flight
            tightest = min(model.kinds[kind].memory_gb for kind in row)
            needs.append((states + activations + 2.0) * model.kinds[0].memory_gb / tightest)
        return float(max(needs))

    def _placed(self, model: Model) -> Placement:
        layout = {"tp": self.tp, "pp": self.pp, "dp": self.dp, "cp": 1.0, "virtual_stages": 1.0, "stages_inner": float(self.stages_inner)}
        counts = np.array(self.counts or [kind.gpus for kind in model.kinds])
        shares = np.array(self.shares or [1.0] * len(counts))
        return place(layout, counts, shares, model.layers, max(1.0, model.global_batch / self.mbs))

    def _layer_s(self, model: Model, kind: Kind) -> float:
        tokens = self.mbs * model.seq_len
        efficiency = EFFICIENCY * tokens / (tokens + 1024.0)
        compute_s = 6.0 * model.active_parameters / model.layers * tokens / self.tp / (kind.flops * efficiency)
        lane = kind.inside if self.tp <= kind.per_node else kind.outside
        return compute_s + 8.0 * tokens * model.hidden * 2 * (self.tp - 1) / self.tp / lane

    def _hops_s(self, model: Model, placed: Placement) -> float:
        if self.pp == 1:
            return 0.0
        first = model.kinds[0]
        near = self.tp * self.pp <= first.per_node and not placed.has_mixed_neighbours
        return 4.0 * self.mbs * model.seq_len * model.hidden * 2 / (first.inside if near else first.outside)


__all__ = ["ALIASES", "Kind", "MetisPlan", "Model", "find_parts"]

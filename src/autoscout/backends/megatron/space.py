"""The space of one task: the table's knobs with the facts of model and machine, and the layout that a person would begin with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscout.backends.megatron.settings import has_biases
from autoscout.backends.megatron.workload import MegatronWorkload
from autoscout.catalog.gpus import gpu
from autoscout.catalog.models import ModelShape
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError
from autoscout.engines.space import build_space as table_space
from autoscout.engines.space import offered
from autoscout.engines.table import EngineTable
from autoscout.space import Space
from autoscout.training.hardware import BYTES_PER_GB, local_processes, outside_knobs

DEGREES = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "virtual_stages")
STATE_BYTES = 18  # of a parameter in mixed precision: 2 for the weight, 4 for its gradient, 12 for the optimizer
ROOM = 0.7  # share of a GPU's memory that these may take in the layout to begin with; the rest is for activations


def build_space(table: EngineTable, workload: MegatronWorkload, hardware: Mapping[str, Any]) -> Space:
    """The space for one task."""
    names = facts(table, workload, hardware)
    space = table_space(table, names, defaults(workload, hardware))
    more = [knob for knob in outside_knobs(hardware) if knob.name not in space.knobs]
    return Space([*space.knobs.values(), *more], space.constraints, facts=dict(space.facts))


def facts(table: EngineTable, workload: MegatronWorkload, hardware: Mapping[str, Any]) -> dict[str, Value]:
    """What knobs and rules may read; a knob that is not offered is one of them, at the value that leaves it out."""
    shape, on_gpu = workload.architecture, hardware["device"] == "cuda"
    values: dict[str, Value] = {
        "processes": int(hardware["processes"]),
        "gpu": on_gpu,
        "native_bf16": bool(hardware["native_bf16"]),
        "native_fp8": on_gpu and _has_fp8(hardware),
        "checkout": bool(workload.checkout),
        "transformer_engine": bool(workload.transformer_engine),
        "layers": workload.least_layers,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "ffn": shape.ffn,
        "experts": shape.experts,
        "expert_ffn": shape.expert_ffn,
        "shared_ffn": shape.shared_ffn,
        "dense_layers": shape.dense_layers,
        "biases": has_biases(shape),
        "sequence": int(workload.shape["sequence"]),
        "global_batch": workload.global_batch,
        **({} if workload.checkout else {"vocab": shape.vocab}),
    }
    present = {row.name for row in offered(table, values)}
    left_out: dict[str, Value] = {name: 1 if name in DEGREES else False for name in table.knobs if name not in present}
    if "precision" in left_out:
        left_out["precision"] = "fp32"
    return {**values, **left_out}


def _has_fp8(hardware: Mapping[str, Any]) -> bool:
    try:
        return gpu(str(hardware.get("gpu", "")), hardware.get("hardware_file")).fp8_tflops > 0
    except ConfigError:
        return False


def defaults(workload: MegatronWorkload, hardware: Mapping[str, Any]) -> dict[str, Value]:
    """What a study begins with where Megatron has no default of its own, or one that nobody trains with.

    Half precision on GPUs, since every recipe of Megatron-LM sets it; as few tensor and then pipeline parallel processes as hold the
    model, since one GPU would not; and the fusions that Megatron-LM turns on by itself.
    """
    processes = int(hardware["processes"])
    tp, pp = _fitting(workload.architecture, workload.least_layers, hardware)
    fused = bool(workload.checkout)
    return {
        "tp": tp,
        "pp": pp,
        "dp": max(1, processes // (tp * pp)),
        "expert_tp": tp,
        "precision": "bf16" if hardware["device"] == "cuda" else "fp32",
        "overlap_p2p_comm": True,
        "bias_activation_fusion": fused,
        "bias_dropout_fusion": fused,
        "gradient_accumulation_fusion": fused,
    }


def _fitting(shape: ModelShape, layers: int, hardware: Mapping[str, Any]) -> tuple[int, int]:
    """The smallest tensor and pipeline parallel sizes whose share of weights, gradients and optimizer state fits; else the largest."""
    processes, room = int(hardware["processes"]), ROOM * float(hardware.get("memory_gb") or 0.0) * BYTES_PER_GB
    need = float(shape.parameters * STATE_BYTES)
    if not room or hardware["device"] != "cuda":
        return 1, 1
    within = local_processes(hardware)
    sizes = [
        (pp, tp)
        for tp in range(1, within + 1)
        for pp in range(1, processes // tp + 1)
        if processes % (tp * pp) == 0 and shape.heads % tp == 0 and shape.ffn % tp == 0 and layers % pp == 0
    ]
    fits = [size for size in sizes if size[0] * size[1] * room >= need]
    pp, tp = min(fits or sizes, key=lambda size: (size[0] * size[1] if fits else -size[0] * size[1], size[0]))
    return tp, pp


__all__ = ["DEGREES", "build_space", "defaults", "facts"]

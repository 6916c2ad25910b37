"""The space of one task: the table's knobs with the facts of model and machine, and where a study begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoscout.backends.megatron.mixed import EVEN, kinds_of, share_knobs, share_rules
from autoscout.backends.megatron.settings import OVERLAP_FLAG
from autoscout.backends.megatron.start import defaults
from autoscout.backends.megatron.workload import MegatronWorkload
from autoscout.catalog.gpus import gpu
from autoscout.core.config import Value
from autoscout.core.errors import ConfigError
from autoscout.engines.space import build_space as table_space
from autoscout.engines.space import offered
from autoscout.engines.table import EngineTable
from autoscout.space import Constraint, Knob, Space
from autoscout.training.hardware import outside_knobs

DEGREES = ("tp", "pp", "dp", "cp", "ep", "expert_tp", "virtual_stages")


def build_space(table: EngineTable, workload: MegatronWorkload, hardware: Mapping[str, Any]) -> Space:
    """The space for one task."""
    names = facts(table, workload, hardware)
    space = table_space(table, names, defaults(workload, hardware))
    more: list[Knob] = [knob for knob in outside_knobs(hardware) if knob.name not in space.knobs]
    kinds, rules = kinds_of(hardware) if workload.checkout else None, list(space.constraints)
    if kinds is not None:
        more += share_knobs(kinds)
        rules = share_rules(kinds, rules)
    elif workload.lists_stages:
        rules = [rule for rule in rules if rule.why != EVEN]
        rules.append(Constraint(f"pp == {workload.own.knobs.get('pp', 1)} and virtual_stages == 1", why="your own flags list the stages"))
    return Space([*space.knobs.values(), *more], rules, facts=dict(space.facts))


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
        "own_overlap_file": OVERLAP_FLAG in workload.own.names,
        "layers": workload.least_layers,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "ffn": shape.ffn,
        "experts": shape.experts,
        "expert_ffn": shape.expert_ffn,
        "shared_ffn": shape.shared_ffn,
        "dense_layers": shape.dense_layers,
        "biases": workload.has_biases,
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


__all__ = ["DEGREES", "build_space", "facts"]

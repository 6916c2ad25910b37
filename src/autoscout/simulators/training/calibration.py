"""Calibrations: fitted constants with a statement of the data that made them, shipped or written by `autoscout calibrate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from autoscout.common.outcome import is_number
from autoscout.core.errors import ConfigError, Fault
from autoscout.simulators._shared.calibration import check_constants, mape_of, read_calibration
from autoscout.simulators.training.arithmetic import log2
from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import TrainingJob
from autoscout.simulators.training.memory import MemoryConstants
from autoscout.simulators.training.shapes import PLACE, LayerShapes

STACKS = {
    "megatron": "megatron-core",
    "megatron-core": "megatron-core",
    "megatron-lm": "megatron-core",
    "megatron-bridge": "megatron-core",
    "nemo": "megatron-core",
    "transformer-engine": "megatron-core",
    "torchtitan": "fsdp",
    "fsdp": "fsdp",
    "llm-foundry": "fsdp",
    "litgpt": "fsdp",
    "accelerate": "fsdp",
    "transformers": "fsdp",
    "deepspeed": "megatron-deepspeed",
    "megatron-deepspeed": "megatron-deepspeed",
}
"""Software that a task may name -> shipped calibration; anything else takes `default`, pooled over all of them."""


_IN_PLACE = {"loss_fused": 1.0}
_HALF = {"gradient_bytes": 2.0, **_IN_PLACE}
_DOES: dict[str, dict[str, float]] = {"nemo": _HALF, "megatron-bridge": _HALF, "llm-foundry": _IN_PLACE, "litgpt": _IN_PLACE}
"""Software -> what it does otherwise than its stack: gradients are reduced in 2 bytes, the loss works in place or in pieces."""
_ADDS_UP = ("deepspeed", "megatron-deepspeed")
"""Software that adds up bf16 gradients in a second buffer of 4 bytes, which ZeRO-1 does not divide."""


def usual(software: str, precision: str) -> dict[str, float]:
    """What a software does besides what its calibration assumes."""
    name = software.lower().replace("_", "-")
    sums = {"sum_bytes": 4.0} if name in _ADDS_UP and precision.lower() in ("bf16", "bfloat16", "amp_bf16") else {}
    return {**_DOES.get(name, {}), **sums}


RANGE_MARGIN = 0.1
"""Powers of two beyond the data that still count as inside."""


@dataclass(frozen=True, kw_only=True)
class TrainingCalibration:
    """Constants of one software stack and where they hold."""

    name: str
    constants: TrainingConstants = field(default_factory=TrainingConstants)
    memory: MemoryConstants = field(default_factory=MemoryConstants)
    shapes: LayerShapes = field(default_factory=LayerShapes)
    spread: float = 0.3  # standard deviation of the log error in grouped cross-validation
    made_from: str = "nothing: textbook values"
    rows: int = 0
    mape: float | None = 0.0  # in grouped cross-validation; None where the data has only one workload
    assumes: Mapping[str, float] = field(default_factory=dict)  # values of knobs that this software uses when a task does not set them
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # log2 of each feature, 5th to 95th percentile
    evidence: Mapping[str, Mapping[str, float]] = field(
        default_factory=dict
    )  # constant -> the tables that it was fitted to, and their shares

    def known(self, job: TrainingJob, count: int) -> NDArray[np.float64]:
        """1 inside the calibration data; halved for every doubling of a feature outside it."""
        if not self.ranges:
            return np.full(count, 0.25)
        same, away = 0.0, np.zeros(count)
        for name, value in features(job).items():
            low, high = self.ranges.get(name, (-np.inf, np.inf))
            if isinstance(value, np.ndarray):
                away = away + np.maximum(0.0, np.maximum(low - value, value - high) - RANGE_MARGIN)
            else:
                same += max(0.0, low - value - RANGE_MARGIN, value - high - RANGE_MARGIN)
        return np.asarray(np.exp2(-away - same), dtype=np.float64)

    def has_range_for(self, flops: float) -> bool:
        """Whether GPUs of about this speed made the constants."""
        low, high = self.ranges.get("flops", (-np.inf, np.inf))
        return bool(low - 0.5 <= np.log2(flops) <= high + 0.5)


def features(job: TrainingJob) -> dict[str, Any]:
    """What says how far a job is from others: sizes in powers of two."""
    lay = job.layout
    per_layer = job.attention_params + job.ffn_matrices * job.hidden * job.ffn
    return {
        "layer_params": log2(per_layer),
        "tokens": log2(job.tokens),
        "sequence": log2(job.sequence),
        "gpus": log2(lay.tp * lay.pp * lay.dp * lay.cp),
        "tp": log2(lay.tp),
        "pp": log2(lay.pp),
        "flops": log2(job.flops),
        "experts": log2(1.0 + job.experts),
    }


def training_calibration(stack: str = "", path: str | Path | None = None) -> TrainingCalibration:
    """The calibration of a stack: the file at `path`, else the shipped one whose software is named, else the pooled default."""
    if path:
        return _from_json(read_calibration(path, "training"), str(path))
    shipped = _shipped()
    return shipped.get(stack) or shipped.get(STACKS.get(stack.lower().replace("_", "-"), "default")) or TrainingCalibration(name="textbook")


def save_calibration(calibration: TrainingCalibration, path: str | Path) -> None:
    """Write a calibration that `training_calibration(path=...)` reads."""
    Path(path).write_text(yaml.safe_dump(to_json(calibration), sort_keys=False, width=140))


def to_json(calibration: TrainingCalibration) -> dict[str, Any]:
    """Plain data; constants with four significant digits, more than the data supports."""
    data = asdict(calibration)
    data["assumes"] = dict(calibration.assumes)
    data["shapes"] = [[*point, log] for point, log in zip(calibration.shapes.points, calibration.shapes.logs, strict=True)]
    data["ranges"] = {name: [float(f"{value:.4g}") for value in pair] for name, pair in calibration.ranges.items()}
    data["evidence"] = {
        name: {table: float(f"{share:.2g}") for table, share in shares.items()} for name, shares in data["evidence"].items()
    }
    for part in ("constants", "memory"):
        data[part] = {name: float(f"{value:.4g}") for name, value in data[part].items()}
    return {"kind": "training", **data}


def _from_json(data: Mapping[str, Any], where: str) -> TrainingCalibration:
    names = {"constants": TrainingConstants.names(), "memory": [item.name for item in fields(MemoryConstants)]}
    assumes, ranges, evidence = (data.get(name) or {} for name in ("assumes", "ranges", "evidence"))
    faults: list[Fault] = []
    if not isinstance(assumes, Mapping) or not all(map(is_number, assumes.values())):
        faults.append(Fault(where=where, field="assumes", value=repr(assumes), rule="must map names to numbers"))
    if not isinstance(ranges, Mapping) or not all(_has_numbers(pair, 2) for pair in ranges.values()):
        faults.append(Fault(where=where, field="ranges", value=repr(ranges), rule="must map names to two numbers"))
    if not isinstance(evidence, Mapping) or not all(
        isinstance(one, Mapping) and all(map(is_number, one.values())) for one in evidence.values()
    ):
        rule = "must map names of constants to names of tables with their shares"
        faults.append(Fault(where=where, field="evidence", value=repr(evidence)[:200], rule=rule))
    check_constants(data, names, where, ("spread",), faults)
    return TrainingCalibration(
        name=str(data.get("name", where)),
        constants=TrainingConstants(**data.get("constants", {})),
        memory=MemoryConstants(**data.get("memory", {})),
        shapes=_shapes(data.get("shapes") or (), where),
        spread=0.3 if data.get("spread") is None else float(data["spread"]),
        made_from=str(data.get("made_from", "")),
        rows=int(data.get("rows") or 0),
        mape=mape_of(data),
        assumes={str(name): float(value) for name, value in assumes.items()},
        ranges={str(name): (float(pair[0]), float(pair[1])) for name, pair in ranges.items()},
        evidence={str(name): {str(table): float(share) for table, share in shares.items()} for name, shares in evidence.items()},
    )


def _has_numbers(values: object, count: int) -> bool:
    return isinstance(values, (list, tuple)) and len(values) == count and all(map(is_number, values))


def _shapes(rows: Sequence[Sequence[float]], where: str) -> LayerShapes:
    """Each row is a place and the logarithm of measured over predicted."""
    width = len(PLACE) + 1
    if not isinstance(rows, (list, tuple)) or not all(_has_numbers(row, width) for row in rows):
        rule = f"each needs {width} numbers: {', '.join(PLACE)} and the logarithm of measured over predicted"
        raise ConfigError(Fault(where=where, field="shapes", rule=rule, fix="Write it with autoscout calibrate"))
    points = tuple(tuple(float(value) for value in row[:-1]) for row in rows)
    return LayerShapes(points=points, logs=tuple(float(row[-1]) for row in rows))


@cache
def _shipped() -> dict[str, TrainingCalibration]:
    source = files("autoscout.simulators.training").joinpath("calibrations.yaml")
    if not source.is_file():
        return {}
    entries = yaml.safe_load(source.read_text())["training"]
    return {entry["name"]: _from_json(entry, "calibrations.yaml") for entry in entries}


__all__ = ["STACKS", "TrainingCalibration", "features", "save_calibration", "to_json", "training_calibration", "usual"]

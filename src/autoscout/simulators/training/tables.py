"""Tables of published or own training measurements as jobs with measured step times, for calibration."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.gpus import Cluster, gpu
from autoscout.catalog.models import ModelShape, model
from autoscout.common.document import read_rows
from autoscout.core.errors import ConfigError, Fault
from autoscout.simulators._shared.task import number
from autoscout.simulators.training.job import TrainingJob
from autoscout.simulators.training.read import TrainingTask, read_layout, stacked, training_job


@dataclass(frozen=True, kw_only=True)
class TrainingTable:
    """Rows that could be read, with the seconds per step that were measured (nan = out of memory)."""

    name: str
    job: TrainingJob
    step_s: NDArray[np.float64]
    groups: list[str]  # the workload of each row: model, GPUs, batch, length
    rows: list[dict[str, Any]]
    peak_bytes: NDArray[np.float64]  # nan where not given
    skipped: int = 0


def read_training_table(path: str | Path, *, given: Mapping[str, Any] | None = None, zero: float = 1.0) -> TrainingTable:
    """Read a CSV whose columns are knob names plus model, gpu, n_gpus, seq, gbs and one measurement.

    The measurement is the first of iter_ms, iter_s, step_s, tokens_s_gpu, tflops_gpu that a row fills in; a row with a
    `status` other than ok and no time counts as one that did not run. `given` fills columns that the file lacks.
    """
    rows = [{**(given or {}), **{key: value for key, value in row.items() if value not in ("", None)}} for row in read_rows(Path(path))]
    return table_of(Path(path).stem, rows, zero=zero)


def table_of(name: str, rows: Iterable[Mapping[str, Any]], *, zero: float = 1.0) -> TrainingTable:
    """The same from rows in memory."""
    jobs, times, groups, kept, peaks, skipped = [], [], [], [], [], 0
    for row in rows:
        try:
            reading, job = _read_row(row, zero)
            step_s = _measured_s(row, reading)
            peak = float(row["peak_mem_gib"]) * 2**30 if row.get("peak_mem_gib") else math.nan
        except (ConfigError, ValueError, TypeError, KeyError, ArithmeticError):
            skipped += 1
            continue
        if not math.isfinite(step_s) and row.get("status", "ok") == "ok":
            skipped += 1
            continue
        jobs.append(job)
        times.append(step_s)
        kept.append(dict(row))
        peaks.append(peak)
        shape = reading.shape
        machines = "+".join(f"{count}x{kind.name}" for kind, count in reading.cluster.groups)
        parts = (shape.name, shape.layers, shape.hidden, machines, reading.precision, reading.global_batch, reading.sequence)
        groups.append(" ".join(map(str, parts)))
    if not jobs:
        fix = "Needed: model (or layers, hidden, heads), gpu, n_gpus, seq, gbs and a time"
        raise ConfigError(Fault(where=name, rule="no row of the table could be read", fix=fix))
    return TrainingTable(
        name=name, job=stacked(jobs), step_s=np.array(times), groups=groups, rows=kept, peak_bytes=np.array(peaks), skipped=skipped
    )


def _read_row(row: Mapping[str, Any], zero: float) -> tuple[TrainingTask, TrainingJob]:
    gpus = number(row.get("n_gpus") or row.get("gpus"))
    kind = gpu(str(row.get("gpu") or row.get("system")), row.get("hardware_file"))
    machines = Cluster(
        groups=((kind, max(1, int(gpus))),), node_gpus=int(number(row.get("node_gpus"))), nic_gbps=number(row.get("nic_gbps"))
    )
    knobs = dict(row)
    fsdp = number(row.get("fsdp"))
    if fsdp > 1:
        knobs.update(dp=fsdp, zero=3.0)
    layout = read_layout([knobs], {}, gpus, zero)
    sequence = number(row.get("seq") or row.get("sequence"))
    batch = number(row.get("gbs") or row.get("global_batch"))
    if not batch and row.get("micro_num"):
        batch = number(row["micro_num"]) * float(np.ravel(layout.micro_batch * layout.dp)[0])
    if not (sequence > 0 and batch > 0):
        raise ConfigError(Fault(where="row", rule="sequence length and global batch are needed"))
    reading = TrainingTask(
        shape=_shape(row),
        cluster=machines,
        sequence=sequence,
        global_batch=batch,
        precision=_precision(row),
        fixed={},
    )
    return reading, training_job(reading, layout)


def _precision(row: Mapping[str, Any]) -> str:
    if row.get("float8"):
        return "fp8"
    word = str(row.get("precision") or "bf16").lower().split("-")[0]
    return word


def _shape(row: Mapping[str, Any]) -> ModelShape:
    if row.get("layers") and row.get("hidden"):
        return ModelShape(
            name=str(row.get("model") or "model"),
            layers=int(row["layers"]),
            hidden=int(row["hidden"]),
            heads=int(row["heads"]),
            kv_heads=int(row.get("kv_heads") or row["heads"]),
            ffn=int(row.get("ffn") or 4 * int(row["hidden"])),
            gated=bool(number(row.get("gated", 0))),
            vocab=int(row.get("vocab") or 51200),
            tied=bool(number(row.get("tied", 1))),
        )
    name = re.sub(r"\s*\(.*\)", "", str(row.get("model"))).replace("_", "-").replace(" ", "-")
    return model({"GPT-175B": "gpt3-175b", "GPT-530B": "turing-530b"}.get(name, name))


def _measured_s(row: Mapping[str, Any], reading: TrainingTask) -> float:
    tokens = reading.global_batch * reading.sequence
    gpus = reading.cluster.gpus
    if row.get("iter_ms"):
        return float(row["iter_ms"]) / 1e3
    if row.get("iter_s") or row.get("step_s"):
        return float(row.get("iter_s") or row["step_s"])
    if row.get("tokens_s_gpu"):
        return tokens / (float(row["tokens_s_gpu"]) * gpus)
    if row.get("tflops_gpu"):
        return model_flops(reading.shape, reading.sequence, tokens) / (float(row["tflops_gpu"]) * 1e12 * gpus)
    return math.nan


def model_flops(shape: ModelShape, sequence: float, tokens: float) -> float:
    """Forward and backward of `tokens` tokens without recomputation, attention counted in full (the Megatron convention)."""
    embedding = shape.vocab * shape.hidden * (1 if not shape.tied else 0)
    attention = 12.0 * shape.attention_layers * sequence * shape.heads * shape.head_size
    return tokens * (6.0 * (shape.active_parameters - embedding) + attention)


__all__ = ["TrainingTable", "model_flops", "read_training_table", "table_of"]

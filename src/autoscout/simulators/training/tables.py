"""Tables of published or own training measurements as jobs with measured step times, for calibration."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.gpus import Cluster, gpu
from autoscout.catalog.models import ModelShape, model
from autoscout.core.errors import ConfigError, Fault
from autoscout.simulators._shared.rows import RowReport, csv_rows, positive
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
    left_out: tuple[str, ...] = ()  # rows that lack something: where, and what


def read_training_table(path: str | Path, *, columns: Mapping[str, Any] | None = None, zero: float = 1.0) -> TrainingTable:
    """Read a CSV whose columns are knob names plus model, gpu, n_gpus, seq, gbs and one measurement.

    The measurement is the first of iter_ms, iter_s, step_s, tokens_s_gpu, tflops_gpu that a row fills in; a row with a
    `status` other than ok and no time counts as one that did not run. `columns` fills columns that the file lacks.

    Raises:
        ConfigError: no table, times that are no positive numbers, layouts that cannot be, or no row that can be used.
    """
    rows = [(line, {**(columns or {}), **row}) for line, row in csv_rows(Path(path))]
    return _table(Path(path).stem, str(path), rows, zero)


def table_of(name: str, rows: Iterable[Mapping[str, Any]], *, zero: float = 1.0) -> TrainingTable:
    """Read a table from rows in memory."""
    return _table(name, name, list(enumerate(rows, 1)), zero)


def _table(name: str, where: str, rows: Iterable[tuple[int, Mapping[str, Any]]], zero: float) -> TrainingTable:
    report = RowReport(name=where)
    jobs, times, groups, good_rows, peaks = [], [], [], [], []
    for line, row in rows:
        try:
            reading, job = _read_row(row, zero)
            step_s = _measured_s(row, reading)
            peak = positive(row, "peak_mem_gib") * 2**30
            _check_layout(job, reading)
        except _ImpossibleError as error:
            report.wrong += [replace(fault, where=f"{where}:{line}") for fault in error.faults]
            continue
        except (ConfigError, ValueError, TypeError, KeyError, ArithmeticError) as error:
            report.without(line, error)
            continue
        if not math.isfinite(step_s) and row.get("status", "ok") == "ok":
            report.without(line, ConfigError(Fault(where="row", rule="no time is given, and no status says that it did not run")))
            continue
        jobs.append(job)
        times.append(step_s)
        good_rows.append(dict(row))
        peaks.append(peak)
        shape = reading.shape
        machines = "+".join(f"{count}x{kind.name}" for kind, count in reading.cluster.groups)
        parts = (shape.name, shape.layers, shape.hidden, machines, reading.precision, reading.global_batch, reading.sequence)
        groups.append(" ".join(map(str, parts)))
    report.refuse()
    if not jobs:
        fix = "Needed: model (or layers, hidden, heads), gpu, n_gpus, seq, gbs and a time"
        reason = f"; the first: {report.left_out[0]}" if report.left_out else ""
        raise ConfigError(Fault(where=where, rule=f"no row of the table could be read{reason}", fix=fix))
    return TrainingTable(
        name=name,
        job=stacked(jobs),
        step_s=np.array(times),
        groups=groups,
        rows=good_rows,
        peak_bytes=np.array(peaks),
        left_out=tuple(report.left_out),
    )


class _ImpossibleError(ConfigError):
    """A row that says something that cannot be."""


def _check_layout(job: TrainingJob, reading: TrainingTask) -> None:
    lay, gpus = job.layout, reading.cluster.gpus
    degrees = {name: float(np.ravel(getattr(lay, name))[0]) for name in ("tp", "pp", "cp", "dp", "ep", "micro_batch", "virtual_stages")}
    faults = [
        Fault(where="row", field=name, value=f"{value:g}", rule="must be a whole number of at least 1")
        for name, value in degrees.items()
        if value != int(value) or value < 1
    ]
    ranks = degrees["tp"] * degrees["pp"] * degrees["cp"] * degrees["dp"]
    if ranks > gpus:
        faults.append(Fault(where="row", field="tp x pp x cp x dp", value=f"{ranks:g}", rule=f"more ranks than the {gpus} GPUs"))
    if degrees["pp"] > reading.shape.layers:
        faults.append(
            Fault(where="row", field="pp", value=f"{degrees['pp']:g}", rule=f"more stages than the {reading.shape.layers} layers")
        )
    if faults:
        raise _ImpossibleError(faults)


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
    knobs["precision"] = _precision(row)
    knobs.setdefault("peft", row.get("task"))
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
        precision=knobs["precision"],
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
    try:
        cells = {name: positive(row, name) for name in ("iter_ms", "iter_s", "step_s", "tokens_s_gpu", "tflops_gpu")}
    except ConfigError as error:
        raise _ImpossibleError(error.faults) from error
    if not math.isnan(cells["iter_ms"]):
        return cells["iter_ms"] / 1e3
    if not math.isnan(cells["iter_s"]):
        return cells["iter_s"]
    if not math.isnan(cells["step_s"]):
        return cells["step_s"]
    if not math.isnan(cells["tokens_s_gpu"]):
        return tokens / (cells["tokens_s_gpu"] * gpus)
    return model_flops(reading.shape, reading.sequence, tokens) / (cells["tflops_gpu"] * 1e12 * gpus)


def model_flops(shape: ModelShape, sequence: float, tokens: float) -> float:
    """Forward and backward of `tokens` tokens without recomputation, attention counted in full (the Megatron convention)."""
    embedding = shape.vocab * shape.hidden * (1 if not shape.tied else 0)
    attention = 12.0 * shape.attention_layers * sequence * shape.heads * shape.head_size
    return tokens * (6.0 * (shape.active_parameters - embedding) + attention)


__all__ = ["TrainingTable", "model_flops", "read_training_table", "table_of"]

"""Tables of serving measurements as jobs, for calibration and judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.gpus import gpu, gpu_fields
from autoscout.catalog.models import model
from autoscout.core.errors import ConfigError
from autoscout.simulators._shared.rows import RowReport, csv_rows, positive
from autoscout.simulators.serving.job import (
    ENGINES,
    LENGTH_SPREAD,
    ServingJob,
    bytes_per_weight,
    model_serving_fields,
    precision_named,
)


@dataclass(frozen=True, kw_only=True)
class ServingTable:
    """Rows that could be read, with what was measured (nan = not given)."""

    name: str
    job: ServingJob
    tpot_s: NDArray[np.float64]
    ttft_s: NDArray[np.float64]
    models: list[str]
    groups: list[str]  # the question that layouts compete for: model, GPU, engine, lengths, concurrency
    rows: list[dict[str, Any]]
    left_out: tuple[str, ...] = ()  # rows that cannot be used: where, and why


def read_serving_table(path: str | Path) -> ServingTable:
    """Read a CSV with the columns of the silicon sample: model_path, system, backend, isl, osl, batch_size, tp_size, ...

    Raises:
        ConfigError: no table, or times that are no positive numbers.
    """
    return _table(Path(path).stem, str(path), csv_rows(Path(path)))


def serving_table(name: str, rows: Iterable[Mapping[str, Any]]) -> ServingTable:
    """Read a table from rows in memory; rows of disaggregated runs and of unknown models are left out."""
    return _table(name, name, enumerate(rows, 1))


def _table(name: str, where: str, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> ServingTable:
    report = RowReport(name=where)
    jobs: list[dict[str, float]] = []
    good_rows: list[dict[str, Any]] = []
    groups, models, times = [], [], []
    for line, row in rows:
        try:
            if row.get("mode", "agg") != "agg":
                raise ConfigError("disaggregated")
            job = _read(row)
        except (ConfigError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            report.without(line, error)
            continue
        try:
            taken = (positive(row, "silicon_tpot_ms") / 1e3, positive(row, "silicon_ttft_ms") / 1e3)
        except ConfigError as error:
            report.wrong += [replace(fault, where=f"{where}:{line}") for fault in error.faults]
            continue
        jobs.append(job)
        times.append(taken)
        good_rows.append(dict(row))
        models.append(row["model_path"].split("/")[-1])
        parts = (row["model_path"], row["system"], row["backend"], row["isl"], row["osl"], row.get("concurrency"), row.get("precision"))
        groups.append(" ".join(map(str, parts)))
    report.refuse()
    columns = {item.name: np.array([job.get(item.name, item.default) for job in jobs]) for item in fields(ServingJob)}
    return ServingTable(
        name=name,
        job=ServingJob(**columns),
        tpot_s=np.array([one for one, _ in times]),
        ttft_s=np.array([other for _, other in times]),
        models=models,
        groups=groups,
        rows=good_rows,
        left_out=tuple(report.left_out),
    )


def _read(row: Mapping[str, str]) -> dict[str, float]:
    shape = model(row["model_path"])
    linear = str(row.get("gemm_quant_mode") or row.get("precision") or "bf16").lower()
    routed = str(row.get("moe_quant_mode") or linear).lower()
    precision = _precision(linear)
    kv = 1.0 if "fp8" in str(row.get("kvcache_quant_mode", "")).lower() else 2.0

    def count(name: str) -> float:
        return max(1.0, float(row.get(name) or 1))

    sizes = {name: float(row[name]) for name in ("isl", "osl", "batch_size")}
    if not all(0.0 < size < float("inf") for size in sizes.values()):
        raise ConfigError(f"isl, osl and batch_size must be positive, not {sizes}")
    booked = tuple(count(name) for name in ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size"))
    tp, attention_dp, moe_tp, moe_ep = _layout(booked, bool(shape.experts))
    batch = float(row["batch_size"])
    if attention_dp < booked[1]:  # requests were divided among replicas that are not there
        batch *= booked[1] / attention_dp
    return {
        **model_serving_fields(shape),
        **gpu_fields(gpu(row["system"]), precision=precision),
        "weight_bytes": bytes_per_weight(precision),
        "expert_bytes": bytes_per_weight(_precision(routed)),
        "kv_bytes": kv,
        "tp": tp,
        "pp": count("pp_size"),
        "attention_dp": attention_dp,
        "moe_tp": moe_tp,
        "moe_ep": moe_ep,
        "engine": float(ENGINES.index(row["backend"])),
        "input_tokens": float(row["isl"]),
        "output_tokens": float(row["osl"]),
        "batch": batch,
        "length_spread": float(row.get("length_spread") or LENGTH_SPREAD) if str(row.get("length_spread")) != "0" else 0.0,
    }


def _layout(booked: tuple[float, ...], moe: bool) -> tuple[float, float, float, float]:
    """Layout without the sample's double booking, and with the attention replicas that it leaves blank.

    It books n ranks with n-fold expert parallelism as n x n: 64 for TP8 or attention-DP8 with EP8, in one node of 8. Where experts lie on
    more ranks than attention, and nothing else is said, attention is replicated.
    """
    tp, attention_dp, moe_tp, moe_ep = booked
    if moe and moe_tp == moe_ep and tp * attention_dp == moe_tp * moe_ep > 8.0:
        return (moe_ep, 1.0, 1.0, moe_ep) if tp > 1.0 else (1.0, moe_ep, 1.0, moe_ep)
    if moe and attention_dp == 1.0 and moe_tp * moe_ep > tp:
        attention_dp = moe_tp * moe_ep / tp
    return tp, attention_dp, moe_tp, moe_ep


def _precision(word: str) -> str:
    precision = precision_named(word)
    if precision is None:
        raise ConfigError(f"unknown precision {word!r}")
    return precision


def serving_rows(job: ServingJob, chosen: NDArray[Any]) -> ServingJob:
    """Some rows of a job of arrays."""
    return ServingJob(**{item.name: getattr(job, item.name)[chosen] for item in fields(ServingJob)})


__all__ = ["ServingTable", "read_serving_table", "serving_rows", "serving_table"]

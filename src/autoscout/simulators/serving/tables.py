"""Tables of serving measurements as jobs, for calibration and judgement."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.catalog.gpus import gpu, gpu_fields
from autoscout.catalog.models import model
from autoscout.common.document import read_rows
from autoscout.core.errors import ConfigError
from autoscout.simulators.serving.job import (
    ENGINES,
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
    skipped: int = 0


def read_serving_table(path: str | Path) -> ServingTable:
    """Read a CSV with the columns of the silicon sample: model_path, system, backend, isl, osl, batch_size, tp_size, ..."""
    return serving_table(Path(path).stem, read_rows(Path(path)))


def serving_table(name: str, rows: Iterable[Mapping[str, Any]]) -> ServingTable:
    """The same from rows in memory; rows of disaggregated runs and of unknown models are skipped."""
    jobs: list[dict[str, float]] = []
    kept: list[dict[str, Any]] = []
    groups, models, skipped = [], [], 0
    for row in rows:
        try:
            if row.get("mode", "agg") != "agg":
                raise ConfigError("disaggregated")
            jobs.append(_read(row))
        except (ConfigError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
            skipped += 1
            continue
        kept.append(dict(row))
        models.append(row["model_path"].split("/")[-1])
        parts = (row["model_path"], row["system"], row["backend"], row["isl"], row["osl"], row.get("concurrency"), row.get("precision"))
        groups.append(" ".join(map(str, parts)))
    columns = {item.name: np.array([job[item.name] for job in jobs]) for item in fields(ServingJob)}
    return ServingTable(
        name=name,
        job=ServingJob(**columns),
        tpot_s=np.array([_seconds(row, "silicon_tpot_ms") for row in kept]),
        ttft_s=np.array([_seconds(row, "silicon_ttft_ms") for row in kept]),
        models=models,
        groups=groups,
        rows=kept,
        skipped=skipped,
    )


def _seconds(row: Mapping[str, Any], name: str) -> float:
    """A measured time; nan where it is not given or cannot be one."""
    try:
        found = float(row.get(name) or "nan") / 1e3
    except ValueError:
        return float("nan")
    return found if 0.0 < found < float("inf") else float("nan")


def _read(row: Mapping[str, str]) -> dict[str, float]:
    shape = model(row["model_path"])
    linear = str(row.get("gemm_quant_mode") or row.get("precision") or "bf16").lower()
    routed = str(row.get("moe_quant_mode") or linear).lower()
    precision = _precision(linear)
    kv = 1.0 if "fp8" in str(row.get("kvcache_quant_mode", "")).lower() else 2.0

    def count(name: str) -> float:
        return max(1.0, float(row.get(name) or 1))

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
    found = precision_named(word)
    if found is None:
        raise ConfigError(f"unknown precision {word!r}")
    return found


def serving_rows(job: ServingJob, chosen: NDArray[Any]) -> ServingJob:
    """Some rows of a job of arrays."""
    return ServingJob(**{item.name: getattr(job, item.name)[chosen] for item in fields(ServingJob)})


__all__ = ["ServingTable", "read_serving_table", "serving_rows", "serving_table"]

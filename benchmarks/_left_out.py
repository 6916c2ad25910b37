"""Whole sources left out, one at a time: what constants made from the others say of each, as one line of figures per source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from autoscout.catalog.gpus import gpu, gpu_fields
from autoscout.catalog.models import model as shape_of
from autoscout.common.stats import grouped, mape, spread_of
from autoscout.core.errors import ConfigError
from autoscout.simulators.serving.calibration import models_left_out, serving_calibration
from autoscout.simulators.serving.job import ServingJob, bytes_per_weight, model_serving_fields
from autoscout.simulators.serving.model import ServingModel
from autoscout.simulators.serving.step import running_requests, token_interval_s
from autoscout.simulators.training.calibrate import BOUNDS, fit_constants
from autoscout.simulators.training.constants import TrainingConstants
from autoscout.simulators.training.job import ParallelLayout
from autoscout.simulators.training.memory import MemoryConstants, spare_room, step_memory
from autoscout.simulators.training.step import step_time
from autoscout.simulators.training.tables import TrainingTable
from benchmarks._experiments import experiment_metrics, experiment_rows
from benchmarks._simulator_tables import (
    GROUND_TRUTH,
    TABLES,
    amp_tables,
    families,
    layout_tables,
    longseq_table,
    rows_of_file,
    serving_sample,
    training_tables,
)
from benchmarks.calibrate_shipped import PLANS

Vector = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Score:
    """How good predictions of one source are; ranks and regret over workloads with at least two layouts, None without one."""

    rows: int
    mape: float
    median: float  # of the absolute error
    bias: float  # median of predicted over measured
    spearman: float | None
    regret: float | None  # how much slower the predicted best is than the real best
    within_one: float  # share of errors within the stated spread; 0.68 is honest
    within_two: float  # within twice the spread; 0.95 is honest


def score(
    predicted: Vector, measured: Vector, spread: float | Vector, groups: Sequence[object] | None = None, choices: Sequence[object] = ()
) -> Score:
    """`choices` tells which rows of a group are the same layout, measured several times."""
    good = np.isfinite(predicted) & np.isfinite(measured)
    error = np.abs(np.log(predicted[good] / measured[good])) / np.broadcast_to(spread, predicted.shape)[good]
    ranks, regrets = [], []
    for rows in grouped(groups) if groups is not None else ():
        rows = rows[good[rows]]
        same = (
            [rows[places] for places in grouped([choices[row] for row in rows])]
            if choices
            else [rows[[place]] for place in range(len(rows))]
        )
        guess, real = (np.array([part[one].mean() for one in same]) for part in (predicted, measured))
        if len(guess) >= 3:
            ranks.append(float(spearmanr(guess, real).statistic) if np.ptp(guess) > 0 and np.ptp(real) > 0 else 0.0)
            regrets.append(float(real[np.argmin(guess)] / real.min() - 1.0))
    ratio = predicted[good] / measured[good]
    return Score(
        rows=int(good.sum()),
        mape=mape(predicted[good], measured[good]),
        median=float(np.median(np.abs(ratio - 1.0))),
        bias=float(np.median(ratio)),
        spearman=float(np.mean(ranks)) if ranks else None,
        regret=float(np.mean(regrets)) if regrets else None,
        within_one=float(np.mean(error <= 1.0)),
        within_two=float(np.mean(error <= 2.0)),
    )


def training_scores() -> dict[str, Score]:
    """Every training source, predicted with constants from all other ones."""
    tables = training_tables()
    names = [name for name in PLANS["default"][1] if name in BOUNDS]
    alone = {name: fit_constants([other for key, other in tables.items() if key != name], names) for name in tables}
    whole = fit_constants(list(tables.values()), names)
    judged = {name: (table, alone[name]) for name, table in tables.items()}
    judged |= {table.name: (table, whole) for table in (*amp_tables(), longseq_table(), *layout_tables(TABLES).values())}
    guesses = {name: time_of(table, constants) for name, (table, constants) in judged.items()}
    errors = {name: np.log(guesses[name] / table.step_s) for name, (table, _) in judged.items()}
    return {
        name: score(guesses[name], table.step_s, stated_spread(errors, name), table.groups, layouts_of(table))
        for name, (table, _) in judged.items()
    }


def memory_scores() -> dict[str, dict[str, float | None]]:
    """Share of failures said to fit, and of runs said not to fit; nothing is fitted."""
    constants = MemoryConstants()
    found: dict[str, dict[str, float | None]] = {}
    for name, table in (training_tables() | {table.name: table for table in (*amp_tables(), *layout_tables(TABLES).values())}).items():
        ran = np.isfinite(table.step_s)
        said = spare_room(step_memory(table.job, constants), table.job.memory_bytes, constants) >= constants.margin
        fits = np.broadcast_to(said, ran.shape)
        false_fits = float(np.mean(fits[~ran])) if (~ran).any() else None
        shares = {"false_fits": false_fits, "false_not": float(np.mean(~fits[ran]))}
        found[name] = {"runs": int(ran.sum()), "failures": int((~ran).sum()), **{key: _rounded(value) for key, value in shares.items()}}
    return found


def stated_spread(errors: dict[str, Vector], left_out: str) -> float:
    """The spread that the other sources' errors would state, each source counting the same."""
    parts = [error[np.isfinite(error)] for name, error in errors.items() if name != left_out]
    least = max(len(part) for part in parts)
    return spread_of(np.concatenate([np.resize(part, least) for part in parts]))


def time_of(table: TrainingTable, constants: TrainingConstants) -> Vector:
    return np.array(np.broadcast_to(step_time(table.job, constants).total_s, table.step_s.shape))


def layouts_of(table: TrainingTable) -> list[tuple[float, ...]]:
    """What tells the choices of one workload apart."""
    columns = [np.broadcast_to(getattr(table.job.layout, item.name), table.step_s.shape) for item in fields(ParallelLayout)]
    return [tuple(row) for row in np.stack(columns, axis=1).tolist()]


def serving_scores() -> dict[str, Score]:
    """The silicon sample with families of models left out; the other sources are never fitted to."""
    table = serving_sample()
    names, moe = families(table), table.job.experts > 0
    unseen = models_left_out(table, names, loop=True)
    found = {}
    for word, predicted, measured in (
        ("time between tokens", unseen.tpot_s, table.tpot_s),
        ("time between tokens, loop", unseen.loop_tpot_s, table.tpot_s),
        ("time to first token", unseen.loop_ttft_s, table.ttft_s),
    ):
        for kind, rows in (("dense", ~moe), ("MoE", moe)):
            held = [name for name, use in zip(names, rows, strict=True) if use]
            error = np.log(predicted[rows] / measured[rows])
            spread = np.array([_others_spread(error, held, name) for name in held])
            groups = [group for group, use in zip(table.groups, rows, strict=True) if use]
            found[f"silicon {kind}, {word}"] = score(predicted[rows], measured[rows], spread, groups)
    return found | request_scores() | full_load_scores()


def _others_spread(errors: Vector, names: Sequence[str], left_out: str) -> float:
    others = np.array([name != left_out for name in names]) & np.isfinite(errors)
    return spread_of(errors[others]) if others.any() else spread_of(errors[np.isfinite(errors)])


def request_scores() -> dict[str, Score]:
    """inference-sim's vLLM experiments at a request rate."""
    calibration, found = serving_calibration(), {}
    simulator, rows = ServingModel(), experiment_rows()
    for word, metric, ours, spread in (
        ("end to end", "e2e_mean", "mean_e2e_ms", calibration.spread),
        ("time to first token", "ttft_mean", "mean_ttft_ms", calibration.first_spread),
        ("time between tokens", "itl_mean", "mean_tpot_ms", calibration.spread),
    ):
        pairs = [(experiment_metrics(simulator, row)[ours], float(row["actual_ms"])) for row in rows if row["metric"] == metric]
        predicted, measured = (np.array(part) for part in zip(*pairs, strict=True))
        found[f"inference-sim, {word}"] = score(predicted, measured, spread)
    return found


def full_load_scores() -> dict[str, Score]:
    """TensorRT-LLM's published throughput at full load, dense and MoE."""
    job, measured, _ = full_load_rows()
    calibration = serving_calibration()
    # at full load all of the prompts' time is felt, whoever waits for it
    constants = replace(calibration.constants, together=0.0, lockstep=0.0)
    predicted = running_requests(job) * job.attention_dp / token_interval_s(job, constants)
    moe = job.experts > 0
    return {
        f"TensorRT-LLM full load, {word}": score(predicted[rows], measured[rows], spread)
        for word, rows, spread in (("dense", ~moe, calibration.spread), ("MoE", moe, calibration.expert_spread))
    }


def full_load_rows() -> tuple[ServingJob, Vector, list[str]]:
    """Jobs, output tokens per second and GPUs, with as many requests as the cache holds (2,048 at most); no pipelines."""
    jobs, measured, gpus = [], [], []
    for row in rows_of_file(GROUND_TRUTH / "serve_trtllm_perf_overview.csv"):
        whole = row["metric"] == "total_output_tok_s"
        if not (whole or row["metric"] == "output_tok_s_per_gpu") or row.get("pp", "1") != "1" or float(row["isl"]) < 2:
            continue
        try:
            found = _loaded(row)
        except ConfigError:
            continue
        jobs.append(found)
        gpus.append(row["gpu"].split()[0])
        measured.append(float(row["value"]) * (1.0 if whole else found["tp"] * found["attention_dp"]))
    job = ServingJob(**{item.name: np.array([found.get(item.name, item.default) for found in jobs]) for item in fields(ServingJob)})
    return job, np.array(measured), gpus


_GPUS = {"H100 80GB HBM3": "H100", "H200 141GB HBM3": "H200", "A100-PCIE-80GB": "A100-PCIe-80", "RTX6000ProBlackwell": "RTX-PRO-6000"}
_GPUS |= {"GH200 120GB": "GH200", "GH200 480GB": "GH200"}


def _loaded(row: dict[str, Any]) -> dict[str, float]:
    name = row["model"].lower().replace("llama v", "llama-").replace(" ", "-").replace("gptj", "gpt-j").replace("-0528", "")
    precision = {"FP16": "bf16", "FP8": "fp8", "FP4": "fp4"}[row["precision"]]
    tp, experts_on = float(row.get("tp", 1)), float(row.get("dep", 1))
    weight = bytes_per_weight(precision)
    return {
        **model_serving_fields(shape_of(name)),
        **gpu_fields(gpu(_GPUS.get(row["gpu"], row["gpu"])), precision=precision),
        "weight_bytes": weight,
        "expert_bytes": weight,
        "kv_bytes": 2.0 if precision == "bf16" else 1.0,  # quantised checkpoints of this engine carry scales for an fp8 cache
        "tp": tp,
        "pp": 1.0,
        "attention_dp": experts_on,
        "moe_tp": tp,
        "moe_ep": experts_on,
        "engine": 2.0,
        "input_tokens": float(row["isl"]),
        "output_tokens": float(row["osl"]),
        "batch": float(row.get("max_batch", 2048)),
        "length_spread": 0.0,
    }


def to_json(scores: dict[str, Score]) -> dict[str, Any]:
    """Plain data, with the medians over sources."""
    plain = {name: {key: _rounded(value) for key, value in asdict(one).items()} for name, one in scores.items()}
    medians = {key: _median([one[key] for one in plain.values()]) for key in ("mape", "regret")}
    return {"sources": plain, "median_over_sources": medians}


def _median(values: Sequence[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return _rounded(float(np.median(given))) if given else None


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if isinstance(value, float) else value


__all__ = ["Score", "full_load_rows", "layouts_of", "memory_scores", "score", "serving_scores", "time_of", "to_json", "training_scores"]

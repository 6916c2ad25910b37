"""The reference data beside the repository, for golden tests; tests skip where it is absent."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tie_order import Manner, Reference, TieOrder

from autoscout.sched.cluster import Cluster
from autoscout.sched.forecast import Forecast
from autoscout.sched.interference import Interference
from autoscout.sched.readers import read
from autoscout.sched.scheduler import Scheduler, believed_s
from autoscout.sched.trace import Labels, Trace

TRACES = Path(__file__).resolve().parents[2].parent / "shared" / "traces"
CLOCK_ZERO_S = 1_585_670_551.0
FORECAST_START_S = CLOCK_ZERO_S + 13_219_200.0
PHILLY_START_S = 1_506_038_400.0
WEEK_S = 604_800.0
MANNERS = (  # chosen by trial; what one does not solve, another does
    Manner(seed=5, plain=60, aside=0.1, tries=8_000),
    Manner(seed=2, plain=20, aside=0.1, tries=15_000),
    Manner(seed=4, plain=20, aside=0.2, tries=20_000),
)

needs_traces = pytest.mark.skipif(not (TRACES / "golden").exists(), reason="the reference traces do not lie beside the repository")


def rows(name: str) -> list[dict[str, str]]:
    with gzip.open(TRACES / name, "rt") as lines:
        return list(csv.DictReader(lines))


def venus() -> Trace:
    """Venus in September 2020, simultaneous jobs by their numbers."""
    trace = read(TRACES / "helios_venus_2020-09.csv.gz")
    estimates = {row["job_id"]: float(row["ebm_duration_estimate"]) for row in rows("aux/lucid_venus_duration_estimates.csv.gz")}
    believed = np.asarray([estimates[job] for job in trace.job_id])
    trace = trace.with_extra(estimate_s=believed)
    return trace.take(np.lexsort((trace.job_id.astype(np.int64), trace.submit_s)))


def venus_order(trace: Trace, schedulers: Mapping[str, Scheduler], name: str) -> NDArray[np.int64]:
    """Rows of the trace with simultaneous jobs in an order that all golden files allow and that explains the one of a policy best."""
    estimate = believed_s(trace)
    alike = {
        "fifo": (),
        "sjf": (trace.duration_s,),
        "qssf": (estimate, trace.gpus),
        "srtf": (trace.gpus, trace.duration_s),
        "tiresias": (trace.gpus,),
    }
    outcomes = {each: golden(f"venus_2020-09_{each}", trace, "start_time", "end_time") for each in schedulers}
    place = np.empty(len(trace))
    for vc in venus_cluster().vcs:
        jobs = np.flatnonzero(trace.vc.codes == trace.vc.code(vc))
        references = {
            each: Reference(
                scheduler=scheduler,
                start_s=outcomes[each][0][jobs],
                end_s=outcomes[each][1][jobs],
                alike=tuple(column[jobs] for column in alike[each]),
            )
            for each, scheduler in schedulers.items()
        }
        kind = (trace.gpus[jobs], trace.duration_s[jobs], estimate[jobs])
        for manner in MANNERS:
            found = TieOrder(trace.take(jobs), venus_cluster().part(vc), references, kind, (name,), manner)
            if found.solve():
                break
        place[jobs[found.order]] = np.arange(len(jobs))
    return np.lexsort((place, trace.submit_s))


def venus_cluster() -> Cluster:
    return Cluster.read(TRACES / "helios_venus_vc_nodes.csv")


def philly_window() -> Trace:
    return read(TRACES / "philly_2017.csv.gz").between(PHILLY_START_S, PHILLY_START_S + 2 * WEEK_S)


def golden(name: str, trace: Trace, *columns: str) -> list[NDArray[np.float64]]:
    """Columns of a golden file in the order of the trace."""
    by_id = {row["job_id"]: row for row in rows(f"golden/{name}.csv.gz")}
    return [np.asarray([float(by_id[job][column]) for job in trace.job_id]) for column in columns]


def _model(row: dict[str, str], suffix: str = "") -> str:
    return "/".join(row[part + suffix] for part in ("model", "dataset", "batchsize", "amp"))


def with_profiles(trace: Trace) -> Trace:
    """Models, utilisation, memory and sharing scores as the Lucid artifact assigns them."""
    assigned = {row["job_id"]: row for row in rows("aux/lucid_venus_workload_assignment.csv.gz")}
    scores = {_model(row): float(row["label"]) for row in rows("aux/lucid_single_workload_profiles.csv.gz")}
    models = [_model(assigned[job]) for job in trace.job_id]
    more = trace.with_extra(
        sharing=[scores[model] for model in models],
        memory_mb=[float(assigned[job]["gmem"]) for job in trace.job_id],
        gpu_util=[float(assigned[job]["gpu_util"]) for job in trace.job_id],
    )
    return replace(more, name=Labels.of(models))


def interference(models: tuple[str, ...]) -> Interference:
    """Measured pairs; pairs with one of four models were never measured and do not disturb each other in the artifact."""
    pairs = [
        (_model(row, "1"), _model(row, "2"), float(row["speed1"]), float(row["speed2"]))
        for row in rows("aux/lucid_colocation_pairs.csv.gz")
    ]
    apart = {"NeuMF", "ResNet50", "BERT", "Transformer"}
    pairs += [(a, b, 1.0, 1.0) for a in models for b in models if apart & {a.split("/")[0], b.split("/")[0]}]
    return Interference.of(pairs)


def forecast() -> Forecast:
    table = rows("aux/lucid_venus_throughput_forecast.csv.gz")
    at = FORECAST_START_S + 600.0 * np.arange(len(table))
    return Forecast(
        at, np.asarray([float(row["pred_gpu_job"]) for row in table]), np.asarray([float(row["pred_gpu_num"]) for row in table])
    )

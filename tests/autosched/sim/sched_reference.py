"""Reference traces in `../shared/traces` next to the repository, for golden tests; tests skip where the folder is absent."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autosched.sim.cluster import Cluster
from autosched.sim.forecast import Forecast
from autosched.sim.interference import Interference
from autosched.sim.scheduler import Scheduler
from autosched.sim.trace import Labels, Trace
from autosched.traces.read import read
from autoscout_lab.reference.lucid import LucidFIFO, LucidLucid, LucidQSSF, LucidSJF, LucidSRTF, LucidTiresias

TRACES = Path(__file__).resolve().parents[3].parent / "shared" / "traces"
CLOCK_ZERO_S = 1_585_670_551.0
FORECAST_START_S = CLOCK_ZERO_S + 13_219_200.0
PHILLY_START_S = 1_506_038_400.0
WEEK_S = 604_800.0
TIES = Path(__file__).resolve().parents[2] / "golden" / "sched" / "venus_ties.npz"
"""By policy: place of each job among those submitted in the same second, less its place in `venus()`; see `in_its_order`."""

VENUS: dict[str, Scheduler] = {
    "fifo": LucidFIFO(),
    "sjf": LucidSJF(),
    "qssf": LucidQSSF(),
    "srtf": LucidSRTF(),
    "tiresias": LucidTiresias(round_offset_s=CLOCK_ZERO_S),
}


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


def in_its_order(trace: Trace, name: str) -> Trace:
    """Venus with simultaneous jobs in the order that a reference run must have had.

    Lucid's simulator read its jobs from a log that was not published and sorted it by second of submission, not stably, so which of
    two simultaneous jobs comes first is an input of its runs that the traces do not hold. The recorded orders were searched for,
    once per policy, until every start, end and preemption agreed: they show that an order exists that explains the outcomes, not
    that it is predicted.
    """
    with np.load(TIES) as orders:
        return trace.take(np.arange(len(trace)) + orders[name])


def lucid(jobs: Trace) -> LucidLucid:
    """Lucid with the settings, forecasts and measured pairs of its artifact."""
    return LucidLucid(
        profiler_from=("vc8Gr", "vcefl"),
        elastic_from="vcYVn",
        clock_zero_s=CLOCK_ZERO_S,
        forecast=forecast(),
        interference=interference(jobs.name.names),
    )


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

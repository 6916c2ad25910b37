"""The closed loop over scheduler settings next to what it is compared with, and its parts next to trivial baselines.

    python -m benchmarks.autosched --quick --json        # one small synthetic cell, under three minutes
    python -m benchmarks.autosched --runs FILE --json    # everything; interrupted runs are resumed from the file
    python -m benchmarks.autosched --runs FILE --write   # and docs/results/autosched.md

Cells are a week of a trace, a scheduler, a load (the cluster is sized so that the week's demand is that share of it) and a seed; every mode
of the loop runs through each (`--traces`, `--schedulers`, `--loads`, `--seeds`, `--modes` choose some). The parts: accuracy of duration
ranges (Table 3), errors of the causal model (Table 4), similarity metrics (Table 5), generated arrivals (Figure 8), and the search
controller with and without causal model and aggregation (Figures 10-12, 14-16, 19-20). All simulated. Without `../shared/traces` synthetic
traces stand in, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.sched.cluster import Cluster
from autoscout.sched.generate.arrivals import DAY_S, WEEK_S, Generator
from autoscout.sched.generate.errors import table as generator_table
from autoscout.sched.predict.accuracy import accuracy
from autoscout.sched.readers import read
from autoscout.sched.trace import Labels, Trace
from autoscout.sched.tune.case import Case
from autoscout.sched.tune.loop import Course, Loop
from autoscout.sched.tune.modes import MODES, Mode
from autoscout.sched.workload.synthetic import Recipe, generate
from benchmarks._autosched_page import page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "sched"))
import sched_reference as reference  # noqa: E402

SHARED = ROOT.parent / "shared" / "traces"
PAGE = ROOT / "docs" / "results" / "autosched.md"
FILES = {"philly": "philly_2017.csv.gz", "venus": "helios_venus_2020-09.csv.gz"}
FIRST_DAY = {"philly": 18, "venus": 11}  # of the first scored week, from the start of the file: 22 September 2017, 12 September 2020
CONTROLLERS = {"neither": (False, False), "causal model": (True, False), "aggregation": (False, True), "both": (True, True)}


@dataclass(frozen=True)
class Cell:
    """One run of the loop; equal cells are run once."""

    trace: str
    scheduler: str
    load: float
    week: int
    seed: int
    mode: str
    variant: str = ""

    @property
    def key(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)


@cache
def trace_of(name: str) -> Trace:
    """A trace as one virtual cluster; a synthetic one where the file is not there."""
    path = SHARED / FILES.get(name, "")
    if name == "quick":
        return generate(Recipe(profile="philly", jobs=1_600, days=5, load=1.0, cluster_gpus=48, seed=7))
    jobs = read(path) if path.is_file() else generate(Recipe(profile=name, jobs=24_000, days=32, seed=7))
    return replace(jobs, vc=Labels.constant("", len(jobs)))


@cache
def profiled(name: str) -> Trace:
    """The same with what Lucid wants to know of jobs, where that is published: estimates, sharing scores, memory and utilisation."""
    jobs = trace_of(name)
    if name != "venus" or not (SHARED / "aux").is_dir():
        return jobs
    known = reference.with_profiles(reference.venus())
    place = {job: row for row, job in enumerate(known.job_id.tolist())}
    rows = np.asarray([place[job] for job in jobs.job_id.tolist()], np.int64)
    return jobs.with_extra(**{column: values[rows] for column, values in known.extra.items()})


@cache
def case_of(trace: str, scheduler: str, load: float, week: int) -> Case:
    """A week on a cluster that its demand loads so much."""
    jobs = profiled(trace) if scheduler == "lucid" else trace_of(trace)
    length = WEEK_S if trace != "quick" else DAY_S
    first = np.floor(jobs.submit_s[0] / DAY_S) * DAY_S
    begin = first + FIRST_DAY.get(trace, 3) * DAY_S + week * length
    window = jobs.between(begin, begin + length)
    nodes = max(2, round(window.gpu_seconds / length / 8 / load))
    known = jobs.between(-np.inf, begin + length)
    fitting = known.keep(known.gpus <= (nodes - 1) * 8, "fits the cluster")
    goal = "fair" if scheduler == "themis" else "time"
    return Case(trace=fitting, cluster=Cluster.parse(f"{nodes}x8"), scheduler=scheduler, from_s=begin, to_s=begin + length, goal=goal)


def mode_of(cell: Cell) -> Mode:
    mode = MODES[cell.mode]
    kind, _, value = cell.variant.partition(":")
    if kind == "metric":
        return replace(mode, generator=Generator(metric=value))
    if kind == "controller":
        causal, aggregate = CONTROLLERS[value]
        return replace(mode, causal=causal, aggregate=aggregate)
    return mode


def run(cell: Cell) -> dict[str, Any]:
    """The record of one run."""
    case = case_of(cell.trace, cell.scheduler, cell.load, cell.week)
    began = time.process_time()
    course = Loop(case, mode_of(cell), cell.mode, cell.seed).run()
    size = {"gpus": case.cluster.gpus, "jobs": len(case.trace), "days": (case.to_s - case.from_s) / DAY_S}
    return {**asdict(cell), **_figures(course), **size, "total_s": time.process_time() - began}


def _figures(course: Course) -> dict[str, Any]:
    changed = [each for each in course.decisions if each.changed]
    found: dict[str, Any] = {
        **course.metrics,
        "decisions": len(course.decisions),
        "changes": course.changes,
        "cpu_s": course.cpu_s,
        "start_cpu_s": course.start_cpu_s,
        "simulations": sum(each.simulations for each in course.decisions),
        "rejected": sum(each.rejected for each in course.decisions),
        "stopped": sum(each.stopped for each in course.decisions),
        "predicted": [each.predicted for each in changed],
        "realised": [each.realised if np.isfinite(each.realised) else None for each in changed],
        "start": course.start.to_json(),
    }
    if course.model is not None:
        found["causal_error"] = float(np.mean(course.model.errors)) if course.model.errors else None
        found["causal_edges"] = len(course.model.graph.edges)
        found["causal_method"] = course.model.graph.method
    return found


def cells(chosen: argparse.Namespace) -> Iterator[Cell]:
    """Every mode in every cell, then the variants of the paper's mode."""
    for trace in chosen.traces:
        for scheduler in chosen.schedulers:
            for load in chosen.loads:
                for week in range(chosen.weeks):
                    for mode in chosen.modes:
                        seeds = 1 if mode == "static" else chosen.seeds
                        for seed in range(seeds):
                            yield Cell(trace, scheduler, load, week, seed, mode)
    if chosen.cells_only:
        return
    for trace in chosen.traces:
        for metric in ("manhattan", "euclidean", "pearson", "cosine"):
            yield Cell(trace, "tiresias", chosen.loads[-1], 0, 0, "paper", f"metric:{metric}")
        for scheduler in chosen.schedulers:
            for name in CONTROLLERS:
                yield Cell(trace, scheduler, chosen.loads[-1], 0, 0, "paper", f"controller:{name}")


def parts(traces: list[str], rounds: int) -> dict[str, Any]:
    """Range accuracy and generator errors, every way of counting, next to the trivial baselines."""
    found: dict[str, Any] = {}
    for name in traces:
        case = case_of(name, "tiresias", 1.0, 0)
        window = case.trace.between(case.from_s - 2 * WEEK_S, case.to_s)
        rows = {"with user": accuracy(window, rounds=rounds)}
        if window.user.names != ("",):
            rows["without user"] = accuracy(window, models=("histogram-trees", "xgboost"), rounds=rounds, with_user=False)
        errors = generator_table(window)
        found[name] = {
            "ranges": {kind: {model: asdict(row) for model, row in each.items()} for kind, each in rows.items()},
            "arrivals": {method: asdict(row) for method, row in errors.items()},
        }
    return found


def gains(records: list[dict[str, Any]], over: str) -> dict[str, list[float]]:
    """Mode -> how many times better than another mode, seed by seed, in every cell where both ran."""
    base: dict[tuple[Any, ...], list[float]] = {}
    for record in records:
        if record["mode"] == over and not record["variant"]:
            base.setdefault(_where(record), []).append(record[_metric(record)])
    found: dict[str, list[float]] = {}
    for record in records:
        if not record["variant"] and _where(record) in base:
            one, other = float(np.median(base[_where(record)])), record[_metric(record)]
            found.setdefault(record["mode"], []).append(other / one if record["scheduler"] == "themis" else one / other)
    return found


def _where(record: dict[str, Any]) -> tuple[Any, ...]:
    return record["trace"], record["scheduler"], record["load"], record["week"]


def _metric(record: dict[str, Any]) -> str:
    return "fair_share" if record["scheduler"] == "themis" else "time_s"


def summary(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per cell and mode: medians over seeds and weeks, with the range."""
    rows = []
    for trace, scheduler, load in sorted({(each["trace"], each["scheduler"], each["load"]) for each in records}):
        mine = [each for each in records if (each["trace"], each["scheduler"], each["load"]) == (trace, scheduler, load)]
        over = {name: gains(mine, name) for name in ("static", "fixed-history", "fixed-oracle")}
        for mode in MODES:
            runs = [each for each in mine if each["mode"] == mode and not each["variant"]]
            if not runs:
                continue
            row: dict[str, Any] = {"trace": trace, "scheduler": scheduler, "load": load, "mode": mode, "runs": len(runs)}
            for name, values in over.items():
                if values.get(mode):
                    row[f"over_{name}"] = [float(np.median(values[mode])), min(values[mode]), max(values[mode])]
            days = np.median([each["days"] for each in runs])
            decisions = max(1, int(np.median([each["decisions"] for each in runs])))
            row["decisions"] = int(np.median([each["decisions"] for each in runs]))
            row["decisions_an_hour"] = float(row["decisions"] / days / 24)
            row["changes_a_week"] = float(np.median([each["changes"] for each in runs]) * 7 / days)
            row["cpu_s_per_decision"] = float(np.median([each["cpu_s"] - each["start_cpu_s"] for each in runs]) / decisions)
            row["cpu_s_a_day"] = float(np.median([each["cpu_s"] for each in runs]) / days)
            row["simulations_per_decision"] = float(np.median([each["simulations"] for each in runs]) / decisions)
            row["stopped_share"] = sum(each["stopped"] for each in runs) / max(1, sum(each["simulations"] for each in runs))
            both = [
                (one, other)
                for each in runs
                for one, other in zip(each["predicted"], each["realised"], strict=True)
                if one is not None and other is not None
            ]
            row["known_changes"] = len(both)
            if both:
                row["predicted"], row["realised"] = (float(np.median(column)) for column in zip(*both, strict=True))
                row["gained"] = float(np.mean([other > 1.0 for _, other in both]))
            row["fair_share"] = float(np.median([each["fair_share"] for each in runs]))
            row["time_s"] = float(np.median([each["time_s"] for each in runs]))
            rows.append(row)
    return rows


def controller_rows(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Quality and cost of the paper's mode with and without its parts, and by similarity metric."""
    found = []
    for each in records:
        if each["variant"]:
            kind, _, value = each["variant"].partition(":")
            row = {name: each[name] for name in ("trace", "scheduler", "load", "time_s", "fair_share", "simulations", "rejected", "cpu_s")}
            found.append({"kind": kind, "value": value, **row, "causal_error": each.get("causal_error")})
    return found


def known_runs(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None or not path.exists():
        return {}
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        found[Cell(**{name: record[name] for name in Cell.__dataclass_fields__}).key] = record
    return found


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small synthetic cell")
    parser.add_argument("--runs", type=Path, help="file that keeps finished runs, one per line")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--traces", nargs="+", default=["philly", "venus"])
    parser.add_argument("--schedulers", nargs="+", default=["tiresias", "themis", "lucid"])
    parser.add_argument("--loads", nargs="+", type=float, default=[0.8, 1.0, 1.2])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--weeks", type=int, default=1)
    parser.add_argument("--cells-only", action="store_true", help="leave the variants and the parts out")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.traces, chosen.schedulers, chosen.loads, chosen.seeds, chosen.cells_only = ["quick"], ["tiresias"], [1.2], 1, True
    return chosen


def main() -> None:
    chosen = options()
    done = known_runs(chosen.runs)
    records = []
    for cell in cells(chosen):
        record = done.get(cell.key)
        if record is None:
            record = run(cell)
            print(
                f"{cell.key}: {record['time_s']:,.0f} s, {record['changes']} changes, {record['total_s']:.1f} s CPU",
                file=sys.stderr,
                flush=True,
            )
            if chosen.runs:
                with chosen.runs.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(record) + "\n")
        records.append(record)
    report = {
        "sources": sorted({trace_of(name).source for name in chosen.traces}),
        "cells": summary(records),
        "controller": controller_rows(records),
        "parts": {} if chosen.cells_only and not chosen.quick else parts(chosen.traces, 20 if chosen.quick else 100),
    }
    if chosen.json:
        print(json.dumps(report))
    else:
        print(page(report, "python -m benchmarks.autosched"))
    if chosen.write:
        PAGE.write_text(page(report, " ".join(["python -m benchmarks.autosched", *sys.argv[1:]])), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The closed loop over scheduler settings next to what it is compared with, and its parts next to trivial baselines.

    python -m benchmarks.autosched --quick --json                  # one small synthetic cell, under three minutes
    python -m benchmarks.autosched --runs FILE --write             # the paper's evaluation; interrupted runs are resumed from the file
    python -m benchmarks.autosched --grid strategies --runs FILE --write    # our strategies against it, and the parts

Cells are a week of a trace, a scheduler, a load (the cluster is sized so that the week's demand is that share of it) and a seed; every mode
of the loop runs through each. `GRIDS` says which cells there are and how many seeds each has; `--traces`, `--schedulers`, `--loads`,
`--weeks`, `--seeds`, `--modes` choose among them. The parts: accuracy of duration ranges (Table 3), errors of the causal model (Table 4),
similarity metrics (Table 5), generated arrivals (Figure 8), the search controller with and without causal model and aggregation
(Figures 10-12, 14-16, 19-20), and causal graphs with what followed from them (Figures 7, 17, 21). All simulated. Philly and Venus are
read from `../shared/traces`; where they are not there, and for PAI, synthetic traces stand in, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from autosched.arrivals.arrivals import DAY_S, HOUR_S, WEEK_S
from autosched.arrivals.counts import DISTANCES
from autosched.arrivals.errors import table as generator_table
from autosched.arrivals.synthetic import Recipe, generate
from autosched.predict.accuracy import accuracy
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.session import Session
from autosched.sim.trace import Labels, Trace
from autosched.traces.read import read
from autosched.tune.case import Case
from autosched.tune.futures import Future, outcome
from autosched.tune.loop import Loop, ModeRun, Shared
from autosched.tune.modes import MODES, Mode
from benchmarks._autosched_page import HOURLY, commit, page
from benchmarks._autosched_paper import draw
from benchmarks._autosched_paper import page as evaluation

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "autosched" / "sim"))
import sched_reference as reference  # noqa: E402

SHARED = ROOT.parent / "shared" / "traces"
RESULTS = ROOT / "docs" / "autosched" / "results"
PAGES = {"paper": RESULTS / "evaluation.md", "strategies": RESULTS / "autosched.md"}
FILES = {"philly": "philly_2017.csv.gz", "venus": "helios_venus_2020-09.csv.gz"}
FIRST_DAY = {"philly": 25, "venus": 11, "pai": 11}
"""Of the first scored week, from the start of the file: 29 September 2017 and 12 September 2020. In the week before it at least half as
many jobs arrived as in a mean week, so the cluster is in use when it begins; in the paper's window of Philly, from 22 September, it is
empty."""
THRESHOLDS = (18_000.0, 200_000.0, 700_000.0, 2_000_000.0)
"""End of the first of two queues of Tiresias in GPU-seconds: the published default, and what it might be instead."""
CONTROLLERS = {"neither": (False, False), "causal model": (True, False), "aggregation": (False, True)}
PAI = Recipe(profile="pai", jobs=48_000, days=32, seed=7)
"""As many jobs a week as Philly has."""


SCHEDULERS = ("tiresias", "themis", "lucid")
ONCE = {"static": 1, "selftune": 1, "paper": 1}
STRATEGIES = {**dict.fromkeys(MODES, 1), "fixed-history": 5, "fixed-oracle": 5, "default": 5}


@dataclass(frozen=True, eq=False)
class Place:
    """A week of a trace under a load: which schedulers run there, and how many seeds each mode has."""

    trace: str
    load: float
    week: int = 0
    schedulers: tuple[str, ...] = SCHEDULERS
    seeds: Mapping[str, int] = field(default_factory=lambda: ONCE)
    has_variants: bool = False


GRIDS = {
    "paper": (
        *(Place(trace, 1.2, schedulers=("tiresias",)) for trace in ("venus", "philly")),
        Place("pai", 1.2, schedulers=("tiresias",), seeds={"static": 1, "selftune": 1}),
    ),
    "strategies": tuple(Place(trace, load, seeds=STRATEGIES) for load in (1.2, 1.0, 0.8) for trace in ("philly", "venus")),
}
"""Chosen before the runs, for what they cost. `paper` looks every five minutes, and a week takes more than all other modes of its seed
together, so it has one seed. `static` draws nothing."""


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
    if name == "pai":
        return replace(jobs := generate(PAI), vc=Labels.constant("", len(jobs)))
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
    return _case(jobs, scheduler, load, first + FIRST_DAY.get(trace, 3) * DAY_S + week * length, length)


def _case(jobs: Trace, scheduler: str, load: float, begin: float, length: float) -> Case:
    window = jobs.between(begin, begin + length)
    nodes = max(2, round(window.gpu_seconds / length / 8 / load))
    known = jobs.between(-np.inf, begin + length)
    fitting = known.keep(known.gpus <= (nodes - 1) * 8, "fits the cluster")
    goal = "fair" if scheduler == "themis" else "time"
    return Case(trace=fitting, cluster=Cluster.parse(f"{nodes}x8"), scheduler=scheduler, from_s=begin, to_s=begin + length, goal=goal)


@lru_cache(maxsize=1)
def shared_of(trace: str, scheduler: str, load: float, week: int) -> Shared:  # noqa: ARG001 - one of each cell
    """What the modes of a cell that are run one after the other share."""
    return Shared()


def mode_of(cell: Cell) -> Mode:
    mode = MODES[cell.mode]
    kind, _, value = cell.variant.partition(":")
    if kind == "metric":
        return replace(mode, generators=(replace(mode.generators[0], metric=value),))
    if kind == "controller":
        causal, aggregate = CONTROLLERS[value]
        return replace(mode, causal=causal, aggregate=aggregate)
    return mode


def run(cell: Cell) -> dict[str, Any]:
    """The record of one run."""
    case = case_of(cell.trace, cell.scheduler, cell.load, cell.week)
    mode, shared = mode_of(cell), shared_of(cell.trace, cell.scheduler, cell.load, cell.week)
    began = time.process_time()
    course = Loop(case, mode, cell.mode, cell.seed, shared).run()
    size = {"gpus": case.cluster.gpus, "jobs": len(case.trace), "days": (case.to_s - case.from_s) / DAY_S}
    return {**asdict(cell), **_figures(course, mode.draws), **size, "total_s": time.process_time() - began, "commit": commit()}


def _figures(course: ModeRun, draws: int) -> dict[str, Any]:
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
        "not_searched": sum(each.simulations <= draws for each in course.decisions),
        "predicted": [each.predicted for each in changed],
        "realised": [each.realised if np.isfinite(each.realised) else None for each in changed],
        "start": course.start.to_json(),
    }
    if course.model is not None:
        graph = course.model.graph
        found["causal_error"] = float(np.mean(course.model.errors)) if course.model.errors else None
        found["graph"] = {**asdict(replace(graph, edges={})), "edges": [[*edge, share] for edge, share in graph.edges.items()]}
        found["course"] = [  # hour by hour: when, GPUs wanted over those there are, jobs in the system, settings
            [each.at_s, each.load, each.unfinished, each.after.to_json()] for each in course.decisions if not each.at_s % HOUR_S
        ]
        found["updates"] = dict(Counter(name for each in changed for name in each.changes()))
    return found


def cells(chosen: argparse.Namespace) -> Iterator[Cell]:
    """Breadth first: all cells with one seed, the variants, then further seeds.

    Modes of a cell follow each other, because they share a beginning; those that decide every hour, which take longest, come last.
    """
    places = [
        place for place in chosen.places if place.trace in chosen.traces and place.load in chosen.loads and place.week in chosen.weeks
    ]
    for seed in range(chosen.seeds):
        wanted = [mode for mode in MODES if mode in chosen.modes]
        rounds = [[mode for mode in wanted if mode not in HOURLY], *([mode] for mode in HOURLY if mode in wanted)]
        for modes in rounds:
            for place in places:
                names = [mode for mode in modes if seed < place.seeds.get(mode, 0)]
                schedulers = [name for name in place.schedulers if name in chosen.schedulers]
                yield from (Cell(place.trace, name, place.load, place.week, seed, mode) for name in schedulers for mode in names)
        if seed == 0 and not chosen.cells_only:
            yield from variants(chosen, [place for place in places if place.has_variants])


def variants(chosen: argparse.Namespace, places: Sequence[Place]) -> Iterator[Cell]:
    """The mode `paper` of Tiresias with another similarity metric, and without parts of its search controller."""
    if "paper" not in chosen.modes or "tiresias" not in chosen.schedulers:
        return
    names = [*(f"metric:{name}" for name in DISTANCES if name != "relative"), *(f"controller:{name}" for name in CONTROLLERS)]
    yield from (Cell(place.trace, "tiresias", place.load, place.week, 0, "paper", name) for place in places for name in names)


def parts(name: str, rounds: int) -> dict[str, Any]:
    """Range accuracy and generator errors, every way of counting, next to the trivial baselines."""
    case = case_of(name, "tiresias", 1.0, 0)
    window = case.trace.between(case.from_s - 2 * WEEK_S, case.to_s)
    rows = {"with user": accuracy(window, rounds=rounds)}
    if window.user.names != ("",):
        rows["without user"] = accuracy(window, models=("histogram-trees", "xgboost"), rounds=rounds, with_user=False)
    return {
        "ranges": {kind: {model: asdict(row) for model, row in each.items()} for kind, each in rows.items()},
        "arrivals": {method: asdict(row) for method, row in generator_table(window).items()},
    }


def headroom(name: str) -> list[dict[str, Any]]:
    """Week by week: how many times better Tiresias gets by the best of a few thresholds, in hindsight, and how full the cluster was."""
    jobs, found = trace_of(name), []
    first = np.floor(jobs.submit_s[0] / DAY_S) * DAY_S
    weeks = int((jobs.submit_s[-1] - first) / WEEK_S)
    for day in range(FIRST_DAY[name] % 7 + 7, weeks * 7 - 6, 7):
        begin = first + day * DAY_S
        before = len(jobs.between(begin - WEEK_S, begin))
        row: dict[str, Any] = {"trace": name, "day": day, "jobs": len(jobs.between(begin, begin + WEEK_S)), "jobs_before": before}
        if row["jobs"] < 1_000:
            continue
        for load in (1.0, 1.2):
            case = _case(jobs, "tiresias", load, begin, WEEK_S)
            warm = Session(case.trace.between(begin - WEEK_S, begin + WEEK_S), case.cluster, Tiresias())
            warm.step(begin)
            kept = warm.snapshot()
            future = Future(at_s=begin, arrivals=case.trace.between(begin, case.to_s), snapshot=kept, until_s=case.to_s)
            times = {each: outcome(future, case.cluster, Tiresias(thresholds=(each,)))["time_s"] for each in THRESHOLDS}
            best = min(times, key=lambda each: times[each])
            wanted = float(kept.jobs.gpus.sum()) / case.cluster.gpus
            row[f"load_{load:g}"] = {"wanted_at_start": wanted, "gain": times[THRESHOLDS[0]] / times[best], "threshold": best}
        found.append(row)
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
            row["not_searched"] = sum(each["not_searched"] for each in runs) / max(1, sum(each["decisions"] for each in runs))
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


class Kept:
    """What has been worked out, one JSON object per line of a file, and a limit on what more may be.

    Args:
        path: The file; None: nothing is kept.
        most_s: CPU seconds of this process after which nothing more is begun.
    """

    def __init__(self, path: Path | None, most_s: float) -> None:
        self._path, self._most_s = path, most_s
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self._known: dict[str, Any] = {record["key"]: record["value"] for record in map(json.loads, lines)}
        self.left = 0

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """The value of a key, made unless it is known; None where there was no time for it."""
        if key not in self._known and time.process_time() > self._most_s:
            self.left += 1
            return None
        if key not in self._known:
            began = time.process_time()
            value = self._known[key] = json.loads(json.dumps(make()))
            print(f"{key}: {time.process_time() - began:.1f} s CPU", file=sys.stderr, flush=True)
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "value": value}) + "\n")
        return self._known[key]


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small synthetic cell")
    parser.add_argument("--runs", type=Path, help="file that keeps what was worked out, one line each")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("--write", action="store_true", help="write the page of the grid, with its pictures")
    parser.add_argument("--grid", choices=list(GRIDS), default="paper", help="the paper's evaluation, or our strategies and the parts")
    parser.add_argument("--traces", nargs="+", default=list(FIRST_DAY))
    parser.add_argument("--schedulers", nargs="+", default=list(SCHEDULERS))
    parser.add_argument("--loads", nargs="+", type=float, default=[0.8, 1.0, 1.2])
    parser.add_argument("--weeks", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--seeds", type=int, default=5, help="at most as many")
    parser.add_argument("--most-s", type=float, default=np.inf, help="begin no further run after so many CPU seconds")
    parser.add_argument("--cells-only", action="store_true", help="leave the variants and the parts out")
    chosen = parser.parse_args()
    chosen.places = GRIDS[chosen.grid]
    if chosen.quick:
        quick = Place("quick", 1.2, seeds=dict.fromkeys(MODES, 1))
        chosen.grid, chosen.places, chosen.traces, chosen.schedulers, chosen.cells_only = (
            "strategies",
            [quick],
            ["quick"],
            ["tiresias"],
            True,
        )
    return chosen


def main() -> None:
    chosen = options()
    kept = Kept(chosen.runs, chosen.most_s)
    records = [kept.get(cell.key, partial(run, cell)) for cell in cells(chosen)]
    records = [record for record in records if record is not None]
    command = " ".join(["python -m benchmarks.autosched", *sys.argv[1:]])
    if chosen.grid == "paper":
        _repeat(records, chosen, kept.left, command)
    else:
        _compare(records, chosen, kept, command)


def _repeat(records: list[dict[str, Any]], chosen: argparse.Namespace, left: int, command: str) -> None:
    """The paper's evaluation."""
    traces = list(dict.fromkeys(record["trace"] for record in records))
    pictures = draw(records, RESULTS) if chosen.write else {}
    text = evaluation(records, [trace_of(name).source for name in traces], left, command, pictures)
    if chosen.write:
        PAGES["paper"].write_text(text, encoding="utf-8")
    print(json.dumps({"runs": records, "not_run": left}) if chosen.json else text)


def _compare(records: list[dict[str, Any]], chosen: argparse.Namespace, kept: Kept, command: str) -> None:
    """Our strategies against it, and the parts."""
    more = [] if chosen.cells_only else [name for name in chosen.traces if name in FILES]
    rows = [kept.get(f"headroom {name}", partial(headroom, name)) or [] for name in more]
    rounds = 20 if chosen.quick else 100
    found = {name: kept.get(f"parts {name}", partial(parts, name, rounds)) for name in (chosen.traces if chosen.quick else more)}
    report = {
        "sources": sorted({trace_of(record["trace"]).source for record in records}),
        "cells": summary(records),
        "controller": controller_rows(records),
        "headroom": [row for some in rows for row in some],
        "parts": {name: each for name, each in found.items() if each is not None},
        "not_run": kept.left,
        "commits": dict(Counter(record["commit"] for record in records)),
    }
    if chosen.write:
        PAGES["strategies"].write_text(page(report, command), encoding="utf-8")
    print(json.dumps(report) if chosen.json else page(report, command))


if __name__ == "__main__":
    main()

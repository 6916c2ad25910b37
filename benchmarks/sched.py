"""CPU seconds and jobs per second of the scheduler simulator, compared with the reference simulators on the same inputs.

    python -m benchmarks.sched            # everything
    python -m benchmarks.sched --quick    # without the million jobs
    python -m benchmarks.sched --write    # everything, and docs/autosched/results/sched.md
    python -m benchmarks.sched --json     # the same figures as one JSON object on the last line
    python -m benchmarks.sched --only growth --json     # a part: philly, venus, hour, growth, million, stream
    python -m benchmarks.sched --rows FILE              # parts that the file holds are not measured again

The reference figures are CPU (user) seconds of the public simulators, measured on the same kind of machine; ours are process CPU
seconds of one run after the kernels were compiled, without reading the trace (nor is it in theirs). Inputs that need the
reference traces are left out, with a note, where these are not in `../shared/traces`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from autosched.arrivals.synthetic import Recipe, generate
from autosched.schedulers.fifo import FIFO
from autosched.schedulers.sjf import SJF
from autosched.schedulers.themis import Themis
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.result import Result
from autosched.sim.snapshot import Snapshot
from autosched.sim.stream import stream
from autosched.sim.trace import Trace
from autoscout.core import plugins
from autoscout_lab.reference.symbiotic import SymbioticFIFO, SymbioticSRTF, SymbioticTiresias
from autoscout_lab.reference.titan import TitanThemis

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "autosched" / "sim"))
import sched_reference as reference  # noqa: E402

HOUR_S = 3_600.0
PAGE = ROOT / "docs" / "autosched" / "results" / "sched.md"


class Row(NamedTuple):
    """One line of the table; `theirs_s` are CPU seconds of the reference."""

    name: str
    seconds: float
    jobs: int
    theirs_s: float | None
    note: str

    @property
    def cells(self) -> tuple[str, ...]:
        theirs = (f"{self.theirs_s:,.1f}", f"{self.theirs_s / self.seconds:,.0f}x") if self.theirs_s else ("-", "-")
        return (self.name, f"{self.seconds:.4f}", f"{self.jobs / self.seconds:,.0f}", *theirs, self.note)


HEAD = ("input and policy", "CPU s", "jobs/s", "theirs s", "ratio", "outcome")


def cpu_s(question: Callable[[], Result], repeats: int = 3) -> tuple[float, Result]:
    """Least CPU seconds of some runs, and the last result; the first run, which may compile, does not count."""
    result = question()
    best = np.inf
    for _ in range(repeats):
        began = time.process_time()
        result = question()
        best = min(best, time.process_time() - began)
    return best, result


def philly() -> Iterator[Row]:
    jobs, cluster = reference.philly_window(), Cluster.parse("100x8")
    for name, scheduler, theirs, theirs_jct in (
        ("Philly 100x8, 2D-LAS (SymbioticLab)", SymbioticTiresias(), 157.5, 13_117.2),
        ("Philly 100x8, first-fit FIFO (SymbioticLab)", SymbioticFIFO(), 177.7, 13_356.3),
        ("Philly 100x8, shortest GPU time (SymbioticLab)", SymbioticSRTF(), 260.4, 13_096.2),
        ("Philly 100x8, Themis (Titan)", TitanThemis(round_offset_s=reference.PHILLY_START_S), 77.9, 13_351.9),
        ("Philly 70x8, Tiresias, 60 s rounds", Tiresias(), None, None),
    ):
        nodes = Cluster.parse("70x8") if "70x8" in name else cluster
        seconds, result = cpu_s(lambda nodes=nodes, scheduler=scheduler: simulate(jobs, nodes, scheduler))
        note = f"mean JCT {result.jct_s.mean():,.1f} s" + (f" (theirs {theirs_jct:,.1f})" if theirs_jct else "")
        yield Row(name, seconds, len(jobs), theirs, note)


def venus() -> Iterator[Row]:
    published, cluster = reference.venus(), reference.venus_cluster()
    theirs_jct = {"fifo": 65_720.5, "sjf": 21_095.0, "qssf": 15_548.9, "srtf": 12_609.9, "tiresias": 14_700.0}
    for name, scheduler in reference.VENUS.items():
        jobs = reference.in_its_order(published, name)
        seconds, result = cpu_s(lambda jobs=jobs, scheduler=scheduler: simulate(jobs, cluster, scheduler))
        start, end = reference.golden(f"venus_2020-09_{name}", jobs, "start_time", "end_time")
        equal = int(((result.start_s == start) & (result.end_s == end)).sum())
        note = f"mean JCT {result.jct_s.mean():,.1f} s (theirs {theirs_jct[name]:,.1f}), {equal:,} of {len(jobs):,} jobs equal"
        yield Row(f"Venus, {name} (Lucid)", seconds, len(jobs), None, note)
    profiled = reference.with_profiles(published)
    lucid = reference.lucid(profiled)
    seconds, result = cpu_s(lambda: simulate(profiled, cluster, lucid))
    note = f"mean JCT {result.jct_s.mean():,.1f} s (theirs 12,889.8)"
    yield Row("Venus, lucid with its profiler (Lucid)", seconds, len(profiled), 1_427.8, note)


def one_hour() -> Iterator[Row]:
    """A tuning question: one hour of arrivals on top of 500 unfinished jobs, simulated until all is done or a day has passed."""
    cluster = Cluster.parse("70x8")
    trace = generate(Recipe(profile="philly", jobs=40_000, days=14, load=1.1, cluster_gpus=cluster.gpus, seed=1))
    at = trace.submit_s[0] + 24 * HOUR_S
    while True:
        snapshot = Snapshot.of(simulate(trace.between(0, at), cluster, Tiresias(), Run(until_s=at)))
        if len(snapshot.jobs) >= 500 or at > trace.submit_s[-1]:
            break
        at += HOUR_S
    arrivals = trace.between(at, at + HOUR_S)
    for name in plugins.available("scheduler"):
        scheduler = plugins.get("scheduler", name)()
        run = Run(snapshot=snapshot, until_s=at + 24 * HOUR_S)
        seconds, result = cpu_s(lambda scheduler=scheduler, run=run: simulate(arrivals, cluster, scheduler, run), 10)
        note = f"{1e3 * seconds:.1f} ms; {len(snapshot.jobs)} unfinished + {len(arrivals)} arrivals, {int(result.ended.sum())} ended"
        yield Row(f"one-hour question, {name}", seconds, len(result.trace), None, note)


def million() -> Iterator[Row]:
    cluster = Cluster.parse("1250x8")
    began = time.process_time()
    trace = generate(Recipe(profile="venus", jobs=1_000_000, days=120, load=0.85, cluster_gpus=cluster.gpus))
    yield Row("a million jobs, generated", time.process_time() - began, len(trace), None, "120 days of a 10,000-GPU cluster")
    for name, scheduler in (("FIFO", FIFO()), ("SJF", SJF()), ("Tiresias", Tiresias()), ("Themis", Themis())):
        began = time.process_time()
        result = simulate(trace, cluster, scheduler)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        note = f"mean JCT {result.jct_s.mean():,.0f} s; peak {peak:.2f} GiB"
        yield Row(f"a million jobs, {name}", time.process_time() - began, len(trace), None, note)


TIMES = 16  # jobs and GPUs of the large run over those of the small one
LARGEST_GROWTH = 1.5  # of the time per job that is still in proportion


PACKED = "lucid with jobs that share GPUs"


def _shareable(trace: Trace) -> Trace:
    """The same jobs with sharing scores, memory and utilisation, drawn at random."""
    draw = np.random.default_rng(5)
    size = len(trace)
    return trace.with_extra(
        sharing=draw.integers(0, 3, size), memory_mb=draw.integers(500, 20_000, size), gpu_util=draw.integers(5, 95, size)
    )


def growth() -> Iterator[Row]:
    """Sixteen times the jobs on sixteen times the GPUs: how many times longer each scheduler takes per job."""
    sizes = (20, 20 * TIMES)
    plain = [generate(Recipe(profile="venus", jobs=250 * nodes, days=14, load=0.9, cluster_gpus=8 * nodes, seed=3)) for nodes in sizes]
    for name in [*plugins.available("scheduler"), PACKED]:
        scheduler = plugins.get("scheduler", name.split()[0])()
        traces = [_shareable(trace) for trace in plain] if name == PACKED else plain
        seconds = []
        for nodes, trace in zip(sizes, traces, strict=True):
            cluster = Cluster.parse(f"{nodes}x8")
            spent, _ = cpu_s(lambda trace=trace, cluster=cluster, scheduler=scheduler: simulate(trace, cluster, scheduler), 2)
            seconds.append(spent)
        ratio = seconds[1] / seconds[0] / TIMES
        verdict = "in proportion" if ratio <= LARGEST_GROWTH else f"more than {LARGEST_GROWTH}"
        yield Row(
            f"growth, {name}", seconds[1], len(traces[1]), None, f"{ratio:.2f} times the time per job at {TIMES}x the size: {verdict}"
        )


def streamed(pieces: int = 100, jobs: int = 100_000) -> Iterator[Row]:
    """Ten million jobs that are never in memory together."""
    cluster = Cluster.parse("1250x8")
    days = 12.0

    def drawn() -> Iterator[Trace]:
        for number in range(pieces):
            piece = generate(Recipe(profile="venus", jobs=jobs, days=days, load=0.85, cluster_gpus=cluster.gpus, seed=number))
            moved = piece.submit_s - piece.submit_s[0] + number * days * 86_400
            kept = moved < (number + 1) * days * 86_400
            names = np.char.add(f"{number}-", piece.job_id)
            yield replace(piece, submit_s=moved, job_id=names).take(np.flatnonzero(kept))

    for name, scheduler in (("FIFO", FIFO()), ("Tiresias", Tiresias())):
        began = time.process_time()
        done, spent = 0, 0.0
        for result in stream(drawn(), cluster, scheduler):
            done += len(result.trace)
            spent += float(result.jct_s.sum())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        note = f"mean JCT {spent / max(done, 1):,.0f} s; {pieces} pieces, drawing them included; peak {peak:.2f} GiB"
        yield Row(f"{done / 1e6:.1f} million jobs in a stream, {name}", time.process_time() - began, done, None, note)


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    "philly": philly, "venus": venus, "hour": one_hour, "growth": growth, "million": million, "stream": streamed,
}  # fmt: skip
LONG = ("million", "stream")


def all_rows(parts: Sequence[str], kept: Path | None = None) -> Iterator[Row]:
    """Every row as soon as it is measured; parts that `kept` holds are not measured again."""
    known = json.loads(kept.read_text(encoding="utf-8")) if kept is not None and kept.exists() else {}
    there = (reference.TRACES / "golden").exists()
    if not there and {"philly", "venus"} & set(parts):
        print("(the reference traces are not in ../shared/traces: Philly and Venus are left out)")
    for part in parts:
        if part in known:
            yield from (Row(*row) for row in known[part])
        elif there or part not in ("philly", "venus"):
            known[part] = []
            for row in PARTS[part]():
                known[part].append(list(row))
                yield row
            if kept is not None:
                kept.write_text(json.dumps(known), encoding="utf-8")


def page(rows: list[Row], kept: bool = False) -> str:
    """The rows as a page, with the circumstances; `kept`: parts were measured on several occasions."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    occasions = " Parts were measured on several occasions (`--rows`), the last of them\nat this commit." if kept else ""
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in (HEAD, ("---",) * len(HEAD), *(row.cells for row in rows)))
    return f"""# Scheduler simulator: speed and agreement

Written by `python -m benchmarks.sched --write` at commit {commit}, Python {platform.python_version()}, one of {os.cpu_count()}
cores of a shared {platform.machine()} machine whose load average was {os.getloadavg()[2]:.1f}: other work makes CPU seconds longer.
CPU seconds of one run after the kernels were compiled, the least of several runs,
except for a million jobs and more, which run once; reading the trace does not count. "Theirs" are CPU seconds and mean completion
times (JCT) of the simulator in brackets on the same jobs and cluster.{occasions}

{table}

Philly: 13,085 jobs that arrived from 22 September to 6 October 2017. Venus: 23,859 jobs of September 2020 in 15 virtual clusters.
On Venus many jobs are submitted in the same second, and which of them comes first decides who runs where. The reference took that
order from a log that was not published; `tests/golden/sched/venus_ties.npz` holds, for each policy, an order under which every
start and end agrees. The orders were searched for, so they show that the outcomes can be explained, not that they are predicted.
With simultaneous jobs by number, as in the published file, the equal starts are: FIFO 19,354, SJF 23,394, QSSF 22,502, SRTF 23,664,
Tiresias 23,416 (`tests/autosched/sim/test_golden.py`).
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--quick", action="store_true", help="leave the million jobs and the stream out")
    options.add_argument("--only", action="append", choices=list(PARTS), help="a part; may be repeated")
    options.add_argument("--rows", type=Path, help="file that keeps the parts that were measured, so that a run can be resumed")
    options.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options.add_argument("--json", action="store_true", help="one JSON object on the last line")
    chosen = options.parse_args()
    rows = []
    print("{:<48} {:>10} {:>13} {:>10} {:>9}  {}".format(*HEAD))
    for row in all_rows(chosen.only or [part for part in PARTS if not (chosen.quick and part in LONG)], chosen.rows):
        rows.append(row)
        print("{:<48} {:>10} {:>13} {:>10} {:>9}  {}".format(*row.cells), flush=True)
    if chosen.write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(rows, chosen.rows is not None), encoding="utf-8")
    if chosen.json:
        print(json.dumps({"rows": [row._asdict() | {"jobs_per_s": row.jobs / row.seconds} for row in rows]}))


if __name__ == "__main__":
    main()

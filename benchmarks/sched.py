"""CPU seconds and jobs per second of the scheduler simulator, beside the reference simulators on the same inputs.

    python -m benchmarks.sched            # everything
    python -m benchmarks.sched --quick    # without the million jobs

The reference figures are CPU (user) seconds of the public simulators, measured on the same kind of machine; ours are process CPU
seconds of one run after the kernels were compiled, reading of the trace not counted (nor is it in theirs). Inputs that need the
reference traces are left out, with a note, where these do not lie beside the repository.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from autoscout.core import plugins
from autoscout.sched.cluster import Cluster
from autoscout.sched.engine import Run, simulate
from autoscout.sched.result import Result
from autoscout.sched.schedulers.fifo import FIFO
from autoscout.sched.schedulers.lucid import Lucid
from autoscout.sched.schedulers.qssf import QSSF
from autoscout.sched.schedulers.sjf import SJF
from autoscout.sched.schedulers.srtf import SRTF
from autoscout.sched.schedulers.themis import Themis
from autoscout.sched.schedulers.tiresias import Tiresias
from autoscout.sched.snapshot import Snapshot
from autoscout.sched.workload.synthetic import Recipe, generate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "sched"))
import sched_reference as reference

HOUR_S = 3_600.0


def cpu_s(question: Callable[[], Result], repeats: int = 3) -> tuple[float, Result]:
    """Least CPU seconds of some runs, and the last result; the first run, which may compile, does not count."""
    result = question()
    best = np.inf
    for _ in range(repeats):
        began = time.process_time()
        result = question()
        best = min(best, time.process_time() - began)
    return best, result


def row(name: str, seconds: float, jobs: int, theirs_s: float | None, note: str) -> None:
    beside = f"{theirs_s:>10.1f} {theirs_s / seconds:>9,.0f}x" if theirs_s else f"{'-':>10} {'-':>10}"
    print(f"{name:<44} {seconds:>10.4f} {jobs / seconds:>13,.0f} {beside}  {note}")


def philly() -> None:
    jobs, cluster = reference.philly_window(), Cluster.parse("100x8")
    for name, scheduler, theirs, theirs_jct in (
        (
            "Philly 100x8, 2D-LAS (SymbioticLab Tiresias)",
            Tiresias(compatible="symbiotic", queues=3, thresholds=(3_250.0, 7_200.0)),
            157.5,
            13_117.2,
        ),
        ("Philly 100x8, first-fit FIFO (SymbioticLab)", FIFO(overtake=True, placement="count"), 177.7, 13_356.3),
        (
            "Philly 100x8, shortest GPU time (SymbioticLab)",
            SRTF(by_gpu_time=True, placement="count", preemption_free=True),
            260.4,
            13_096.2,
        ),
        ("Philly 100x8, Themis (Titan)", Themis(compatible="titan", fairness=0.2, round_offset_s=reference.PHILLY_START_S), 77.9, 13_351.9),
        ("Philly 70x8, Tiresias, 60 s rounds", Tiresias(), None, None),
    ):
        nodes = Cluster.parse("70x8") if "70x8" in name else cluster
        seconds, result = cpu_s(lambda nodes=nodes, scheduler=scheduler: simulate(jobs, nodes, scheduler))
        row(
            name,
            seconds,
            len(jobs),
            theirs,
            f"mean JCT {result.jct_s.mean():,.1f} s" + (f" (theirs {theirs_jct:,.1f})" if theirs_jct else ""),
        )


def venus() -> None:
    jobs, cluster = reference.venus(), reference.venus_cluster()
    for name, scheduler, theirs_jct in (
        ("Venus, FIFO", FIFO(remainder_to_emptiest=True), 65_720.5),
        ("Venus, SJF", SJF(remainder_to_emptiest=True), 21_095.0),
        ("Venus, QSSF", QSSF(newcomers_by_gpus=True, remainder_to_emptiest=True), 15_548.9),
        ("Venus, SRTF", SRTF(lucid=True), 12_609.9),
        ("Venus, Tiresias", Tiresias(compatible="lucid", round_offset_s=reference.CLOCK_ZERO_S), 14_700.0),
    ):
        seconds, result = cpu_s(lambda scheduler=scheduler: simulate(jobs, cluster, scheduler))
        row(name, seconds, len(jobs), None, f"mean JCT {result.jct_s.mean():,.1f} s (theirs {theirs_jct:,.1f})")
    profiled = reference.with_profiles(jobs)
    lucid = Lucid(
        profiler_from=("vc8Gr", "vcefl"),
        elastic_from="vcYVn",
        compatible="lucid",
        clock_zero_s=reference.CLOCK_ZERO_S,
        forecast=reference.forecast(),
        interference=reference.interference(profiled.name.names),
    )
    seconds, result = cpu_s(lambda: simulate(profiled, cluster, lucid))
    row("Venus, Lucid with its profiler", seconds, len(jobs), 1_427.8, f"mean JCT {result.jct_s.mean():,.1f} s (theirs 12,889.8)")


def one_hour() -> None:
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
        row(f"one-hour question, {name}", seconds, len(result.trace), None, note)


def million() -> None:
    cluster = Cluster.parse("1250x8")
    began = time.process_time()
    trace = generate(Recipe(profile="venus", jobs=1_000_000, days=120, load=0.85, cluster_gpus=cluster.gpus))
    row("a million jobs, generated", time.process_time() - began, len(trace), None, "120 days of a 10,000-GPU cluster")
    for name, scheduler in (("FIFO", FIFO()), ("SJF", SJF()), ("Tiresias", Tiresias()), ("Themis", Themis())):
        began = time.process_time()
        result = simulate(trace, cluster, scheduler)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        row(
            f"a million jobs, {name}",
            time.process_time() - began,
            len(trace),
            None,
            f"mean JCT {result.jct_s.mean():,.0f} s; peak {peak:.2f} GiB",
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    options.add_argument("--quick", action="store_true", help="leave the million jobs out")
    chosen = options.parse_args()
    print(f"{'input and policy':<44} {'CPU s':>10} {'jobs/s':>13} {'theirs s':>10} {'ratio':>10}")
    if (reference.TRACES / "golden").exists():
        philly()
        venus()
    else:
        print("(the reference traces do not lie beside the repository: Philly and Venus are left out)")
    one_hour()
    if not chosen.quick:
        million()


if __name__ == "__main__":
    main()

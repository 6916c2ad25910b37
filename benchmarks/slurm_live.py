"""A real Slurm with and without the controller, on the same day of jobs.

    python -m benchmarks.slurm_live --json                     # six runs of some five minutes each
    python -m benchmarks.slurm_live --together --json          # the same in half the time: a run with and one without at once
    python -m benchmarks.slurm_live --keep FILE --json         # the same; those that FILE holds already are not run again
    python -m benchmarks.slurm_live --keep FILE --json --write # and docs/autosched/results/slurm.md with a plot

Starts Debian's Slurm in a scratch folder: one slurmctld, slurmdbd on a real database, four slurmd with four GPUs each (plain files),
four accounts. The stream is a synthetic trace calibrated to Philly, days scaled to minutes; its first five days are imported as history,
the jobs of the sixth are submitted by sbatch and really run (they sleep). Both kinds of run start with priorities by age and backfill,
which is first come, first served. The controller, in mode `apply`, believes days to be days: clock, jobs and settings are scaled for it.
Times in the system come from Slurm's accounting. `with` and `without` alternate and the order is swapped from pair to pair.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autosched.arrivals.synthetic import Recipe, generate
from autosched.control.controller import Controller
from autosched.control.settings import build_settings
from autosched.events import events_of_trace
from autosched.live.slurm.knobs import FROZEN, KNOBS
from autosched.sim.plot import page
from autosched.sim.trace import Trace
from autoscout.common.draw import Line, chart
from benchmarks._fast_slurm import FastSlurm

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from _slurm import SlurmCluster  # noqa: E402 - the small cluster of the tests

PAGE = ROOT / "docs" / "autosched" / "results" / "slurm.md"
PICTURE = ROOT / "docs" / "autosched" / "results" / "slurm.svg"
NODES, GPUS = 4, 4
START = {
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": 1000,
    "PriorityMaxAge": "0-01:00:00",
    "PriorityCalcPeriod": 1,
    "SchedulerParameters": "bf_interval=1,bf_resolution=1,bf_window=60,sched_min_interval=100000,bf_max_job_test=500",
    "MinJobAge": 600,
}
"""First come, first served with backfill: what most installations begin with; intervals for a cluster in which jobs take seconds."""
DAY_S, HISTORY_DAYS = 86_400.0, 5
LEAST_JOBS = 5  # of a user whose mean is shown
SHORTEST_S, LONGEST_S, SPEED = 2.0, 12.0, 480.0
"""Of a job that sleeps, and how many times as fast as in the trace: accounting counts whole seconds, a run should take minutes."""


def stream(jobs: int, seed: int, load: float) -> tuple[Trace, Trace]:
    """History and stream: a trace whose hours pass in seconds, at a given load of the cluster."""
    whole = generate(Recipe(profile="philly", jobs=6 * jobs, days=6, seed=seed))  # arrivals are counted in steps of five minutes
    gpus = np.minimum(whole.gpus, NODES * GPUS)
    duration = np.clip(whole.duration_s / SPEED, SHORTEST_S, LONGEST_S).round()
    demand = float(np.dot(gpus, duration))
    span_s = demand / (load * NODES * GPUS)
    submit = (whole.submit_s - whole.submit_s[0]) / (whole.submit_s[-1] - whole.submit_s[0]) * span_s
    made = Trace.of(submit, duration, gpus, user=whole.user.texts(), extra={"estimate_s": np.full(len(gpus), 120.0)}, source="stream")
    first = 5 * jobs
    return made.take(np.arange(first)), made.take(np.arange(first, 6 * jobs))


def submit(cluster: SlurmCluster, jobs: Trace, begin_s: float) -> int:
    """Submit the jobs at their moments; returns how many."""
    offset = jobs.submit_s[0]
    for row in range(len(jobs)):
        wait = begin_s + float(jobs.submit_s[row] - offset) - time.time()
        if wait > 0:
            time.sleep(wait)
        gpus = int(jobs.gpus[row])
        nodes = -(-gpus // GPUS)
        each = -(-gpus // nodes)
        cluster.run(
            "sbatch", "--parsable", f"--nodes={nodes}", "--ntasks-per-node=1", f"--gpus-per-node={each}", f"--cpus-per-task={2 * each}",
            "--time=2", "--no-requeue", f"--job-name=job-{row}", "--output=/dev/null", "--mem=0", "--wrap",
            f"sleep {int(jobs.duration_s[row])}",
        )  # fmt: skip
    return len(jobs)


def accounts(cluster: SlurmCluster) -> list[dict[str, str]]:
    """All jobs as accounting knows them."""
    names = "JobName,State,Submit,Start,End,ReqTRES"
    text = cluster.run("sacct", "--parsable2", "--noheader", "--allusers", "--allocations", "--duplicates", f"--format={names}",
                       "--starttime=now-1days")  # fmt: skip
    return [dict(zip(names.split(","), line.split("|"), strict=True)) for line in text.splitlines() if line.startswith("job-")]


def _seconds(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))


def users_of(jobs: Trace, rows: list[dict[str, str]]) -> dict[str, float]:
    """Mean time in the system by user of the trace, of those with several jobs."""
    names = jobs.user.texts()
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(str(names[int(row["JobName"][4:])]), []).append(_seconds(row["End"]) - _seconds(row["Submit"]))
    return {name: float(np.mean(each)) for name, each in times.items() if len(each) >= LEAST_JOBS}


def controller_of(cluster: SlurmCluster, folder: Path, history: Trace, seed: int) -> Controller:
    """A controller that knows the past of the stream."""
    settings = build_settings(
        {
            "cluster": "scratch",
            "live": {"kind": "slurm", "conf": cluster.environment["SLURM_CONF"]},
            "folder": str(folder),
            "mode": "apply",
            "every": "3h",
            "watch": 0,
            "look": "30m",
            "period": "6h",
            "verify": "2h",
            "roll_back": {"tolerance": 0.3},  # starting a job takes a second here, which the simulation does not know, of the five it runs
            "bounds": {"changes_per_day": 4, "frozen": [name for name in KNOBS if name.endswith("_s") and name not in FROZEN]},
            "tuning": {"draws": 4, "trials": 16, "horizon": "1d", "back": ["1d", "2d", "3d", "4d"], "least_gain": 1.1, "seed": seed},
        },
        "benchmark",
    )
    speed = DAY_S * HISTORY_DAYS / float(history.submit_s[-1] - history.submit_s[0])
    start_s = time.time()
    live = FastSlurm({key: value for key, value in settings.live.items() if key != "kind"}, speed, start_s)
    made = Controller(settings, live)
    past = replace(
        history,
        submit_s=start_s + (history.submit_s - history.submit_s[-1] - 1.0) * speed,
        duration_s=history.duration_s * speed,
        extra={"estimate_s": history.extra["estimate_s"] * speed},
        job_id=np.char.add("past-", history.job_id),
    )
    made.repository.add("scratch", events_of_trace(past))
    return made


def run(kind: str, jobs: int, seed: int, load: float, folder: Path) -> dict[str, Any]:
    """One run of the stream."""
    history, coming = stream(jobs, seed, load)
    with SlurmCluster(folder / "slurm", nodes=NODES, gpus=GPUS, cpus=8, options=START) as cluster:
        stop, controller, thread = threading.Event(), None, None
        if kind == "with":
            controller = controller_of(cluster, folder / "control", history, seed)
            thread = threading.Thread(target=controller.run, args=(stop,))
            thread.start()
        begin_s = time.time() + 1.0
        sent = submit(cluster, coming, begin_s)
        cluster.wait_until(lambda: not cluster.jobs(), "all jobs have ended", 1_800.0)
        with contextlib.suppress(RuntimeError):  # accounting is told a little later; what it never hears of counts as lost
            cluster.wait_until(lambda: sum(row["End"] != "Unknown" for row in accounts(cluster)) >= sent, "accounting knows", 60.0)
        stop.set()
        if thread is not None:
            thread.join()
        found = accounts(cluster)
        conf = (folder / "slurm" / "slurm.conf").read_text()
    done = [row for row in found if row["State"] == "COMPLETED"]
    jct = np.asarray([_seconds(row["End"]) - _seconds(row["Submit"]) for row in done])
    queued = np.asarray([_seconds(row["Start"]) - _seconds(row["Submit"]) for row in done])
    told: dict[str, Any] = {
        "run": kind,
        "seed": seed,
        "jobs": sent,
        "completed": len(done),
        "other_states": sorted({row["State"] for row in found if row["State"] != "COMPLETED"}),
        "attempts": len(found),
        "mean_jct_s": float(jct.mean()),
        "median_jct_s": float(np.median(jct)),
        "p95_jct_s": float(np.quantile(jct, 0.95)),
        "mean_queue_s": float(queued.mean()),
        "makespan_s": float(max(_seconds(row["End"]) for row in done) - min(_seconds(row["Submit"]) for row in done)),
        "users": users_of(coming, done),
        "ends": sorted((_seconds(row["Submit"]) - begin_s, _seconds(row["End"]) - _seconds(row["Submit"])) for row in done),
    }
    if controller is not None:
        changes = [entry for entry in controller.ledger.history() if entry.changes and entry.applied_s == entry.applied_s]
        told["decisions"] = len(controller.ledger.history())
        told["changes"] = [
            {
                "after_s": controller.live.real(entry.applied_s) - begin_s,
                "kind": entry.kind,
                "state": entry.state,
                "changes": {name: list(pair) for name, pair in entry.changes.items()},
                "predicted": entry.predicted,
                "low": entry.low,
                "high": entry.high,
                "measured": None if entry.measured != entry.measured else entry.measured,
                "diff": entry.diff,
            }
            for entry in changes
        ]
        told["conf_tail"] = [line for line in conf.splitlines() if line.startswith(("Priority", "SchedulerParameters"))]
        controller.close()
    return told


def picture(runs: list[dict[str, Any]]) -> str:
    """Time in the system of jobs by when they came, run by run."""
    lines: dict[str, Line] = {}
    for number, told in enumerate(runs):
        at_s, jct = (np.asarray(column) for column in zip(*told["ends"], strict=True))
        window = 15
        smooth = np.convolve(jct, np.ones(window) / window, mode="valid")
        lines[f"{number + 1}: {told['run']}"] = at_s[window - 1 :], smooth
    return page([chart("seconds in the system, mean of fifteen jobs", lines, "seconds since the first job came")], "Slurm with and without")


def worst_users(runs: list[dict[str, Any]]) -> list[tuple[str, float]]:
    """Pair by pair: the user who fares worst with the controller, and how many times better that is than without it."""
    sides = ([told["users"] for told in runs if told["run"] == kind] for kind in ("with", "without"))
    gains = [{name: before[name] / after[name] for name in after.keys() & before.keys()} for after, before in zip(*sides, strict=False)]
    return [min(each.items(), key=lambda item: item[1]) for each in gains if each]


def result_page(report: dict[str, Any]) -> str:
    rows = [
        f"| {number + 1} | {told['run']} | {told['completed']} of {told['jobs']} | {told['attempts']} | {told['mean_jct_s']:.1f} |"
        f" {told['median_jct_s']:.1f} | {told['p95_jct_s']:.1f} | {told['mean_queue_s']:.1f} | {told['makespan_s']:.0f} |"
        for number, told in enumerate(report["runs"])
    ]
    changes = [
        f"- Run {number + 1}, after {each['after_s']:.0f} s ({each['state']}): "
        + ", ".join(f"{name} {old} -> {new}" for name, (old, new) in each["changes"].items())
        + f"; predicted {each['predicted']:.2f} times ({each['low']:.2f} to {each['high']:.2f}),"
        + f" measured {'unknown' if each['measured'] is None else format(each['measured'], '.2f')}"
        for number, told in enumerate(report["runs"])
        for each in told.get("changes", [])
    ]
    lines = [
        "# Slurm, with and without the controller",
        "",
        f"Written by `{report['command']}` on {report['date']}, commit {report['commit']}, seeds {report['seeds']}.",
        f"{report['machine']}.",
        "",
        f"Real Slurm {report['slurm']}: slurmctld, slurmdbd on MariaDB, {NODES} slurmd with {GPUS} GPUs each (plain files). The stream",
        f"is a synthetic trace calibrated to Philly, scaled so that hours pass in seconds, at a load of {report['load']:g}; its jobs are",
        "submitted by sbatch and really run (they sleep); five days before it are the history. Runs start with first come, first served",
        "and backfill. Figures come from sacct.",
        *(
            ["With and without were run at the same time, on two clusters of this machine; a second pair is begun in swapped order."]
            if report["together"]
            else []
        ),
        "",
        "| run | controller | completed | attempts | mean JCT s | median | p95 | mean queue s | makespan s |",
        "|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"**Mean JCT without over with: {report['ratio']:.2f} times** (pairs: {', '.join(f'{ratio:.2f}' for ratio in report['ratios'])}).",
        "Worst user of each pair, mean time without over with: "
        + ", ".join(f"{gain:.2f} ({name})" for name, gain in worst_users(report["runs"]))
        + ".",
        f"Jobs lost or requeued: {report['lost']}. Changes taken back: {report['rolled_back']}.",
        "",
        "## Live changes",
        "",
        *(changes or ["None."]),
        "",
        "![time in the system](slurm.svg)",
        "",
        "One machine, one trace, jobs of seconds: this shows that the loop works on a real Slurm, not what another cluster would gain.",
        "",
    ]
    return "\n".join(lines)


def alone(kind: str, given: argparse.Namespace) -> dict[str, Any]:
    """One run in this process."""
    with tempfile.TemporaryDirectory(prefix="slurm-live-") as folder:
        return run(kind, given.jobs, given.seed, given.load, Path(folder))


def together(kinds: list[str], given: argparse.Namespace) -> list[dict[str, Any]]:
    """Several runs at the same time, each on a cluster of its own, so that all see the same machine."""
    with tempfile.TemporaryDirectory(prefix="slurm-live-") as folder:
        files = [Path(folder) / str(number) for number in range(len(kinds))]
        about = ["--jobs", str(given.jobs), "--seed", str(given.seed), "--load", str(given.load)]
        command = [sys.executable, "-m", "benchmarks.slurm_live", *about]
        begun = []
        for kind, file in zip(kinds, files, strict=True):
            begun.append(subprocess.Popen([*command, "--runs", kind, "--keep", str(file)], cwd=ROOT))
            time.sleep(2.0)
        for process in begun:
            process.wait()
        return [json.loads(file.read_text()) for file in files]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=float, default=1.2)
    parser.add_argument("--runs", default="with,without,without,with,with,without")
    parser.add_argument("--together", action="store_true", help="two runs at the same time, on clusters of their own")
    parser.add_argument("--keep", type=Path, help="file of runs, one a line; an interrupted benchmark continues from it")
    parser.add_argument("--most", type=int, default=100, help="runs to make now; the others later, with --keep")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    runs = [json.loads(line) for line in given.keep.read_text().splitlines()] if given.keep and given.keep.exists() else []
    left = given.runs.split(",")[len(runs) :][: given.most]
    size = 2 if given.together else 1
    for group in (left[start : start + size] for start in range(0, len(left), size)):
        for told in together(group, given) if len(group) > 1 else [alone(group[0], given)]:
            runs.append(told)
            shown = {key: value for key, value in told.items() if key != "ends"}
            print(f"run {len(runs)}: {json.dumps(shown)}", file=sys.stderr, flush=True)
            if given.keep:
                with given.keep.open("a") as file:
                    file.write(json.dumps(told) + "\n")
    means = {kind: [told["mean_jct_s"] for told in runs if told["run"] == kind] for kind in ("with", "without")}
    pairs = [without / with_ for without, with_ in zip(means["without"], means["with"], strict=False)]
    version = subprocess.run(["slurmctld", "-V"], capture_output=True, text=True, check=False).stdout.split()
    about = f"--jobs {given.jobs} --load {given.load:g} --runs {given.runs}{' --together' if given.together else ''}"
    report = {
        "benchmark": "slurm_live",
        "command": f"python -m benchmarks.slurm_live {about} --write",
        "together": given.together,
        "date": time.strftime("%Y-%m-%d"),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}, shared",
        "slurm": version[-1] if version else "?",
        "seeds": ", ".join(str(seed) for seed in sorted({told["seed"] for told in runs})),
        "load": given.load,
        "runs": runs,
        "ratios": pairs,
        "ratio": float(np.mean(means["without"]) / np.mean(means["with"])) if means["with"] and means["without"] else None,
        "rolled_back": sum(each["state"] == "undone" for told in runs for each in told.get("changes", [])),
        "lost": sum(told["jobs"] - told["completed"] + told["attempts"] - told["jobs"] for told in runs),
    }
    if given.write:
        PAGE.write_text(result_page(report), encoding="utf-8")
        PICTURE.write_text(picture(runs), encoding="utf-8")
    if given.json:
        print(json.dumps({**report, "runs": [{key: value for key, value in told.items() if key != "ends"} for told in runs]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

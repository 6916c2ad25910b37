"""What the model of Slurm promises of each knob, against what a small real Slurm does.

    python -m benchmarks.slurm_model --keep FILE --json          # every knob on a cluster of its own, all at once: about an hour
    python -m benchmarks.slurm_model --keep FILE --write         # the same; runs that FILE holds already are not made again
    python -m benchmarks.slurm_model --keep FILE --knobs - --write # only the page, from what FILE holds

A pair is one workload twice on the same cluster: under the settings of first come, first served with backfill, and with one knob moved;
the order is swapped from pair to pair. The prediction is made from what accounting knew of the first run alone: when jobs came, how long
they ran, their limits. The model was fitted on the workloads of `--part fit`; the page reports the others.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from autosched.live.slurm.knobs import FROZEN
from autosched.schedulers.slurm import Slurm
from benchmarks._slurm_promise import Pair, mean_interval, pairs_of
from benchmarks._slurm_runs import EXPERIMENTS, GPUS, NODES, ROOT, SHAPES, Experiment, new_cluster, people, run, slurm_version, workload

PAGE = ROOT / "docs" / "autosched" / "results" / "slurm-model.md"
UNMODELLED = {
    "preemption": "the simulation preempts nobody",
    "qos_limit": "the simulation has no limits per user",
}
"""Of Slurm's settings that are measured here, those that nothing is promised of, and why."""
NEAR = 1.1

SEEDS = {"fit": (0,), "report": (10, 11)}
"""Of the workloads that the model was fitted on, and of those on which the page reports."""
STAGGER_S = 3.0
"""Between the starts of two clusters, each of which makes a database."""


def plan(part: str, seed: int) -> list[tuple[str, int, bool]]:
    """Shape, seed and whether it is the changed one, for every run of a worker in their order, which is swapped from pair to pair."""
    first = SEEDS[part].index(seed) * len(SHAPES)
    return [(shape, seed, (first + number + turn) % 2 == 1) for number, shape in enumerate(SHAPES) for turn in range(2)]


def stored(path: Path) -> list[dict[str, Any]]:
    """The runs of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _place(each: dict[str, Any]) -> tuple[str, str, int, bool]:
    return each["knob"], each["shape"], each["seed"], each["changed"]


def work(experiment: Experiment, part: str, seed: int, path: Path) -> None:
    """Make the runs of one knob that the file does not hold yet, on one cluster."""
    known = {_place(each) for each in stored(path)}
    left = [each for each in plan(part, seed) if (experiment.knob, *each) not in known]
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="slurm-model-") as folder, new_cluster(Path(folder) / "slurm") as cluster:
        people(cluster)
        for shape, _, changed in left:
            made = run(cluster, experiment, workload(shape, seed), changed=changed)
            with path.open("a") as file:
                file.write(json.dumps({**made, "shape": shape, "seed": seed, "part": part}) + "\n")


def work_all(knobs: list[str], part: str, path: Path) -> list[str]:
    """All knobs at once, a process and a cluster for each and for each seed; those that failed."""
    processes = {}
    for seed in SEEDS[part]:
        for knob in knobs:
            worker = ["--worker", knob, "--seed", str(seed), "--part", part, "--keep", str(path)]
            processes[knob, seed] = subprocess.Popen([sys.executable, "-m", "benchmarks.slurm_model", *worker], cwd=ROOT)
            time.sleep(STAGGER_S)
    return [f"{knob} with seed {seed}" for (knob, seed), process in processes.items() if process.wait()]


def knob_rows(pairs: list[Pair]) -> list[dict[str, Any]]:
    """Promised against measured, knob by knob."""
    rows = []
    for knob, experiment in EXPERIMENTS.items():
        mine = [pair for pair in pairs if pair.knob == knob]
        if not mine:
            continue
        real, low, high = mean_interval([pair.real for pair in mine])
        promised = mean_interval([pair.promised for pair in mine])[0]
        error, error_low, error_high = mean_interval([pair.real - pair.promised for pair in mine])
        rows.append(
            {
                "knob": knob, "change": change_of(experiment), "pairs": len(mine), "real": real, "low": low, "high": high,
                "promised": promised,
                "error": error, "error_low": error_low, "error_high": error_high, "holds": low <= promised <= high,
                "near": sum(abs(pair.real - pair.promised) <= math.log(NEAR) for pair in mine),
                "frozen": UNMODELLED.get(knob, ""),
            }
        )  # fmt: skip
    return rows


def change_of(experiment: Experiment) -> str:
    """What a run changes."""
    before = experiment.settings(changed=False)
    model = [f"{before.get(name, getattr(Slurm, name))} -> {value}" for name, value in experiment.change.items()]
    lines = [f"{experiment.options.get(name)} -> {value}" for name, value in experiment.option_change.items()]
    return ", ".join([*model, *lines, *([f"none -> {experiment.limits[0]}"] if experiment.limits else [])]) or "nothing"


def _row(row: dict[str, Any]) -> str:
    verdict = "nothing was changed" if row["knob"] == "none" else "holds" if row["holds"] else "**does not hold**"
    promised = f"{row['promised']:.2f}" if not row["frozen"] else "-"
    error = f"{row['error']:.2f} [{row['error_low']:.2f}, {row['error_high']:.2f}]" if not row["frozen"] else "-"
    verdict = f"not tuned: {row['frozen']}" if row["frozen"] else verdict
    if row["knob"] in FROZEN:
        verdict += f"; tuned on traces only: {FROZEN[row['knob']]}"
    near = f"{row['near']} of {row['pairs']}" if not row["frozen"] else "-"
    return (
        f"| `{row['knob']}` | {row['change']} | {row['pairs']} | {row['real']:.2f} [{row['low']:.2f}, {row['high']:.2f}] | {promised} |"
        f" {error} | {near} | {verdict} |"
    )


def report_of(runs: list[dict[str, Any]], command: str) -> dict[str, Any]:
    """Everything that the page says."""
    pairs = pairs_of(runs, "report")
    rows = knob_rows(pairs)
    judged = [row for row in rows if row["knob"] != "none" and not row["frozen"]]
    reported = [run for run in runs if run["part"] == "report"]
    return {
        "benchmark": "slurm_model",
        "command": command,
        "date": time.strftime("%Y-%m-%d"),
        "commit": subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip(),  # noqa: E501
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}",
        "slurm": slurm_version(),
        "runs": len(reported),
        "load": [min(float(run["load"]) for run in reported), max(float(run["load"]) for run in reported)],
        "rows": rows,
        "pairs": [
            {"knob": pair.knob, "shape": pair.shape, "seed": pair.seed, "base_s": pair.base_s, "base_simulated_s": pair.base_promised_s,
             "real": math.exp(pair.real), "promised": math.exp(pair.promised)}
            for pair in pairs
        ],
        "holds": sum(row["holds"] for row in judged),
        "judged": len(judged),
        "level": mean_interval([math.log(pair.base_promised_s / pair.base_s) for pair in pairs])[0],
    }  # fmt: skip


def page_of(report: dict[str, Any]) -> str:
    """docs/autosched/results/slurm-model.md."""
    noise = [each for each in report["pairs"] if each["knob"] == "none"]
    return "\n".join(
        [
            "# Slurm: predicted and measured, knob by knob",
            "",
            f"Written by `{report['command']}` on {report['date']}, commit {report['commit']}.",
            f"{report['machine']}; load average {report['load'][0]:.0f} to {report['load'][1]:.0f}: the machine was busy with other work.",
            "",
            f"Real Slurm {report['slurm']}, {NODES} nodes of {GPUS} GPUs (plain files), jobs that sleep 6 to 90 seconds under limits of",
            "whole minutes. Every pair is one workload twice on one cluster: under first come, first served with backfill (or the settings",
            "around a knob that it needs), and with the knob moved; the order is swapped from pair to pair. A gain is the mean time in the",
            "system without the change over the one with it: below 1, jobs wait longer. Three shapes of workload (a stream, three waves, a",
            "burst), two of each, drawn with other seeds than those that the model was fitted on. The prediction is made from accounting's",
            f"record of the first run alone. Intervals: 95 %, Student's t over pairs. `near`: pairs with both within {NEAR:g} times.",
            "",
            "| knob | change | pairs | measured gain | predicted | measured / predicted | near | verdict |",
            "|---|---|---|---|---|---|---|---|",
            *(_row(row) for row in report["rows"]),
            "",
            f"**The prediction lies in the interval of the measured gain for {report['holds']} of {report['judged']} knobs.** Simulated",
            f"mean times without the change are {report['level']:.2f} times the real ones.",
            "",
            "## Noise",
            "",
            "The same settings twice: "
            + ", ".join(f"{each['real']:.2f} ({each['shape']} {each['seed']})" for each in noise)
            + ". On so few jobs a second more or less lets another job in between, and then everything comes in another order.",
            "",
            "## Pairs",
            "",
            "| knob | workload | base, real s | base, simulated s | measured gain | predicted |",
            "|---|---|---|---|---|---|",
            *(
                f"| `{each['knob']}` | {each['shape']} {each['seed']} | {each['base_s']:.1f} | {each['base_simulated_s']:.1f} |"
                f" {each['real']:.2f} | {each['promised']:.2f} |"
                for each in report["pairs"]
                if each["knob"] not in UNMODELLED
            ),
            "",
            "One version of Slurm, one small cluster, jobs of seconds: the half minutes in which Slurm looks at ends of jobs, and",
            "priorities that it calculates once a minute, weigh more here than where jobs take hours.",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, required=True, help="file of runs, one a line; an interrupted benchmark continues from it")
    parser.add_argument("--part", choices=list(SEEDS), default="report")
    parser.add_argument("--knobs", default=",".join(EXPERIMENTS), help="- for none: only what the file holds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", choices=list(EXPERIMENTS), help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work(EXPERIMENTS[given.worker], given.part, given.seed, given.keep)
        return 0
    failed = work_all([] if given.knobs == "-" else given.knobs.split(","), given.part, given.keep)
    if failed:
        print(f"not all runs were made of {', '.join(failed)}; the same command continues", file=sys.stderr)
    report = report_of(stored(given.keep), "python -m benchmarks.slurm_model --keep FILE --write")
    if given.write:
        PAGE.write_text(page_of(report), encoding="utf-8")
    if given.json:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())

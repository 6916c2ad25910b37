"""The controller observing a replayed trace: every predicted gain next to what the same change really gives.

    python -m benchmarks.control_observe --keep FILE --most-s 400 --json   # some cells; again until all are in FILE
    python -m benchmarks.control_observe --keep FILE --json --write        # the rest, and docs/autosched/results/observe.md
    python -m benchmarks.control_observe --cells philly:39:1.2 --hours 12 --json

A cell is a trace, a day and a load: the cluster has so many nodes that the GPU time of the jobs that arrive in the week from that day on
is that share of its own. The week before warms it up under the published settings of Tiresias. From that day on the controller, in mode
`observe`, looks for better settings every six hours and states a gain with an interval that is meant to hold nine outcomes in ten; its
threshold is switched off, so that small gains are stated too. At each such moment the replay is forked and run with the jobs that really
came, once with the settings in force and once with the proposed ones, until the jobs of the next hour and all before them are done: the
real gain. All simulated. Without `../shared/traces` synthetic traces stand in, and the output says so.
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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from autosched.arrivals.synthetic import Recipe, generate
from autosched.control.controller import Controller
from autosched.control.decide import MODEL_ERROR, Recommendation, interval
from autosched.control.settings import build_settings
from autosched.live.replay import Replay
from autosched.sim.export import trace_columns, write_table
from autosched.sim.trace import Labels, Trace
from autosched.traces.read import read
from autosched.tune.futures import Builder, Future, outcome
from autosched.tune.proof import COVERAGE
from autoscout.core.config import Config

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "traces"
PAGE = ROOT / "docs" / "autosched" / "results" / "observe.md"
FILES = {"philly": "philly_2017.csv.gz", "venus": "helios_venus_2020-09.csv.gz"}
CELLS = "philly:25:1,philly:32:1.2,philly:39:1.2,philly:53:1,philly:53:1.2,venus:8:1.2,venus:11:1,venus:11:1.2,venus:14:1,venus:14:1.2"
"""Weeks with something to gain (docs/autosched/results/autosched.md), and some with less."""
HOUR_S, DAY_S = 3_600.0, 86_400.0
EVERY_H = 6.0
Row = dict[str, Any]


def observe(trace: str, day: int, load: float, hours: float, seed: int, folder: Path) -> Row:
    """One cell."""
    jobs, synthetic = trace_of(trace)
    begin_s = math.floor(float(jobs.submit_s[0]) / DAY_S) * DAY_S + day * DAY_S
    week = jobs.between(begin_s, begin_s + 7 * DAY_S)
    nodes = max(2, round(week.gpu_seconds / (7 * DAY_S) / 8 / load))
    jobs = jobs.between(-np.inf, begin_s + 8 * DAY_S)
    jobs = jobs.keep(jobs.gpus <= (nodes - 1) * 8, "fits the cluster")
    write_table(trace_columns(jobs), folder / "trace.csv")
    about = {"trace": str(folder / "trace.csv"), "cluster": f"{nodes}x8", "scheduler": "tiresias", "start": str(begin_s - 7 * DAY_S)}
    given = {"cluster": trace, "live": {"kind": "replay", **about}, "folder": str(folder), "every": f"{EVERY_H}h", "watch": 0, "look": "1h"}
    tuning = {"least_gain": 1.0, "least_share": 0.0, "trials": 16, "seed": seed}
    controller = Controller(build_settings({**given, "tuning": tuning}, "benchmark"), live := Replay(about))
    stated = _listen(controller)
    controller.look()
    live.clock.sleep(begin_s - live.clock.now_s())
    began_s, found = time.monotonic(), []
    while live.clock.now_s() < begin_s + hours * HOUR_S:
        controller.tick()
        found += [_checked(judged, live, jobs, begin_s) for judged in stated]
        stated.clear()
        live.clock.sleep(HOUR_S)
    took_s = time.monotonic() - began_s
    entries = [entry for entry in controller.ledger.history() if entry.state == "observed" and math.isfinite(entry.measured)]
    looked_back = {(entry.at_s - begin_s) / HOUR_S: entry.measured for entry in entries}
    controller.close()
    for each in found:
        each["looked_back"] = looked_back.get(each["hour"])
    size = {"cluster": f"{nodes}x8", "jobs": len(week), "hours": hours, "synthetic": synthetic}
    return {"trace": trace, "day": day, "load": load, "seed": seed, **size, "times_as_fast": hours * HOUR_S / took_s, "each": found}


def _listen(controller: Controller) -> list[Recommendation]:
    """What the controller's adviser answers from now on."""
    stated: list[Recommendation] = []
    ask: Callable[..., Recommendation] = controller.adviser.decide

    def decide(*given: Any, **more: Any) -> Recommendation:
        judged = ask(*given, **more)
        stated.append(judged)
        return judged

    controller.adviser.decide = decide  # type: ignore[method-assign]
    return stated


def _checked(judged: Recommendation, live: Replay, jobs: Trace, begin_s: float) -> Row:
    """A stated gain, and the real one."""
    made = judged.decision
    kept = live.session.snapshot()
    arrivals = jobs.between(made.at_s, made.at_s + HOUR_S)
    future = Future(at_s=made.at_s, arrivals=arrivals, snapshot=kept if len(kept.jobs) else None)
    space = live.space(live.cluster)

    def time_s(config: Config) -> float:
        return outcome(future, live.cluster, Builder(scheduler="tiresias")(space.project(space.default(), config)))["time_s"]

    changed = judged.best != made.before
    real = time_s(made.before) / time_s(judged.best) if changed and future.jobs else 1.0
    return {
        "hour": (made.at_s - begin_s) / HOUR_S,
        "load": made.load,
        "changed": changed,
        "predicted": made.predicted,
        "gains": list(judged.gains),
        "real": real,
    }


def trace_of(name: str) -> tuple[Trace, bool]:
    """A trace as one virtual cluster, and whether it is a synthetic one because the file is not there."""
    path = SHARED / FILES[name]
    jobs = read(path) if path.is_file() else generate(Recipe(profile=name, jobs=40_000, days=62, seed=7))
    return replace(jobs, vc=Labels.constant("", len(jobs))), not path.is_file()


def summary(rows: Sequence[Row]) -> Row:
    """Of stated gains: how large, how large really, and how many of these lay inside the interval."""
    stated = _stated(rows)
    bounds = [interval(each["gains"]) for each in stated]
    inside = _inside(stated, MODEL_ERROR)
    low, high = binomial(inside, len(stated))
    worth = [each for each in stated if each["predicted"] >= 1.1]
    looked_back = [each["looked_back"] for each in stated if each.get("looked_back")]
    return {
        "decisions": sum(len(row["each"]) for row in rows),
        "stated": len(stated),
        "predicted": _mean([each["predicted"] for each in stated]),
        "real": _mean([each["real"] for each in stated]),
        "looked_back": _mean(looked_back),
        "width": _mean([high / low for low, high in bounds]),
        "inside": inside,
        "inside_futures": _inside(stated, 0.0),
        "error": float(np.sqrt(np.mean([math.log(each["real"] / each["predicted"]) ** 2 for each in stated]))) if stated else None,
        "covered": inside / len(stated) if stated else None,
        "covered_low": low,
        "covered_high": high,
        "below": sum(each["real"] < low for (low, _), each in zip(bounds, stated, strict=True)),
        "above": sum(each["real"] > high for (_, high), each in zip(bounds, stated, strict=True)),
        "worth": len(worth),
        "worth_predicted": _mean([each["predicted"] for each in worth]),
        "worth_real": _mean([each["real"] for each in worth]),
        "worth_worse": sum(each["real"] < 1 for each in worth),
    }


def calibrated(rows: Sequence[Row]) -> float | None:
    """The smallest error of the model, in steps of a hundredth, with which nine in ten real gains lie inside the interval."""
    stated = _stated(rows)
    return next((step / 100 for step in range(200) if _inside(stated, step / 100) >= COVERAGE * len(stated)), None)


def _stated(rows: Sequence[Row]) -> list[Row]:
    return [each for row in rows for each in row["each"] if each["changed"]]


def _inside(stated: Sequence[Row], error: float) -> int:
    """How many real gains lie inside the interval."""
    bounds = (interval(each["gains"], error) for each in stated)
    return sum(low <= each["real"] <= high for (low, high), each in zip(bounds, stated, strict=True))


def binomial(successes: int, trials: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson)."""
    if not trials:
        return 0.0, 1.0
    z, share = 1.96, successes / trials
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    reach = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _mean(gains: Sequence[float]) -> float | None:
    return float(np.exp(np.mean(np.log(gains)))) if len(gains) else None


def page(report: Row) -> str:
    """As Markdown."""

    def shown(value: float | None, form: str = ".3f") -> str:
        return "-" if value is None else format(value, form)

    def line(name: str, told: Row) -> str:
        gains = " | ".join(shown(told[key]) for key in ("predicted", "real", "looked_back"))
        share = f"{told['inside']} ({shown(told['covered'], '.0%')}; {told['covered_low']:.0%} to {told['covered_high']:.0%})"
        counts = f"{told['decisions']} | {told['stated']} | {gains} | {shown(told['error'], '.2f')} | {told['inside_futures']} | {share}"
        worth = f"{told['worth']} | {shown(told['worth_predicted'])} | {shown(told['worth_real'])} | {told['worth_worse']}"
        return f"| {name} | {counts} | {told['below']} | {told['above']} | {shown(told['width'], '.2f')} | {worth} |"

    head = ["decisions", "stated", "predicted", "real", "looked back", "error", "inside, futures alone", "inside (share, 95 % of it)"]
    head += ["below", "above", "high / low"]
    head += ["of at least 1.1", "predicted", "real", "worse"]
    speeds = [row["times_as_fast"] for row in report["cells"]]
    names = dict.fromkeys(row["trace"] for row in report["cells"])
    needed = calibrated([row for row in report["cells"] if row["trace"] == "philly"])
    notes = ["Synthetic traces stand in for files that are not there."] if any(row["synthetic"] for row in report["cells"]) else []
    return "\n".join(
        [
            "# The controller observing: stated gains against real ones",
            "",
            f"Written by `{report['command']}` on {report['date']}, commit {report['commit']}, seed {report['seed']}; do not edit.",
            f"{report['machine']}. Replayed {min(speeds):,.0f} to {max(speeds):,.0f} times as fast as the traces, decisions included.",
            "",
            "Tiresias on replayed traces, from its published settings. In mode `observe` the controller looks for better settings every",
            f"{EVERY_H:g} hours; its threshold is off, so every gain it would state counts (`stated`: settings other than those in force).",
            "`real` is the same change on the jobs that really came, forked at that moment. `looked back` is what the controller itself",
            "worked out a period later. Gains are geometric means; `error` is the root mean square of log(real / predicted).",
            "`inside` counts real gains within the stated interval, which is meant to hold nine in ten; `below` and `above` lie outside;",
            "`high / low` is how wide it is. The last columns are the changes that the default threshold would let through. All simulated.",
            *notes,
            "",
            f"| cell: trace, day, load | {' | '.join(head)} |",
            f"|{'---|' * (len(head) + 1)}",
            *(line(f"{row['trace']} {row['day']} {row['load']:g}, {row['cluster']}", summary([row])) for row in report["cells"]),
            *(line(f"**{name}**", summary([row for row in report["cells"] if row["trace"] == name])) for name in names),
            "",
            "The spread of the gain over drawn futures (`futures alone`) leaves out what all futures share: one predictor of",
            f"durations and one model. The stated interval adds an error of {MODEL_ERROR:g} times the logarithm of the gain. Errors",
            "grew with the gain on both traces; the size was calibrated on Philly alone, where nine in ten real gains need",
            f"{shown(needed, '.2f')}.",
            "Errors belong to a queue, not to a decision: within a cell most have the same sign. Decisions six hours apart share a",
            "queue, so fewer of them are independent than the count says, and the true range of the share is wider.",
            "",
            "The gain that the controller measures a period after a change is smaller than its prediction, as it should be: a prediction",
            "counts the jobs of a queue until the last of them is done, a period sees only its beginning. `worse_than: predicted` would",
            "roll back good changes for that reason; `before`, the default, does not.",
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", default=CELLS, help="trace:day:load, separated by commas")
    parser.add_argument("--hours", type=float, default=48.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="file of finished cells, one a line; an interrupted benchmark continues from it")
    parser.add_argument("--most-s", type=float, default=math.inf, help="begin no other cell after this many seconds")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    began_s = time.monotonic()
    kept = [json.loads(line) for line in given.keep.read_text().splitlines()] if given.keep and given.keep.exists() else []
    known = {(row["trace"], row["day"], row["load"], row["hours"], row["seed"]): row for row in kept}
    cells = []
    for name in given.cells.split(","):
        trace, day, load = name.split(":")
        key = (trace, int(day), float(load), given.hours, given.seed)
        if key not in known:
            if time.monotonic() - began_s > given.most_s:
                continue
            with tempfile.TemporaryDirectory(prefix="control-observe-") as folder:
                known[key] = observe(*key, Path(folder))
            print(f"{name}: {json.dumps(summary([known[key]]))}", file=sys.stderr, flush=True)
            if given.keep:
                with given.keep.open("a") as file:
                    file.write(json.dumps(known[key]) + "\n")
        cells.append(known[key])
    report = {
        "benchmark": "control_observe",
        "command": f"python -m benchmarks.control_observe --cells {given.cells} --hours {given.hours:g} --write",
        "date": time.strftime("%Y-%m-%d"),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}, shared",
        "seed": given.seed,
        "cells": cells,
    }
    if given.write:
        PAGE.write_text(page(report), encoding="utf-8")
    if given.json:
        told = {name: summary([row for row in cells if row["trace"] == name]) for name in dict.fromkeys(row["trace"] for row in cells)}
        print(json.dumps({**report, "cells": [{k: v for k, v in row.items() if k != "each"} for row in cells], "summary": told}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

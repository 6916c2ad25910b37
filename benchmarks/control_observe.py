"""The controller observing a replayed trace: predicted gains next to what the same change really gives.

    python -m benchmarks.control_observe --json             # Philly and Venus, a day each
    python -m benchmarks.control_observe --hours 12 --traces philly --json
    python -m benchmarks.control_observe --keep FILE --json # the same as the first; traces that FILE holds are not run again
    python -m benchmarks.control_observe --json --write     # and docs/results/control.md

A trace runs in a simulated cluster as fast as it can (the report says how fast; a thousand times its own speed is the goal). After
three days of it, every hour the controller, in mode `observe`, looks for better settings of Tiresias and states a gain, with an
interval that is meant to hold nine outcomes in ten. For every change it would have made, the simulation is forked at that moment and
run with the jobs that really came, once with the settings in force and once with the proposed ones, until the jobs of the next hour and
all before them are done. All simulated. Without `../shared/traces` synthetic traces stand in, and the output says so.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.control.controller import Controller
from autoscout.control.live.replay import Replay
from autoscout.control.settings import build_settings
from autoscout.core.config import Config
from autoscout.sched.source import load_trace
from autoscout.sched.tune.futures import Builder, Future, outcome

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "traces"
PAGE = ROOT / "docs" / "results" / "control.md"
CASES = {
    "philly": ("philly_2017.csv.gz", "2017-09-22", "70x8"),
    "venus": ("helios_venus_2020-09.csv.gz", "2020-09-11", "100x8"),
}
WARM_S = 3 * 86_400.0  # that a trace runs before the controller begins, so that the cluster is not empty
HOUR_S = 3_600.0


def observe(name: str, hours: float, seed: int, folder: Path) -> dict[str, Any]:
    """One trace."""
    file, start, cluster = CASES[name]
    path = SHARED / file
    synthetic = not path.is_file()
    source = f"synthetic:{name}:20000:21:1" if synthetic else str(path)
    if synthetic:
        start = str(float(load_trace(source).submit_s[0]) + 7 * 86_400)
    one = _one_cluster(source, folder)
    live = {"trace": one, "cluster": cluster, "scheduler": "tiresias", "start": start}
    given = {"cluster": name, "live": {"kind": "replay", **live}, "folder": str(folder), "mode": "observe", "every": "1h", "watch": 0}
    tuning = {"draws": 6, "trials": 16, "horizon": "1h", "least_gain": 1.02, "seed": seed}
    settings = build_settings({**given, "look": "20m", "tuning": tuning}, "benchmark")
    controller = Controller(settings, replay := Replay(live))
    truth = load_trace(one)
    controller.look()
    replay.clock.sleep(WARM_S)
    controller.look()
    began_s, from_s = time.monotonic(), replay.clock.now_s()
    found: list[dict[str, Any]] = []
    seen = 0
    while replay.clock.now_s() < from_s + hours * HOUR_S:
        controller.tick()
        for entry in controller.ledger.history():
            if entry.id > seen and entry.changes:
                kept = replay.session.snapshot()
                arrivals = truth.between(entry.at_s, entry.at_s + HOUR_S)
                future = Future(at_s=entry.at_s, arrivals=arrivals, snapshot=kept if len(kept.jobs) else None)
                build = Builder(scheduler="tiresias")
                old, new = (
                    outcome(future, replay.cluster, build(_active(replay, config)))["time_s"] for config in (entry.before, entry.after)
                )
                found.append({"hour": (entry.at_s - from_s) / HOUR_S, "predicted": entry.predicted, "low": entry.low, "high": entry.high,
                              "real": old / new, "load": entry.load})  # fmt: skip
            seen = max(seen, entry.id)
        replay.clock.sleep(settings.look)
    took_s = time.monotonic() - began_s
    decisions = [entry for entry in controller.ledger.history() if entry.kind == "hourly"]
    looked_back = [entry.measured for entry in decisions if entry.state == "observed" and np.isfinite(entry.measured)]
    controller.close()
    inside = [each["low"] <= each["real"] <= each["high"] for each in found]
    return {
        "trace": f"{name}{' (synthetic)' if synthetic else ''}",
        "cluster": cluster,
        "hours": hours,
        "times_as_fast": hours * HOUR_S / took_s,
        "decisions": len(decisions),
        "changes": len(found),
        "predicted": _mean([each["predicted"] for each in found]),
        "real": _mean([each["real"] for each in found]),
        "looked_back": _mean(looked_back),
        "covered": float(np.mean(inside)) if inside else None,
        "worse": int(sum(each["real"] < 1 for each in found)),
        "each": found,
    }


def _active(replay: Replay, config: Config) -> Config:
    return replay.space(replay.cluster).project(replay.space(replay.cluster).default(), config)


def _mean(gains: list[float]) -> float | None:
    return float(np.exp(np.mean(np.log(gains)))) if gains else None


def _one_cluster(source: str, folder: Path) -> str:
    """The trace as one virtual cluster, in a file of our own."""
    from dataclasses import replace

    from autoscout.sched.export import trace_columns, write_table
    from autoscout.sched.trace import Labels

    trace = load_trace(source)
    path = folder / "trace.csv"
    write_table(trace_columns(replace(trace, vc=Labels.constant("", len(trace)))), path)
    return str(path)


def page(report: dict[str, Any]) -> str:
    """As Markdown."""

    def shown(value: float | None, form: str = ".3f") -> str:
        return "" if value is None else format(value, form)

    rows = []
    for each in report["cases"]:
        gains = " | ".join(shown(each[name]) for name in ("predicted", "real", "looked_back"))
        counts = f"{each['hours']:g} | {each['times_as_fast']:,.0f} | {each['decisions']} | {each['changes']}"
        rows.append(f"| {each['trace']} | {each['cluster']} | {counts} | {gains} | {shown(each['covered'], '.0%')} | {each['worse']} |")
    return "\n".join(
        [
            "# The controller observing",
            "",
            f"Written by `{report['command']}` on {report['date']}, commit {report['commit']}, seed {report['seed']}. {report['machine']}.",
            "",
            "Tiresias on replayed traces; every hour the controller says what it would change and what that would gain. All simulated.",
            "`predicted` and `real` are geometric means over the changes; `real` is the same change on the jobs that really came;",
            "`looked back` is what the controller itself worked out an hour later; `covered` is the share of real gains inside the",
            "stated interval, meant to hold nine in ten; `worse` counts changes that really made it worse.",
            "",
            "| trace | cluster | hours | times as fast | decisions | changes | predicted | real | looked back | covered | worse |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", default="philly,venus")
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="file of finished traces, one a line; an interrupted benchmark continues from it")
    parser.add_argument("--most", type=int, default=100, help="traces to run now; the others later, with --keep")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    cases = [json.loads(line) for line in given.keep.read_text().splitlines()] if given.keep and given.keep.exists() else []
    for name in given.traces.split(",")[len(cases) :][: given.most]:
        with tempfile.TemporaryDirectory(prefix="control-observe-") as folder:
            cases.append(observe(name, given.hours, given.seed, Path(folder)))
            told = {key: value for key, value in cases[-1].items() if key != "each"}
            print(json.dumps(told), file=sys.stderr, flush=True)
            if given.keep:
                with given.keep.open("a") as file:
                    file.write(json.dumps(cases[-1]) + "\n")
    report = {
        "benchmark": "control_observe",
        "command": f"python -m benchmarks.control_observe --traces {given.traces} --hours {given.hours:g} --write",
        "date": time.strftime("%Y-%m-%d"),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip(),
        "machine": f"{platform.machine()}, {platform.system()} {platform.release()}, Python {platform.python_version()}, shared",
        "seed": given.seed,
        "cases": cases,
    }
    if given.write:
        PAGE.write_text(page(report), encoding="utf-8")
    if given.json:
        print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())

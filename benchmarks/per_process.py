"""Trials that share a process: `python -m benchmarks.per_process [--systems pytorch,finetune] [--out FILE]`, then `--write FILE...`.

The same configurations, drawn at random among those that may share, are measured one by one and four to a process (`measure.per_process`):
how long both take, and whether a step takes as long. Rounds alternate, so that a machine that changes changes both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autoscout.common.gpus import read_gpus
from autoscout.core import plugins, seeds
from autoscout.core.clock import RealClock
from autoscout.core.config import Config
from autoscout.core.trial import Measurement, Proposal
from autoscout.evaluate.profiler import Profiler, ProfilerOptions
from autoscout.execute.local import LocalExecutor, LocalOptions
from benchmarks.search import machine

PAGE = Path(__file__).parent.parent / "docs" / "lab" / "results" / "per-process.md"
CLOCK = RealClock()
SHARED = 4


def drawn(backend: Any, task: Any, count: int) -> list[Config]:
    """The default and random configurations that may share its processes."""
    space = backend.space(task)
    found = [space.default()]
    process, random = backend.process_of(found[0], task), seeds.stream(0, "per_process")
    while len(found) < count:
        config = space.sample(random, process)
        if config not in found and backend.process_of(config, task) == process:
            found.append(config)
    return found


def measured(backend: Any, task: Any, configs: Sequence[Config], per_process: int, folder: Path) -> tuple[float, list[Measurement]]:
    """Seconds that all of them took, and what they gave."""
    options = ProfilerOptions(dirty_repeats=0, stop_early=False, per_process=per_process)
    with LocalExecutor(LocalOptions(folder=str(folder))) as executor:
        began_s = CLOCK.span_s()
        profiler = Profiler(backend, executor, task, backend.space(task), options)
        found = [
            answer
            for at in range(0, len(configs), per_process)
            for answer in profiler.evaluate([Proposal(config=config) for config in configs[at : at + per_process]])
        ]
        return CLOCK.span_s() - began_s, found


def race(system: str, asked: argparse.Namespace) -> dict[str, Any]:
    """All rounds of one system."""
    backend: Any = plugins.get("backend", system)()
    given: dict[str, Any] = {"workload": {"enough_s": 8.0}}
    if asked.device == "cpu":
        given["hardware"] = {"device": "cpu", "gpus": 0, "processes": asked.processes}
    task = backend.task(given)
    configs = drawn(backend, task, asked.configurations)
    rounds = []
    with tempfile.TemporaryDirectory() as temporary:
        for number in range(asked.rounds):
            alone_s, alone = measured(backend, task, configs, 1, Path(temporary) / f"alone{number}")
            shared_s, shared = measured(backend, task, configs, SHARED, Path(temporary) / f"shared{number}")
            both = [(one, other) for one, other in zip(alone, shared, strict=True) if one.ok and other.ok]
            rounds.append(
                {
                    "alone_s": alone_s,
                    "shared_s": shared_s,
                    "start_s": [one.spent["start_s"] for one in alone if one.ok],
                    "step_ratio": [other.metrics["step_ms"] / one.metrics["step_ms"] for one, other in both],
                    "memory_ratio": [other.metrics["peak_mem_gib"] / one.metrics["peak_mem_gib"] for one, other in both],
                    "status": [[one.status.value for one in alone], [one.status.value for one in shared]],
                }
            )
            print(json.dumps({"system": system, **rounds[-1]}), flush=True)
    gpus = read_gpus()
    where = gpus[0].name if gpus and asked.device != "cpu" else machine()
    return {
        "system": system,
        "model": str(task.workload["model"]),
        "processes": task.hardware["processes"],
        "where": where,
        "rounds": rounds,
    }


def page(found: Sequence[dict[str, Any]]) -> str:
    """`docs/lab/results/per-process.md`."""
    lines = [
        "# Trials that share a process",
        "",
        "Written by `python -m benchmarks.per_process`; do not edit. The same configurations, drawn at random among those that may share",
        f"a process, measured one by one and {SHARED} to a process ([how](../../guides/expensive.md#several-trials-in-one-process)).",
        "Means over rounds, lowest and highest in brackets; a ratio is shared over alone, the median over configurations and rounds with",
        "the middle 80 %.",
        "",
        "| | on | configurations, rounds | s alone | s shared | times quicker | time of a step | peak memory |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in found:
        rounds = one["rounds"]
        quicker = [each["alone_s"] / each["shared_s"] for each in rounds]
        name = (
            f"`{one['system']}`, {one['model']}, {one['processes']} processes"
            if one["processes"] > 1
            else f"`{one['system']}`, {one['model']}"
        )
        cells = [name, one["where"], f"{len(rounds[0]['status'][0])}, {len(rounds)}"]
        cells += [f"{statistics.fmean(each[key] for each in rounds):.0f}" for key in ("alone_s", "shared_s")]
        cells += [f"{statistics.fmean(quicker):.2f} ({min(quicker):.2f}, {max(quicker):.2f})"]
        cells += [_spread([value for each in rounds for value in each[key]]) for key in ("step_ratio", "memory_ratio")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _spread(values: Sequence[float]) -> str:
    tenths = statistics.quantiles(values, n=10)
    return f"{statistics.median(values):.3f} ({tenths[0]:.2f}, {tenths[-1]:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", default="pytorch,finetune")
    parser.add_argument("--device", default="", choices=["", "cpu"])
    parser.add_argument("--processes", type=int, default=1, help="on a CPU")
    parser.add_argument("--configurations", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write what was measured here")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    parser.add_argument("--write", type=Path, nargs="+", metavar="FILE", help="write the page from recorded files")
    asked = parser.parse_args()
    if asked.write:
        PAGE.write_text(page([one for path in asked.write for one in json.loads(path.read_text())["systems"]]), encoding="utf-8")
        return
    found = {"systems": [race(system, asked) for system in asked.systems.split(",")]}
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(page(found["systems"]))
    if asked.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()

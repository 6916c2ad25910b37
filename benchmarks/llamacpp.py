"""`make tune` several times over: do the intervals agree? `python -m benchmarks.llamacpp [--runs N] [--budget TIME] [--json] [--write]`.

Each run is a study of its own, as `autoscout tune llamacpp` makes it, one after another. Two intervals agree when they overlap; so does
each interval with the other runs' estimates where nothing but noise is between the runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autoscout.study.campaign import build_campaign
from benchmarks._real_studies import change_lines, figures, gain_text, quiet_text, side_text, whole_study

PAGE = Path(__file__).parent.parent / "docs" / "results" / "llamacpp.md"
KEPT = "## Almost alone"
"""From this heading on the page is written by hand."""


def measure(results: Path, runs: int, budget: str, first: int) -> list[dict[str, Any]]:
    """One study after another."""
    found = []
    for number in range(first, first + runs):
        data = {"system": "llamacpp", "name": f"llamacpp_{number}", "budget": {"wall": budget}, "search": {"warm_start": False}}
        load = os.getloadavg()[0]
        found.append({**figures(whole_study(build_campaign(data, where="benchmarks.llamacpp"), results)), "load": load})
    return found


def overlap(runs: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether all intervals have a point in common; None where a run has none."""
    ends = [(run["gain"]["low"], run["gain"]["high"]) for run in runs]
    if any(low is None for low, _ in ends):
        return None
    return max(low for low, _ in ends) <= min(high for _, high in ends)


def page(runs: Sequence[Mapping[str, Any]], budget: str) -> str:
    """The part of the page that is measured."""
    said = {True: "The intervals overlap.", False: "The intervals do not overlap.", None: "Not every run came to an interval."}
    lines = [
        "# llama.cpp: `make tune`, and again",
        "",
        f"`autoscout tune llamacpp --budget {budget}` {len(runs)} times, one after another, on {os.cpu_count()} cores: the model `random`",
        "(see [the guide](../guides/llamacpp.md)) over HTTP. `python -m benchmarks.llamacpp --write`.",
        "",
        "| | " + " | ".join(f"run {number}" for number, _ in enumerate(runs, start=1)) + " |",
        "|---" * (len(runs) + 1) + "|",
    ]
    rows = {
        "began (UTC)": [time.strftime("%Y-%m-%d %H:%M", time.gmtime(run["began"])) for run in runs],
        "load average of the machine before": [f"{run['load']:.1f}" for run in runs],
        "verdict": [run["verdict"] for run in runs],
        "gain": [gain_text(run) for run in runs],
        f"default, {runs[0]['metric']}": [side_text(run["default"]) for run in runs],
        "contender": [side_text(run["best"]) for run in runs],
        "costs": [", ".join(run["costs"]) or "none" for run in runs],
        "trials": [", ".join(f"{count} {phase}" for phase, count in run["trials"].items()) for run in runs],
        "minutes": [f"{run['wall_s'] / 60:.1f}" for run in runs],
    }
    lines += [f"| {title} | " + " | ".join(cells) + " |" for title, cells in rows.items()]
    lines += ["", said[overlap(runs)]]
    for number, run in enumerate(runs, start=1):
        lines += ["", f"Run {number}. {quiet_text(run)}"]
        lines += ["", *change_lines(run)] if run["changes"] else []
    if len(runs) > 1:
        values = [run["default"]["value"] for run in runs if run["default"] and run["default"]["value"]]
        apart = max((max(pair) / min(pair) for pair in itertools.combinations(values, 2)), default=1.0)
        lines += [
            "",
            f"The default itself differs between the runs by {apart - 1.0:.0%}. Within a run that cancels out: each round measures both.",
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the studies and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--first", type=int, default=1, help="number of the first study; those in the results folder are resumed")
    parser.add_argument("--budget", default="6m", help="wall-clock time of each")
    parser.add_argument("--results", type=Path, default=Path("autoscout_results"), help="where the studies are kept")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/results/llamacpp.md, all above its part on busy machines")
    given = parser.parse_args()
    runs = measure(given.results, given.runs, given.budget, given.first)
    text = page(runs, given.budget)
    if given.write:
        old = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(text + "\n" + old[old.index(KEPT) :], encoding="utf-8")
    print(json.dumps({"runs": runs, "overlap": overlap(runs)}, indent=2) if given.json else text)


if __name__ == "__main__":
    main()

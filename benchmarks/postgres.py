"""PostgreSQL under pgbench, tuned for real: `python -m benchmarks.postgres [--budget TIME] [--results FOLDER] [--json] [--write]`.

Runs recipes/postgres.yaml twice, about twelve minutes each. Told are the gain, its price, and for each handed-over change what it
contributes and whether that was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autoscout.study.campaign import read_campaign
from benchmarks._real_studies import change_lines, figures, gain_text, quiet_text, side_text, whole_study

ROOT = Path(__file__).parent.parent
RECIPE = ROOT / "recipes" / "postgres.yaml"
PAGE = ROOT / "docs" / "lab" / "results" / "postgres.md"
GIVES_UP = ("synchronous_commit", "full_page_writes")
"""Knobs that give up safety."""


def version() -> str:
    """Of the server that the recipe finds."""
    line = 'PATH="$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | tail -n 1)" postgres --version'
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True).stdout.strip()


def measure(results: Path, budget: str | None, seed: int) -> dict[str, Any]:
    """Two studies: with the knobs that give up safety, and with those pinned to safe values."""
    found: dict[str, Any] = {"version": version(), "cores": os.cpu_count()}
    for name, pinned in {"all": {}, "safe": dict.fromkeys(GIVES_UP, "on")}.items():

        def change(data: Mapping[str, Any], name: str = name, pinned: Mapping[str, str] = pinned) -> dict[str, Any]:
            limits = {**data["budget"], **({"wall": budget} if budget else {})}
            search = {"seed": seed, "warm_start": False}
            return {**data, "name": f"postgres_{name}", "set": dict(pinned), "budget": limits, "search": search}

        found[name] = figures(whole_study(read_campaign(RECIPE, change), results))
    return found


def page(found: Mapping[str, Any]) -> str:
    """The figures as a page of results."""
    lines = [
        "# PostgreSQL with pgbench",
        "",
        f"[recipes/postgres.yaml](../../../recipes/postgres.yaml): {found['version']} on {found['cores']} cores, a fresh database for each",
        "trial, pgbench's own transactions from 8 clients for 8 seconds. Ten knobs; most cannot matter in so short a run, and none of",
        "those may be handed over. `python -m benchmarks.postgres --write`.",
    ]
    titles = {"all": "All knobs", "safe": "Durability kept: `--set synchronous_commit=on --set full_page_writes=on`"}
    for name, title in titles.items():
        one = found[name]
        trials = ", ".join(f"{count} {phase}" for phase, count in one["trials"].items())
        measured = sum(worth["source"] == "measured" for worth in one["contributions"])
        lines += ["", f"## {title}", ""]
        lines += [f"- default {side_text(one['default'])} tps, contender {side_text(one['best'])} tps"]
        lines += [f"- {one['verdict']}: {gain_text(one)}; {one['reason']}"]
        lines += [f"- price: {', '.join(one['costs']) or 'no metric is worse by more than a fifth'}"]
        lines += [f"- {trials} trials, {one['failed']} of them failed, {one['wall_s'] / 60:.1f} minutes. {quiet_text(one)}"]
        if one["changes"]:
            what = "handed over" if one["verdict"] == "gain" else "the default is handed over; the contender has"
            count = len(one["changes"])
            lines += [f"- {what}: {count} of 10 knobs changed, the effect of {measured} of them measured", "", *change_lines(one)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the studies and print or write the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", help="wall-clock time of each study; the recipe's own when left out")
    parser.add_argument("--results", type=Path, default=Path("autoscout_results"), help="where the studies are kept, and resumed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/lab/results/postgres.md")
    given = parser.parse_args()
    found = measure(given.results, given.budget, given.seed)
    if given.write:
        PAGE.write_text(page(found), encoding="utf-8")
    print(json.dumps(found, indent=2) if given.json else page(found))


if __name__ == "__main__":
    main()

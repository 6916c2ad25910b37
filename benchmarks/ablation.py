"""Which parts of the paper's search are worth their place: `python -m benchmarks.ablation NAME` (its Figures 8 to 11).

Variants race each other on the synthetic tables of `benchmarks.synthetic`, or on a folder of tables (`--tables`).
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscout_lab.bench import Entry, Race, find_tables, load_table, run_race, score
from autoscout_lab.bench.page import as_text
from autoscout_lab.bench.replay import Run
from autoscout_lab.bench.score import regrets
from autoscout_lab.bench.table import Table
from benchmarks.assisted import Assistance
from benchmarks.synthetic import SPACES, write

PAGE = Path(__file__).parents[1] / "docs" / "lab" / "results" / "ablation.md"


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """Variants that are raced against each other.

    Attributes:
        searchers: As `Entry.parse` reads them.
        tables: Synthetic tables to race on unless a folder is given.
        help: What is varied, and the paper's figure.
        noises: Each searcher also behind simulators that are this share off.
    """

    searchers: tuple[str, ...]
    tables: tuple[str, ...] = ("megatron-full",)
    help: str
    noises: tuple[float, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Who runs."""
        plain = [Entry.parse(text) for text in self.searchers]
        assisted = [
            replace(entry, label=f"{entry.label}, simulators {noise:.0%} off", play=Assistance(noise=noise))
            for entry in plain
            for noise in self.noises
        ]
        return (*plain, *assisted)


ABLATIONS = {
    "breakdown": Ablation(
        searchers=(
            "hybrid-paper",
            *(f"hybrid-paper:{part}" for part in ("sparse_only=true", "dense_only=true", "orchestrator=false", "tournament=false")),
        ),
        help="sparse only, dense only, no orchestrator, no tournament (Figure 8)",
    ),
    "tournament": Ablation(
        searchers=tuple(f"hybrid-paper:orderings={size}" for size in (1, 5, 10, 20, 40)),
        help="number of candidate trees K (Figure 9)",
    ),
    "spaces": Ablation(
        searchers=("hybrid", "hybrid-paper", "random"),
        tables=tuple(SPACES),
        help="3dp, 5dp and full spaces (Figure 10)",
    ),
    "noise": Ablation(
        searchers=("hybrid-paper",),
        help="simulators that are 0, 40, 80 % off, and profiling only (Figures 8 and 11)",
        noises=(0.0, 0.4, 0.8),
    ),
    "failures": Ablation(
        searchers=("hybrid", "hybrid:cautious=true", "hybrid:start=1", "hybrid:start=8"),
        help="our own search: shy of failures, with fewer and more starting points",
    ),
}
"""Name -> what to run."""


FIGURES = {
    "breakdown": "Figure 8: parts of the search",
    "tournament": "Figure 9: trees in the tournament",
    "noise": "Figure 11: simulators",
}
"""What the page shows, by ablation."""

HEAD = """# The paper's ablations, simulated

Written by `python -m benchmarks.ablation --write{flags}`. A synthetic Megatron job, nothing in it was measured; each variant
is run with {seeds} seeds and {budget} evaluations. Area is the mean regret over a run (0 at the optimum all the time, 1 at the median);
lower is better. The difference is paired by seed; it is called one where it is beyond two standard errors.
"""


def areas(runs: Sequence[Run], tables: Mapping[str, Table]) -> dict[str, dict[tuple[str, int], tuple[float, float]]]:
    """Searcher -> table and seed -> mean regret of the run, and the regret at its end."""
    found: dict[str, dict[tuple[str, int], tuple[float, float]]] = {}
    for run in runs:
        curve = regrets(run, tables[run.table])
        found.setdefault(run.searcher, {})[run.table, run.seed] = float(curve.mean()), float(curve[-1])
    return found


def section(title: str, first: str, found: Mapping[str, Mapping[tuple[str, int], tuple[float, float]]]) -> list[str]:
    """A table of variants, each compared with the first, and what it says in a sentence."""
    lines = ["", f"## {title}", "", "| variant | area | at the end | worse than the first by | |", "|---|---|---|---|---|"]
    words: dict[str, list[str]] = {"worse": [], "better": [], "no difference": []}
    for name, cells in found.items():
        area, end = (np.array([pair[side] for pair in cells.values()]) for side in (0, 1))
        apart = np.array([cells[key][0] - found[first][key][0] for key in cells])
        shown = word = ""
        if name != first:
            shown = f"{apart.mean():+.3f} ± {_error(apart):.3f}"
            word = "no difference" if abs(apart.mean()) <= 2 * _error(apart) else "worse" if apart.mean() > 0 else "better"
            words[word].append(name)
        lines.append(f"| {name} | {area.mean():.3f} ± {_error(area):.3f} | {end.mean():.3f} | {shown} | {word} |")
    said = "; ".join(f"{word}: {', '.join(names)}" for word, names in words.items() if names)
    return [*lines, "", f"Against {first}: {said}."]


def _error(values: NDArray[np.float64]) -> float:
    """The standard error of a mean."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.inf


def main() -> None:
    """Run one of them, or all, and print the scores, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*ABLATIONS, "all"], nargs="?", default="all")
    parser.add_argument("--tables", help="folder of tables; the synthetic ones when left out")
    parser.add_argument("--only", default="", help="comma-separated names of tables")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name} from those that the paper shows")
    asked = parser.parse_args()
    parts: list[str] = []
    only = [name for name in asked.only.split(",") if name]
    with tempfile.TemporaryDirectory() as folder:
        where = asked.tables or str(write(Path(folder)))
        chosen = [asked.name] if asked.name != "all" else list(FIGURES) if asked.write else list(ABLATIONS)
        for name in chosen:
            plan = ABLATIONS[name]
            tables = tuple(find_tables(where, only or ([] if asked.tables else plan.tables)))
            seeds = tuple(range(asked.first_seed, asked.first_seed + asked.seeds))
            race = Race(entries=plan.entries, tables=tables, seeds=seeds, budget=asked.budget, jobs=asked.jobs)
            loaded = {source.name: load_table(source) for source in tables}
            runs = run_race(race)
            if asked.write:
                parts += section(FIGURES.get(name, name), plan.entries[0].label, areas(runs, loaded))
                continue
            scores = score(runs, loaded)
            print(f"{name}: {plan.help}\n{as_text(scores)}\n")
    if asked.write:
        given = f" --seeds {asked.seeds} --budget {asked.budget}" * ((asked.seeds, asked.budget) != (20, 100))
        head = HEAD.format(flags=given, seeds=asked.seeds, budget=asked.budget)
        PAGE.write_text("\n".join([head.rstrip(), *parts]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

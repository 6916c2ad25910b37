"""Which parts of the paper's search are worth their place: `python -m benchmarks.ablation NAME` (its Figures 8 to 11).

Variants race each other on the synthetic tables of `benchmarks.synthetic`, or on a folder of tables (`--tables`).
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from autoscout_lab.bench import Entry, Race, find_tables, load_table, run_race, score
from autoscout_lab.bench.page import as_text
from benchmarks.assisted import Assistance
from benchmarks.synthetic import SPACES, write


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


def main() -> None:
    """Run one of them, or all, and print the scores."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=[*ABLATIONS, "all"], nargs="?", default="all")
    parser.add_argument("--tables", help="folder of tables; the synthetic ones when left out")
    parser.add_argument("--only", default="", help="comma-separated names of tables")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    asked = parser.parse_args()
    only = [name for name in asked.only.split(",") if name]
    with tempfile.TemporaryDirectory() as folder:
        where = asked.tables or str(write(Path(folder)))
        for name in ABLATIONS if asked.name == "all" else [asked.name]:
            plan = ABLATIONS[name]
            tables = tuple(find_tables(where, only or ([] if asked.tables else plan.tables)))
            seeds = tuple(range(asked.first_seed, asked.first_seed + asked.seeds))
            race = Race(entries=plan.entries, tables=tables, seeds=seeds, budget=asked.budget, jobs=asked.jobs)
            scores = score(run_race(race), {source.name: load_table(source) for source in tables})
            print(f"{name}: {plan.help}\n{as_text(scores)}\n")


if __name__ == "__main__":
    main()

"""Runs searchers on tables as listed spaces, and prints one JSON object per run.

A program of its own, started by `benchmarks.search`: it is the same for every source tree that is compared, so it uses only what all of
them have (`find_tables`, `load_table`, `Space.among`, and the searcher's `ask` and `tell`). The job is one JSON object on standard input:
folders of tables, the names wanted and not wanted, searchers, seeds, budget.
"""

from __future__ import annotations

import json
import sys
import time
import typing
from pathlib import Path
from typing import Any

import numpy as np

from autoscout.core import plugins
from autoscout.core.trial import Trial
from autoscout.space import Space
from autoscout_lab.bench import find_tables, load_table

CLOSE = 0.05
"""Share of the optimum that counts as having found it."""


class Answers:
    """The rows of a table as a listed space, and what was measured in each.

    Args:
        table: As `load_table` reads it.
    """

    def __init__(self, table: Any) -> None:
        self.name, self.task = table.name, table.task
        self.space = Space(table.space.knobs.values()).among(table.configs)
        self._table = table
        self._rows = {config: row for row, config in enumerate(table.configs)}
        worked = table.losses[np.isfinite(table.losses)]
        self.best, self.median = float(worked.min()), float(np.median(worked))

    def measurement(self, config: Any) -> Any:
        return self._table.measurement(self._rows[config])

    def loss(self, config: Any) -> float:
        """Infinite where it failed."""
        return float(self._table.losses[self._rows[config]])

    def regret(self, loss: float) -> float:
        """0 at the optimum, 1 at the median of the rows that worked and for everything worse."""
        return min(1.0, max(0.0, (loss - self.best) / max(self.median - self.best, 1e-300)))


def searcher(entry: dict[str, Any], answers: Answers, seed: int) -> Any:
    """A fresh searcher, told the predictions of a simulator where the entry names one."""
    kind = plugins.get("searcher", entry["searcher"])
    options = None
    if entry.get("options"):
        hint = typing.get_type_hints(kind.__init__)["options"]
        made = next(part for part in typing.get_args(hint) if part is not type(None))
        options = made(**entry["options"])
    told = {"simulator": plugins.get("simulator", entry["simulator"])()} if entry.get("simulator") else {}
    return kind(answers.space, answers.task, seed, options, **told)


def run(entry: dict[str, Any], answers: Answers, seed: int, budget: int) -> dict[str, Any]:
    """One searcher on one table until the budget, the table or the searcher is exhausted."""
    search = searcher(entry, answers, seed)
    losses: list[float] = []
    costs: list[float] = []
    while len(losses) < min(budget, len(answers.space)):
        before = time.process_time()
        proposals = search.ask(1)
        if not proposals:
            break
        trial = Trial(proposal=proposals[0], measurement=answers.measurement(proposals[0].config), number=len(losses))
        search.tell([trial])
        costs.append(1000.0 * (time.process_time() - before))
        losses.append(answers.loss(proposals[0].config))
    best = np.minimum.accumulate(np.array([*losses, *[np.inf] * (budget - len(losses))]))
    regrets = np.array([answers.regret(loss) if np.isfinite(loss) else 1.0 for loss in best])
    goal = answers.best + CLOSE * abs(answers.best) + 1e-12
    reached = next((step for step, loss in enumerate(losses, start=1) if loss <= goal), None)
    return {
        "label": entry["label"],
        "table": answers.name,
        "seed": seed,
        "area": round(float(regrets.mean()), 6),
        "area_50": round(float(regrets[:50].mean()), 6),
        "evaluations": reached if reached is not None else 2 * budget,
        "reached": reached is not None,
        "failures": sum(np.isinf(losses).tolist()),
        "ms": round(float(np.median(costs)), 3) if costs else 0.0,
        "steps": len(losses),
    }


def main() -> None:
    """Read the job, run it, print every run as soon as it is finished."""
    job = json.load(sys.stdin)
    sources = [source for folder in job["folders"] if Path(folder).is_dir() for source in find_tables(folder)]
    wanted = [
        source for source in sources if source.name not in job.get("without", ()) and source.name in (job.get("only") or [source.name])
    ]
    tables = [Answers(load_table(source)) for source in wanted]
    for seed in job["seeds"]:
        for answers in tables:
            for entry in job["entries"]:
                if not entry.get("tables") or answers.name in entry["tables"]:
                    print(json.dumps(run(entry, answers, seed, job["budget"])), flush=True)


if __name__ == "__main__":
    main()

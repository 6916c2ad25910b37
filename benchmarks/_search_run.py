"""Runs searchers on tables as listed spaces, and prints one JSON object per run.

A program of its own, started by `benchmarks._search_race`: it is the same for every source tree that is compared, so it uses only what all
of them have (`find_tables`, `load_table`, `Space.among`, and the searcher's `ask` and `tell`). The job is one JSON object on standard
input: the tables with their family, noise and budget, the searchers, the seed.
"""

from __future__ import annotations

import json
import math
import sys
import time
import typing
from dataclasses import replace
from typing import Any

import numpy as np

from autoscout.core import plugins
from autoscout.core.seeds import stream
from autoscout.core.trial import Trial
from autoscout.space import Space
from autoscout_lab.bench import find_tables, load_table

CLOSE = 0.05
"""Share of the optimum that counts as having found it."""


class Answers:
    """The rows of a table as a listed space, what was measured in each, and what a search is told of it.

    Args:
        table: As `load_table` reads it.
        noise: Standard deviation of the logarithm of what is told.
        seed: Names the noise.
    """

    def __init__(self, table: Any, noise: float, seed: int) -> None:
        self.name, self.task = table.name, table.task
        self.space = Space(table.space.knobs.values()).among(table.configs)
        self._table, self._noise, self._seed = table, noise, seed
        self._rows = {config: row for row, config in enumerate(table.configs)}
        worked = table.losses[np.isfinite(table.losses)]
        self.best, self.median = float(worked.min()), float(np.median(worked))

    def told(self, config: Any) -> tuple[Any, float]:
        """The measurement of a configuration, and the logarithm of what noise makes of it."""
        measurement = self._table.measurement(self._rows[config])
        noise = self._noise * float(stream(self._seed, "noise", self.name, config.key).standard_normal()) if self._noise else 0.0
        metrics = {name: value * math.exp(noise) for name, value in measurement.metrics.items()}
        return replace(measurement, metrics=metrics), noise

    def loss(self, config: Any) -> float:
        """Infinite where it failed."""
        return float(self._table.losses[self._rows[config]])

    def regret(self, loss: float) -> float:
        """0 at the optimum, 1 at the median of the rows that worked and for everything worse."""
        return min(1.0, max(0.0, (loss - self.best) / max(self.median - self.best, 1e-300)))


class Wrong:
    """A simulator whose every prediction has an error of its own, of which it knows nothing.

    Args:
        inner: The simulator.
        off: Standard deviation of the error, as a share of the prediction.
        seed: Names the errors.
    """

    def __init__(self, inner: Any, off: float, seed: int) -> None:
        self._inner, self._off, self._seed = inner, off, seed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def predict(self, configs: Any, task: Any) -> Any:
        answer = self._inner.predict(configs, task)
        if not self._off:
            return answer
        errors = [float(stream(self._seed, "wrong", config.key).standard_normal()) for config in configs]
        return replace(answer, value=answer.value * np.maximum(0.05, 1.0 + self._off * np.array(errors)))


def searcher(entry: dict[str, Any], answers: Answers, seed: int) -> Any:
    """A fresh searcher, told the predictions of a simulator where the entry names one."""
    kind = plugins.get("searcher", entry["searcher"])
    options = None
    if entry.get("options"):
        hint = typing.get_type_hints(kind.__init__)["options"]
        made = next(part for part in typing.get_args(hint) if part is not type(None))
        options = made(**entry["options"])
    told = (
        {"simulator": Wrong(plugins.get("simulator", entry["simulator"])(), entry.get("off", 0.0), seed)} if entry.get("simulator") else {}
    )
    return kind(answers.space, answers.task, seed, options, **told)


def run(entry: dict[str, Any], answers: Answers, seed: int, budget: int) -> dict[str, Any]:
    """One searcher on one table until the budget, the table or the searcher is exhausted."""
    search = searcher(entry, answers, seed)
    known: set[Any] = set()
    best_told, best = math.inf, math.inf  # what the search would hand over, and what it is worth
    bests: list[float] = []
    failures, reached = 0, None
    costs: list[float] = []
    goal = answers.best + CLOSE * abs(answers.best) + 1e-12
    repeated = 0
    while len(bests) < budget and repeated < 10:
        before = time.process_time()
        proposals = search.ask(1)
        if not proposals:
            break
        config = proposals[0].config
        measurement, noise = answers.told(config)
        search.tell([Trial(proposal=proposals[0], measurement=measurement, number=len(bests))])
        costs.append(1000.0 * (time.process_time() - before))
        if config in known:  # costs nothing, as in every race
            repeated += 1
            continue
        known.add(config)
        repeated = 0
        loss = answers.loss(config)
        told = loss * math.exp(noise if loss > 0 else -noise) if math.isfinite(loss) else math.inf
        failures += math.isinf(loss)
        if told < best_told:
            best_told, best = told, loss
        bests.append(best)
        if reached is None and best <= goal:
            reached = len(bests)
    steps = len(bests)
    bests += [best] * (budget - steps)
    regrets = [answers.regret(loss) if math.isfinite(loss) else 1.0 for loss in bests]
    return {
        "label": entry["label"],
        "table": answers.name,
        "seed": seed,
        "area": round(float(np.mean(regrets)), 6),
        "left": round(regrets[-1], 6),
        "behind": round(best / answers.best - 1.0 if answers.best > 0 else answers.best / best - 1.0, 6) if math.isfinite(best) else None,
        "evaluations": reached if reached is not None else 2 * budget,
        "reached": reached is not None,
        "failures": failures,
        "ms": round(float(np.median(costs)), 3) if costs else 0.0,
        "steps": steps,
        "budget": budget,
    }


def suitable(name: str, answers: Answers) -> str | None:
    """The simulator to tell: the one named, or of `auto` the one that understands the table; None where there is none."""
    if name != "auto":
        return name
    from autoscout.study.start import find_simulator  # older source trees may not have it

    return find_simulator(answers.space, answers.task) or None


def main() -> None:
    """Read the job, run it, print every run as soon as it is finished."""
    job = json.load(sys.stdin)
    for asked in job["tables"]:
        table = load_table(next(source for source in find_tables(asked["folder"]) if source.name == asked["name"]))
        answers = Answers(table, asked["noise"], job["seed"])
        budget = min(asked["budget"], math.ceil(asked["share"] * len(table.configs)))
        for entry in job["entries"]:
            simulator = entry.get("simulator") and suitable(entry["simulator"], answers)
            if simulator is None:
                found = {"label": entry["label"], "table": answers.name, "seed": job["seed"], "skipped": True}
            else:
                found = run({**entry, "simulator": simulator}, answers, job["seed"], budget)
            print(json.dumps({**found, "family": asked["family"]}), flush=True)


if __name__ == "__main__":
    main()

"""Scores of a race: how close, how soon, at what cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autoscout.core.seeds import stream
from autoscout_lab.bench.replay import Run
from autoscout_lab.bench.table import Table

WITHIN = (0.01, 0.05, 0.10)
"""Distances from the optimum for which evaluations are counted."""

BOOTSTRAPS = 1000
_Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Score:
    """One searcher, on one table or on all.

    Attributes:
        searcher: Label.
        table: Name; empty for all tables together.
        area: Mean regret over the run: 0 at the optimum all the time, 1 at the median all the time.
        areas: The same over the first 50, 100, ... evaluations.
        evaluations_to: Within 1, 5, 10 % of the optimum -> evaluations; a run that never gets there counts twice the budget.
            Mean over seeds, geometric mean over tables.
        reached: Within 1, 5, 10 % -> share of runs that got there.
        rank: Place among the searchers by area, 1 is best; mean over tables.
        rank_low, rank_high: 95 % bootstrap interval over tables and seeds.
        failures: Share of the budget spent on failures, on tables that have any (what an early stop leaves over is not spent); None
            when none has.
        median_ms: CPU of one proposal, asking and telling, median.
        late_ms: The same over the last tenth of each run.
        curve: Mean regret after each evaluation.
    """

    searcher: str
    table: str = ""
    area: float
    areas: Mapping[int, float]
    evaluations_to: Mapping[float, float]
    reached: Mapping[float, float]
    rank: float
    rank_low: float
    rank_high: float
    failures: float | None
    median_ms: float
    late_ms: float
    curve: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        for key in ("evaluations_to", "reached"):
            data[key] = {f"{100 * within:g}%": value for within, value in data[key].items()}
        data["curve"] = [round(value, 5) for value in self.curve]
        return data


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scores of a race, best mean rank first."""

    overall: tuple[Score, ...]
    by_table: tuple[Score, ...]
    budget: int
    seeds: int

    def to_json(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "seeds": self.seeds,
            "overall": [score.to_json() for score in self.overall],
            "by_table": [score.to_json() for score in self.by_table],
        }


def regrets(run: Run, table: Table) -> _Array:
    """Regret of the best so far after each evaluation, held at its last value up to the budget."""
    curve = np.ones(run.budget)
    best = 1.0
    for step in range(run.budget):
        if step < len(run.losses) and (loss := run.losses[step]) is not None:
            best = min(best, table.regret(loss))
        curve[step] = best
    return curve


def evaluations_to(run: Run, table: Table, within: float) -> float:
    """How many evaluations until the best is within a share of the optimum; twice the budget when never."""
    goal = table.optimum + within * abs(table.optimum) + 1e-12
    return next((float(step) for step, loss in enumerate(run.losses, start=1) if loss is not None and loss <= goal), 2.0 * run.budget)


@dataclass(frozen=True)
class _Cell:
    """One searcher on one table, all seeds."""

    curves: _Array  # seeds x budget
    reach: dict[float, _Array]
    failures: float
    costs_ms: _Array
    late_ms: _Array

    @classmethod
    def of(cls, runs: Sequence[Run], table: Table) -> _Cell:
        late = [cost for run in runs for cost in run.cpu_ms[-max(1, len(run.cpu_ms) // 10) :]]
        return cls(
            np.array([regrets(run, table) for run in runs]),
            {within: np.array([evaluations_to(run, table, within) for run in runs]) for within in WITHIN},
            float(np.mean([sum(loss is None for loss in run.losses) / run.budget for run in runs])),
            np.array([cost for run in runs for cost in run.cpu_ms] or [0.0]),
            np.array(late or [0.0]),
        )


def score(runs: Sequence[Run], tables: Mapping[str, Table]) -> Scores:
    """Score all runs of a race; they must share one budget."""
    searchers = list(dict.fromkeys(run.searcher for run in runs))
    names = list(dict.fromkeys(run.table for run in runs))
    grouped: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        grouped.setdefault((run.searcher, run.table), []).append(run)
    cells = {key: _Cell.of(lot, tables[key[1]]) for key, lot in grouped.items()}
    budget = runs[0].budget
    areas = [[cells[searcher, name].curves.mean(axis=1) for name in names] for searcher in searchers]
    ranks, low, high = _rank_intervals(areas)
    per_table = _ranks(np.array([[float(cell.mean()) for cell in row] for row in areas]))
    by_table = [
        _table_score(cells[searcher, name], searcher, tables[name], per_table[i, j], budget)
        for j, name in enumerate(names)
        for i, searcher in enumerate(searchers)
    ]
    overall = [
        _overall(searcher, [cells[searcher, name] for name in names], [tables[name] for name in names], (ranks[i], low[i], high[i]), budget)
        for i, searcher in enumerate(searchers)
    ]
    order = sorted(overall, key=lambda item: (item.rank, item.area))
    return Scores(overall=tuple(order), by_table=tuple(by_table), budget=budget, seeds=max(len(lot) for lot in grouped.values()))


def _marks(budget: int) -> list[int]:
    return [mark for mark in (25, 50, 100, 200, 400, 800) if mark <= budget]


def _table_score(cell: _Cell, searcher: str, table: Table, rank: float, budget: int) -> Score:
    curve = cell.curves.mean(axis=0)
    return Score(
        searcher=searcher,
        table=table.name,
        area=float(curve.mean()),
        areas={mark: float(curve[:mark].mean()) for mark in _marks(budget)},
        evaluations_to={within: float(counts.mean()) for within, counts in cell.reach.items()},
        reached={within: float((counts <= budget).mean()) for within, counts in cell.reach.items()},
        rank=float(rank),
        rank_low=float(rank),
        rank_high=float(rank),
        failures=cell.failures if table.failures else None,
        median_ms=float(np.median(cell.costs_ms)),
        late_ms=float(np.median(cell.late_ms)),
        curve=tuple(curve.tolist()),
    )


def _overall(searcher: str, cells: Sequence[_Cell], tables: Sequence[Table], rank: tuple[float, float, float], budget: int) -> Score:
    curve = np.mean([cell.curves.mean(axis=0) for cell in cells], axis=0)
    failing = [cell.failures for cell, table in zip(cells, tables, strict=True) if table.failures]
    return Score(
        searcher=searcher,
        area=float(curve.mean()),
        areas={mark: float(curve[:mark].mean()) for mark in _marks(budget)},
        evaluations_to={
            within: math.exp(float(np.mean([math.log(float(cell.reach[within].mean())) for cell in cells]))) for within in WITHIN
        },
        reached={within: float(np.mean([(cell.reach[within] <= budget).mean() for cell in cells])) for within in WITHIN},
        rank=rank[0],
        rank_low=rank[1],
        rank_high=rank[2],
        failures=float(np.mean(failing)) if failing else None,
        median_ms=float(np.median(np.concatenate([cell.costs_ms for cell in cells]))),
        late_ms=float(np.median(np.concatenate([cell.late_ms for cell in cells]))),
        curve=tuple(curve.tolist()),
    )


def _ranks(areas: _Array) -> _Array:
    """Places within each column, 1 is the lowest; equals share the mean of their places."""
    below = (areas[None, :, :] < areas[:, None, :] - 1e-12).sum(axis=1)
    equal = (np.abs(areas[None, :, :] - areas[:, None, :]) <= 1e-12).sum(axis=1)
    return np.asarray(below + (equal + 1) / 2.0, dtype=np.float64)


def _rank_intervals(areas: Sequence[Sequence[_Array]]) -> tuple[_Array, _Array, _Array]:
    """Mean rank over tables, and its 2.5 and 97.5 % quantiles when tables and seeds are drawn again."""
    means = np.array([[float(cell.mean()) for cell in row] for row in areas])
    mean = _ranks(means).mean(axis=1)
    rng = stream(0, "bench", "bootstrap")
    columns = means.shape[1]
    drawn = np.empty((BOOTSTRAPS, len(areas)))
    seeds = [min(len(row[column]) for row in areas) for column in range(columns)]
    stacked = [np.array([row[column][: seeds[column]] for row in areas]) for column in range(columns)]
    for index in range(BOOTSTRAPS):
        chosen = [int(column) for column in rng.integers(columns, size=(columns,))]
        sample = [stacked[column][:, rng.integers(seeds[column], size=seeds[column])].mean(axis=1) for column in chosen]
        drawn[index] = _ranks(np.array(sample).T).mean(axis=1)
    return mean, np.quantile(drawn, 0.025, axis=0), np.quantile(drawn, 0.975, axis=0)

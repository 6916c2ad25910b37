"""What a race of searchers shows: means by family, and paired differences with their errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks._search_race import Run

ERRORS = 2.0
"""Standard errors that a difference must have to count."""


@dataclass(frozen=True)
class Figures:
    """One searcher on one family; errors are standard errors over seeds."""

    area: float
    area_error: float
    evaluations: float
    evaluations_error: float
    reached: float
    failures: float
    ms: float
    seeds: int


@dataclass(frozen=True)
class Difference:
    """One searcher less another on one family, paired by seed; `evaluations` is of the logarithm."""

    area: float
    area_error: float
    evaluations: float
    evaluations_error: float
    seeds: int

    @property
    def verdict(self) -> str:
        """By area: `better`, `worse`, or `level` within two standard errors."""
        if self.seeds < 2 or abs(self.area) <= ERRORS * self.area_error:
            return "level"
        return "better" if self.area < 0 else "worse"


def figures(runs: Sequence[Run]) -> Figures:
    """Means over the runs of one searcher."""
    seeds = sorted({run["seed"] for run in runs})
    area, area_error = _mean([float(np.mean([run["area"] for run in runs if run["seed"] == seed])) for seed in seeds])
    logs = [float(np.mean([math.log(run["evaluations"]) for run in runs if run["seed"] == seed])) for seed in seeds]
    log, log_error = _mean(logs)
    return Figures(
        area=area,
        area_error=area_error,
        evaluations=math.exp(log),
        evaluations_error=math.exp(log) * log_error,
        reached=float(np.mean([run["reached"] for run in runs])),
        failures=float(np.mean([run["failures"] for run in runs])),
        ms=float(np.median([run["ms"] for run in runs])),
        seeds=len(seeds),
    )


def difference(mine: Sequence[Run], other: Sequence[Run]) -> Difference:
    """Over the tables and seeds that both ran; means over the tables of a seed, then over seeds."""
    theirs = {(run["table"], run["seed"]): run for run in other}
    pairs = [(run, theirs[run["table"], run["seed"]]) for run in mine if (run["table"], run["seed"]) in theirs]
    seeds = sorted({run["seed"] for run, _ in pairs})
    areas = [float(np.mean([one["area"] - two["area"] for one, two in pairs if one["seed"] == seed])) for seed in seeds]
    logs = [
        float(np.mean([math.log(one["evaluations"] / two["evaluations"]) for one, two in pairs if one["seed"] == seed])) for seed in seeds
    ]
    return Difference(*_mean(areas), *_mean(logs), seeds=len(seeds))


def by_family(runs: Sequence[Run]) -> dict[str, dict[str, list[Run]]]:
    """Family -> label -> runs."""
    lots: dict[str, dict[str, list[Run]]] = {}
    for run in runs:
        lots.setdefault(run["family"], {}).setdefault(run["label"], []).append(run)
    return lots


def overall(families: Mapping[str, Sequence[Run]]) -> tuple[float, float]:
    """Mean area and geometric mean of evaluations, each family counting once."""
    rows = [figures(runs) for runs in families.values()]
    return float(np.mean([row.area for row in rows])), math.exp(float(np.mean([math.log(row.evaluations) for row in rows])))


def _mean(values: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    if not values:
        return math.nan, math.nan
    return float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0

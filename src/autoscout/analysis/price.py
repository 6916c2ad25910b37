"""The price of a gain: the metrics that got worse while the objective got better."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoscout.common.fields import natural_direction
from autoscout.common.text import show_number
from autoscout.core.task import Direction, Guard, Limit, Objective

COST_ABOVE = 0.2
"""How much worse than the default's a metric must be, as a share, to be named under the headline."""
NOTICE_ABOVE = 0.02
"""Change of a metric, as a share, from which on it is marked better or worse; smaller ones are mostly noise."""
_SHOWN = 6  # costs that one line names
_STATISTIC = re.compile(r"^(mean|median|p\d+)_")  # in front of the name of what it is a statistic of


@dataclass(frozen=True, kw_only=True)
class Cost:
    """A metric that is worse than the default's.

    Attributes:
        metric: Its name.
        default: Its pooled value with the default.
        best: Its pooled value with the best configuration.
        times: How many times worse, above 1; None where one of the two is zero.
    """

    metric: str
    default: float
    best: float
    times: float | None

    def __str__(self) -> str:
        if self.times is None:
            return f"{self.metric} {show_number(self.default)} to {show_number(self.best)}"
        digits = 2 if self.times < 1.195 else 1 if self.times < 99.5 else 0
        return f"{self.metric} {self.times:.{digits}f}x"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def direction_of(metric: str, objective: Objective) -> Direction | None:
    """Which way is better for a metric: what the objective, its limits and guards say, else what the name says; None: unknown."""
    for goal in objective.goals:
        if metric == goal.metric:
            return goal.direction
    rules: list[Limit | Guard] = [*objective.limits, *objective.guards]
    for rule in rules:
        if rule.metric == metric:
            return Direction.MINIMIZE if rule.op.startswith("<") else Direction.MAXIMIZE
    return natural_direction(metric)


def worsening(metric: str, default: float, best: float, objective: Objective) -> float | None:
    """How many times worse than the default a metric is: above 1 worse, below 1 better.

    None where the direction is not known or the values have no ratio; infinite where it was nothing and is something, or the other way.
    """
    direction = direction_of(metric, objective)
    if direction is None or min(default, best) < 0:
        return None
    above, below = (best, default) if direction is Direction.MINIMIZE else (default, best)
    if above == below:
        return 1.0
    return above / below if below else float("inf")


def mark(metric: str, default: float | None, best: float | None, objective: Objective) -> str:
    """`better` or `worse` for a change worth noticing; empty for a small one, or where the direction is not known."""
    times = None if default is None or best is None else worsening(metric, default, best, objective)
    if times is None or 1.0 / (1.0 + NOTICE_ABOVE) <= times <= 1.0 + NOTICE_ABOVE:
        return ""
    return "worse" if times > 1.0 else "better"


def costs(objective: Objective, default: Mapping[str, float], best: Mapping[str, float], *, is_paid: bool = False) -> tuple[Cost, ...]:
    """Every metric with a known direction that is worse than the default's by more than `COST_ABOVE`, the worst first.

    Args:
        objective: Whose metric, limits and guards have directions.
        default: Pooled metrics of the default.
        best: Pooled metrics of the configuration compared with it.
        is_paid: The objective is what was paid with for keeping the limits: named from `NOTICE_ABOVE` on.
    """
    worse = []
    for name in sorted(default.keys() & best.keys()):
        times = worsening(name, default[name], best[name], objective)
        above = NOTICE_ABOVE if is_paid and name == objective.metric else COST_ABOVE
        if times is not None and times > 1.0 + above:
            worse.append((times, Cost(metric=name, default=default[name], best=best[name], times=times if times < float("inf") else None)))
    return tuple(cost for _, cost in sorted(worse, key=lambda pair: -pair[0]))


def foremost(values: Sequence[Cost]) -> list[Cost]:
    """The first of each metric: of `mean_ttft_ms`, `p95_ttft_ms` and the like, whichever comes first stands for all."""
    by_metric: dict[str, Cost] = {}
    for cost in values:
        by_metric.setdefault(_STATISTIC.sub("", cost.metric), cost)
    return list(by_metric.values())


def costs_text(values: Sequence[Cost]) -> str:
    """`costs: p95_tpot_ms 5.8x, peak_mem_gib 1.4x`, one of each metric; empty when nothing got worse."""
    shortened = foremost(values)
    more = f" and {len(shortened) - _SHOWN} more" if len(shortened) > _SHOWN else ""
    return f"costs: {', '.join(map(str, shortened[:_SHOWN]))}{more}" if shortened else ""


__all__ = ["COST_ABOVE", "NOTICE_ABOVE", "Cost", "costs", "costs_text", "direction_of", "foremost", "mark", "worsening"]

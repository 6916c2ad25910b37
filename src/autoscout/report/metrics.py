"""Which metrics of default and best are shown, and how each changed; alike on the terminal and on the page."""

from __future__ import annotations

from autoscout.analysis.price import foremost
from autoscout.analysis.summary import Summary
from autoscout.common.text import show_percent
from autoscout.core.task import Direction, Guard, Limit

MOST_METRICS = 10
"""Metrics that the table of the terminal holds; `report.html` has all."""


TOLD = ("acceptance_rate", "acceptance_length")
"""Metrics that are always shown where they are reported: what a change of theirs says of the goal is not seen elsewhere."""


def shown_metrics(summary: Summary) -> tuple[list[str], int]:
    """The metrics that a terminal has room for, goals, limits and costs first, and how many there are besides."""
    objective = summary.task.objective
    reported = {name for side in summary.sides.values() if side for name in side.metrics}
    rules: list[Limit | Guard] = [*objective.limits, *objective.guards]
    bounded, worse = [rule.metric for rule in rules], [cost.metric for cost in foremost(summary.costs)]
    headline = [name for name in TOLD if name in reported]
    named = list(dict.fromkeys([*(goal.metric for goal in objective.goals), *bounded, *worse, *headline]))
    others = sorted(reported.difference(named))
    shown = [*named, *others] if len(named) + len(others) <= MOST_METRICS else named[:MOST_METRICS]
    return shown, len(named) + len(others) - len(shown)


def show_change(summary: Summary, metric: str) -> str:
    """How a metric changed from the reference to the best; the goal by the gain of the headline, so that a page says one number for it."""
    objective, gain = summary.task.objective, summary.gain
    default, best = (side.metrics.get(metric) if side else None for side in (summary.reference, summary.best))
    if metric == objective.metric and gain.pairs and gain.ratio:
        return show_percent(gain.ratio if objective.direction is Direction.MAXIMIZE else 1.0 / gain.ratio)
    return show_percent(best / default) if default and best is not None else ""


__all__ = ["MOST_METRICS", "show_change", "shown_metrics"]

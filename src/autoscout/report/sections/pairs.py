"""Any two metrics against each other: what the script of the page needs to draw the picture of a trade-off anew."""

from __future__ import annotations

import math
from typing import Any

from autoscout.analysis.price import direction_of
from autoscout.common.draw import thin
from autoscout.common.markup import Markup, clean, embedded_json, join, tag
from autoscout.core.task import Direction, Goal
from autoscout.core.trial import Fidelity, Trial
from autoscout.report.meanings import axis_name
from autoscout.report.view import StudyView

MOST_DOTS = 500
"""Trials whose metrics the page holds."""
_SIGNS = {Direction.MINIMIZE: 1, Direction.MAXIMIZE: -1, None: 0}  # what makes a metric a loss; 0 where nobody knows
MOST_METRICS = 60
"""Metrics to choose from, those of goals and limits first."""


def pair_chooser(view: StudyView, across: Goal, up: Goal) -> Markup:
    """Two lists of metrics and the data behind them; nothing where there is nothing else to choose. Hidden without JavaScript."""
    objective, result = view.summary.task.objective, view.result
    ran = [trial for trial in view.trials if trial.ok and trial.measurement.fidelity is not Fidelity.PREDICTED]
    names = list(dict.fromkeys([up.metric, across.metric, *(limit.metric for limit in objective.limits), *_reported(ran)]))[:MOST_METRICS]
    if len(names) < 3:
        return Markup("")
    marked = [index for index, trial in enumerate(ran) if trial.config in (result.reference, result.best_config)]
    chosen = thin(len(ran), MOST_DOTS, marked[:MOST_DOTS])
    metrics = [
        {
            "name": clean(name),
            "label": clean(axis_name(name)),
            "sign": _SIGNS[direction_of(name, objective)],
            "limits": [limit.value for limit in objective.limits if limit.metric == name],
        }
        for name in names
    ]
    data = {"metrics": metrics, "rows": [_row(view, ran[index], names) for index in chosen]}
    lists = [_choice(word, names, goal.metric) for word, goal in (("up", up), ("across", across))]
    script = tag("script", embedded_json(data), type="application/json", class_="pairs")
    return join([tag("p", *lists, class_="controls pair"), script])


def _reported(trials: list[Trial]) -> list[str]:
    """The metrics that at least two trials report, sorted."""
    counts: dict[str, int] = {}
    for trial in trials:
        for name, value in trial.measurement.metrics.items():
            counts[name] = counts.get(name, 0) + math.isfinite(value)
    return sorted(name for name, count in counts.items() if count > 1)


def _choice(word: str, names: list[str], chosen: str) -> Markup:
    options = [tag("option", name, value=number, selected=name == chosen) for number, name in enumerate(names)]
    return tag("label", f"{word} ", tag("select", *options, data_axis=word), " ")


def _row(view: StudyView, trial: Trial, names: list[str]) -> list[Any]:
    """Number, CSS class, role and metrics of a trial, in five digits."""
    result, metrics = view.result, trial.measurement.metrics
    broken = "" if math.isfinite(view.summary.task.objective.loss(trial.measurement)) else " broken"
    role = "default" if trial.config == result.reference else "best" if trial.config == result.best_config else ""
    values = [float(f"{metrics[name]:.5g}") if math.isfinite(metrics.get(name, math.nan)) else None for name in names]
    return [trial.number, f"dot{broken} {trial.measurement.fidelity.label}", role, *values]


__all__ = ["MOST_DOTS", "MOST_METRICS", "pair_chooser"]

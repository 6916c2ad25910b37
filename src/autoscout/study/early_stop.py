"""What a proposal of the search has to beat: the last place among the finalists, and the limits.

A trial that cannot become a finalist any more may be stopped early by the program that measures it. With several goals only the limits
are to beat: what is bad by one goal may be the best by another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean, median, stdev

from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.origin import By, Phase
from autoscout.core.task import Direction, Objective, Task
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Fidelity, Proposal, Trial
from autoscout.study.ledger import Ledger

UNKNOWN_SPREAD = 0.05
"""Relative standard deviation of a measurement while the default was measured only once."""
LEAST_SPREAD = 0.01
"""Nobody believes a smaller one from a handful of measurements."""


def with_to_beat(
    proposals: Sequence[Proposal], trials: Sequence[Trial], task: Task, default: Config, places: int, also: Config | None = None
) -> list[Proposal]:
    """The proposals, each with what it has to beat.

    Nothing is to beat for the default, whose number everything is compared with, and for whatever is measured again; that is told
    what it came to before.

    Args:
        proposals: About to be measured.
        trials: Everything stored; only real measurements count.
        task: What is tuned.
        default: The configuration that guards compare with.
        places: How many configurations become finalists.
        also: Has nothing to beat, like the default.
    """
    references = (default, also)
    free = [one for one in proposals if one.repeat == 0 and one.config not in references and one.origin.phase is Phase.SEARCH]
    free = [one for one in free if one.origin.by != By.PROFILING]  # a bound teaches a simulator nothing
    ledger = Ledger.of(trials)
    goal = _to_beat(ledger, task, default, places) if free else None
    return [replace(one, to_beat=goal if one in free else _known(one.config, ledger, task.objective)) for one in proposals]


def _measured(config: Config, ledger: Ledger) -> list[Trial]:
    """The real measurements of one configuration."""
    return [trial for trial in ledger.trials_of(config) if trial.measurement.fidelity is Fidelity.MEASURED]


def _known(config: Config, ledger: Ledger, objective: Objective) -> ToBeat | None:
    values = [value for trial in _measured(config, ledger) if (value := objective.value(trial.measurement)) is not None]
    if not values or objective.several:
        return None
    return ToBeat(metric=objective.metric, direction=objective.direction, known=median(values))


def _to_beat(ledger: Ledger, task: Task, default: Config, places: int) -> ToBeat | None:
    defaults = _measured(default, ledger)
    objective = bind(task, defaults, default).objective
    ranked = ledger.losses(objective)
    last = ranked[max(1, places) - 1] if len(ranked) >= max(1, places) and not objective.several else None
    if last is None and not objective.limits:
        return None
    return ToBeat(
        metric=objective.metric,
        direction=objective.direction,
        value=None if last is None else last if objective.direction is Direction.MINIMIZE else -last,
        limits=objective.limits,
        spread=_spread(objective, defaults),
    )


def _spread(objective: Objective, defaults: Sequence[Trial]) -> float:
    """Relative standard deviation of the default's measurements."""
    values = [value for trial in defaults if (value := objective.value(trial.measurement)) is not None]
    if len(values) < 2 or not (mean := abs(fmean(values))):
        return UNKNOWN_SPREAD
    return max(LEAST_SPREAD, stdev(values) / mean)


__all__ = ["with_to_beat"]

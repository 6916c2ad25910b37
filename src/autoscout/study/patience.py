"""When to stop searching because nothing improves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.task import Task
from autoscout.core.trial import Trial
from autoscout.study.budget import Stop, counted


def stale(task: Task, trials: Sequence[Trial], default: Config) -> Stop | None:
    """Whether the newest trials of the search, as many as the budget has patience for, improved nothing.

    With several goals a trial improves something where no earlier one is at least as good in every goal.

    Args:
        task: Its guards count by the default.
        trials: Everything stored, oldest first.
        default: The configuration that guards compare with.
    """
    patience = task.budget.patience
    if patience is None:
        return None
    objective, idle = bind(task, trials, default).objective, 0
    front: list[tuple[float, ...]] = []
    for trial in counted(trials):
        losses = objective.losses(trial.measurement)
        idle += 1
        if math.isfinite(losses[0]) and not any(_as_good(other, losses) for other in front):
            front, idle = [*(other for other in front if not _as_good(losses, other)), losses], 0
    return Stop.STALE if idle >= patience else None


def _as_good(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


__all__ = ["stale"]

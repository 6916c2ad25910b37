"""When to stop searching because nothing improves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autoscout.core.config import Config
from autoscout.core.guards import bind
from autoscout.core.origin import Phase
from autoscout.core.task import Objective, Task
from autoscout.core.trial import Fidelity, Trial
from autoscout.study.budget import Stop


class SearchPatience:
    """Counts the trials of a search since the last that improved something; looks at each trial once.

    With several goals a trial improves something where no earlier one is at least as good in every goal.

    Args:
        default: The configuration that guards compare with.
    """

    def __init__(self, default: Config) -> None:
        self._default = default
        self._objective: Objective | None = None
        self._count = 0  # trials that were looked at
        self._last: Trial | None = None  # of them
        self._top: Fidelity | None = None
        self._idle = 0  # trials since the last improvement
        self._front: list[tuple[float, ...]] = []

    def over(self, task: Task, trials: Sequence[Trial]) -> Stop | None:
        """Whether it is at an end.

        Args:
            task: With the budget in force.
            trials: Everything that counts, oldest first.
        """
        patience = task.budget.patience
        if patience is None:
            return None
        objective = bind(task, trials, self._default).objective
        is_longer = not self._count or (self._count <= len(trials) and trials[self._count - 1] is self._last)
        if objective != self._objective or not is_longer:  # a guard has found its limit, or a trial was marked invalid
            self._objective = objective
            self._clear()
        for number in range(self._count, len(trials)):
            self._look(trials[number], objective)
        self._count, self._last = len(trials), trials[-1] if trials else None
        return Stop.STALE if self._idle >= patience else None

    def _clear(self) -> None:
        self._count, self._idle, self._last, self._top, self._front = 0, 0, None, None, []

    def _look(self, trial: Trial, objective: Objective) -> None:
        fidelity = trial.measurement.fidelity
        if trial.proposal.origin.phase is not Phase.SEARCH or trial.proposal.again or (self._top is not None and fidelity < self._top):
            return
        if fidelity is not self._top:
            self._top, self._idle, self._front = fidelity, 0, []  # simulated answers are no match for real ones
        losses = objective.losses(trial.measurement)
        self._idle += 1
        if math.isfinite(losses[0]) and not any(_as_good(other, losses) for other in self._front):
            self._front = [*(other for other in self._front if not _as_good(losses, other)), losses]
            self._idle = 0


def _as_good(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True))


__all__ = ["SearchPatience"]

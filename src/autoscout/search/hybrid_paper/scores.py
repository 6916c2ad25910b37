"""What `hybrid-paper` knows about configurations: costs for the orchestrator, rewards for the trees."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscout.core.config import Config
from autoscout.learning.answers import Answer
from autoscout.space.encode import Floats


class Scores:
    """Told answers. Costs and rewards compare only what the same instrument answered: the simulators, or the real system.

    While simulators answer the search, a measurement now and then only checks them; once the real system answers, simulated
    configurations keep their place among themselves.

    Args:
        answers: What was told.
        switched: Whether the real system answers the search.
    """

    def __init__(self, answers: Sequence[Answer], switched: bool) -> None:
        self.switched = switched
        self.configs = [answer.config for answer in answers]
        self._place = {answer.config: index for index, answer in enumerate(answers)}
        self._losses = np.array([answer.loss if switched or answer.simulated is None else answer.simulated for answer in answers])
        self._real = np.array([switched and answer.measured for answer in answers], dtype=np.bool_)
        self._costs = np.zeros(len(answers))
        self.rewards = np.zeros(len(answers))
        for group in (self._real, ~self._real):
            self._costs[group] = costs(self._losses[group])
            self.rewards[group] = rewards(self._losses[group])
        self._keys = [answer.key for answer in answers]

    def cost(self, config: Config) -> float | None:
        """Positive, comparable within one instrument; None when unknown."""
        at = self._place.get(config)
        return None if at is None else float(self._costs[at])

    def reward(self, config: Config) -> float:
        """1 for the best, 0 for the worst, for failures and for what is unknown."""
        at = self._place.get(config)
        return 0.0 if at is None else float(self.rewards[at])

    def is_real(self, config: Config) -> bool:
        """Whether the real system answered."""
        at = self._place.get(config)
        return at is not None and bool(self._real[at])

    def has_worked(self, config: Config) -> bool:
        at = self._place.get(config)
        return at is not None and bool(np.isfinite(self._losses[at]))

    def incumbent(self, given: Config) -> Config | None:
        """The best that extends `given`, what was measured before what was simulated; None when nothing worked."""
        fit = [index for index in np.flatnonzero(np.isfinite(self._losses)) if self.configs[index].extends(given)]
        best = min(fit, key=lambda index: (not self._real[index], self._losses[index], self._keys[index]), default=None)
        return None if best is None else self.configs[best]


def rewards(losses: Floats) -> Floats:
    """Normalised ranks: 1 for the best, falling evenly to 0 for the worst; ties share, all failures get 0."""
    worked = np.isfinite(losses)
    ranks = np.zeros(len(losses))
    values = losses[worked]
    order = np.sort(values)
    middle = 0.5 * (np.searchsorted(order, values, "left") + np.searchsorted(order, values, "right") - 1)
    ranks[worked] = 1.0 - middle / max(1.0, len(losses) - 1.0)
    return ranks


def costs(losses: Floats) -> Floats:
    """Positive costs: times as they are, rates inverted, ranks for what has mixed signs; a failure costs twice the worst."""
    worked = np.isfinite(losses)
    values = losses[worked]
    positive: Floats
    if (values > 0).all():
        positive = values
    elif (values < 0).all():
        positive = -1.0 / values
    else:
        positive = 1.0 + np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(np.float64)
    filled = np.full(len(losses), 2.0 * float(positive.max()) if len(positive) else 1.0)
    filled[worked] = positive
    return filled

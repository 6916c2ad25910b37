"""Several goals: one surrogate for each, and what a candidate is expected to add to the front.

Improvement is the expected growth of the hypervolume in the surrogates' targets. The hypervolume is the mean, over directions away
from the reference, of the reach of the front to the power of the number of goals; so the expected growth is a mean of expected
improvements of single numbers, and works for any number of goals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from autoscout.common.front import choose, on_front
from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.learning.answers import Answer
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.surrogate import Memory, Surrogate
from autoscout.space.encode import Encoder, Floats, Rows

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(tuning.QUADRATURE_NODES)


class FrontSurrogate(Surrogate):
    """A surrogate for each goal, as one; predictions have a column per goal.

    Args:
        models: One for each goal, in order; the first also knows the chance of success.
        encoder: Of the space.
        memory: Of the searcher.
    """

    def __init__(self, models: Sequence[Surrogate], encoder: Encoder, memory: Memory) -> None:
        super().__init__(encoder, memory)
        self._models = models
        self._reference: Floats = np.zeros(len(models))
        self._directions = _directions(len(models))
        self._reached: Floats = np.zeros(tuning.FRONT_DIRECTIONS)

    def fit(self, answers: Sequence[Answer], pending: Sequence[Config] = ()) -> None:
        for goal, model in enumerate(self._models):
            model.fit([replace(answer, loss=answer.losses[goal]) for answer in answers], pending)
        first = self._models[0]
        self.rows, self.targets = first.rows, first.targets
        points = np.stack([model.targets for model in self._models], axis=1)
        if len(points) < 2:
            return
        front = points[on_front(points)]
        worst, best = front.max(axis=0), front.min(axis=0)
        self._reference = worst + tuning.REFERENCE_MARGIN * (worst - best) + tuning.REFERENCE_MARGIN
        if pending:  # what is under way counts as it is predicted, so that parallel proposals spread
            front = np.concatenate([front, self.predict(self._encoder.rows(pending))[0]])
        self._reached = self._reaches(front).max(axis=0)
        self.unit = 1.0 / max(float((self._reached ** len(self._models)).mean()), 1e-12)

    def _reaches(self, points: Floats) -> Floats:
        """How far each point reaches from the reference in each direction."""
        reaches: Floats = np.maximum(((self._reference - points)[:, None, :] / self._directions).min(axis=2), 0.0)
        return reaches

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        predictions = [model.predict(rows) for model in self._models]
        return np.stack([mean for mean, _ in predictions], axis=1), np.stack([spread for _, spread in predictions], axis=1)

    def chance(self, rows: Rows) -> Floats:
        return self._models[0].chance(rows)

    def improvement(self, rows: Rows) -> Floats:
        """Expected growth of the hypervolume: over directions, the integral of the chance to reach farther than the front."""
        goals = len(self._models)
        mean, deviation = self.predict(rows)
        spread = np.maximum(deviation, 1e-9)
        growth = np.zeros(len(mean))
        for direction, reached in zip(self._directions, self._reached, strict=True):
            farthest = ((self._reference - mean + tuning.QUADRATURE_LIMIT * spread) / direction).min(axis=1)
            nearby = reached + 0.1 * (spread / direction).min(axis=1)  # keeps an order among those that hardly reach it
            half = 0.5 * (np.maximum(farthest, nearby) - reached)
            reach = reached + half[:, None] * (1.0 + _NODES)
            chance = np.ones_like(reach)
            for goal in range(goals):
                level = self._reference[goal] - mean[:, goal]
                chance *= ndtr((level[:, None] - direction[goal] * reach) / spread[:, goal, None])
            growth += half * (chance * goals * reach ** (goals - 1) * _WEIGHTS).sum(axis=1)
        return growth / len(self._directions)


def _directions(goals: int) -> Floats:
    """Directions into the corner of better losses: the size of normal numbers, which know no preferred one."""
    drawn = np.abs(stream(0, "hybrid", "directions").standard_normal((tuning.FRONT_DIRECTIONS, goals)))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))


def leaders(answers: Sequence[Answer]) -> list[Answer]:
    """The front of what worked, measured answers only where there are any, in the order in which its points cover most."""
    worked = [answer for answer in answers if not answer.failed]
    contenders = [answer for answer in worked if answer.measured] or worked
    if not contenders:
        return []
    return [contenders[row] for row in choose(np.array([answer.losses for answer in contenders]), len(contenders))]

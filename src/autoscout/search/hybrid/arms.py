"""Credit in `hybrid`: which arm, and which ordering, earned the next step. All of it is read from the origins of told trials."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscout.core.config import Config
from autoscout.search.hybrid.ledger import Answer
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.orchestrator import Arm, Pull, Quad, choose
from autoscout.search.hybrid.sparse import Ordering, rewards
from autoscout.search.hybrid.surrogate import Surrogate
from autoscout.search.hybrid.tournament import legal, standing
from autoscout.space import Space
from autoscout.space.encode import Encoder

REMEMBERED = 24
"""Steps whose credit counts: what paid off long ago says little about what does now."""
EXPLORATION = 0.3
DECAY = 0.98
FAILED = 2.0
"""Standardised target of a failed cell."""


class Arms:
    """The orchestrator and the tournament of `hybrid`, without memory."""

    def __init__(self, space: Space, encoder: Encoder, options: HybridOptions, entries: Sequence[Ordering]) -> None:
        self._space = space
        self._encoder = encoder
        self._options = options
        self._entries = tuple(entries)
        self._crossed: dict[tuple[Config, Config], tuple[Config, Config]] = {}

    def choose(self, model: Surrogate, answers: Sequence[Answer]) -> Arm:
        """UCB1 over the last steps; the cells of their 2x2 grids that nobody measured are the model's predictions."""
        by_key = {answer.key: answer for answer in answers}
        steps = []
        for answer in answers:
            base = by_key.get(str(answer.origin.get("base")))
            arm = answer.origin.get("arm")
            if answer.origin.get("by") == "hybrid" and base is not None and arm in (Arm.SPARSE.value, Arm.DENSE.value):
                steps.append((_number(answer), Arm(str(arm)), answer, base))
        steps.sort(key=lambda step: (step[0], step[2].key))
        last = steps[-REMEMBERED:]
        crossed = [self._cross(answer.config, base.config) for _, _, answer, base in last]
        if not last:
            return Arm.SPARSE
        known = self._targets(model, answers)
        mean, _ = model.predict(self._encoder.rows(config for pair in crossed for config in pair))
        pulls = []
        for index, (_, arm, answer, base) in enumerate(last):
            cells = [
                known.get(base.config, FAILED),
                known.get(crossed[index][0], float(mean[2 * index])),
                known.get(crossed[index][1], float(mean[2 * index + 1])),
                known.get(answer.config, FAILED),
            ]
            pulls.append(Pull(arm, Quad(*(float(np.exp(0.3 * cell)) for cell in cells)).gain(arm)))
        return choose(pulls, EXPLORATION, DECAY)

    def _cross(self, candidate: Config, base: Config) -> tuple[Config, Config]:
        """The other two cells: base structure with the candidate's dense values, and the reverse."""
        key = (candidate, base)
        if key not in self._crossed:
            self._crossed[key] = (
                self._space.project(candidate, self._space.structure(base)),
                self._space.project(base, self._space.structure(candidate)),
            )
        return self._crossed[key]

    def _targets(self, model: Surrogate, answers: Sequence[Answer]) -> dict[Config, float]:
        known = [answer for answer in answers if self._encoder.codes(answer.config) is not None]
        rows = [answer.config for answer in known if not answer.failed or not self._options.failures]
        found = dict.fromkeys((answer.config for answer in known), FAILED)
        return {**found, **dict(zip(rows, map(float, model.targets), strict=len(rows) == len(model.targets)))}

    def ordering(self, model: Surrogate, answers: Sequence[Answer]) -> tuple[int, Ordering]:
        """The tree whose turn it is: index and knobs. While the tournament lasts, tree 0 is the fitted sensitivity's order."""
        names = self._encoder.names
        weight = dict(zip(names, model.sensitivity, strict=True))
        fitted = legal(self._space, sorted(self._space.sparse, key=lambda name: -weight.get(name, 0.0)))
        if not self._options.tournament:
            return 0, fitted
        field = (fitted, *self._entries)[: self._options.orderings]
        own = sorted(
            (answer for answer in answers if answer.origin.get("by") == "hybrid" and isinstance(answer.origin.get("tree"), int)),
            key=lambda answer: (_number(answer), answer.key),
        )
        reward = rewards(np.array([answer.loss for answer in answers]))
        earned = dict(zip((answer.config for answer in answers), reward, strict=True))
        scores = {at: (int(str(answer.origin["tree"])), float(earned[answer.config])) for at, answer in enumerate(own)}
        turn = standing(len(field), len(own), scores).turn
        return turn, field[turn]


def _number(answer: Answer) -> int:
    found = answer.origin.get("round")
    return found if isinstance(found, int) else -1

"""Whether a simulator is worth listening to: it is believed at first, then what was measured decides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscout.core.config import Config
from autoscout.search.hybrid.ledger import Answer
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.past import Belief
from autoscout.search.hybrid.prior import InformedSurrogate, Prior
from autoscout.search.hybrid.success import logistic
from autoscout.search.hybrid.surrogate import Memory, Surrogate
from autoscout.search.hybrid.target import ruler
from autoscout.space.encode import Encoder, Floats, Rows

LEAST = 4
"""Trials that worked before predictions are compared."""
CREDIT = 2.0
"""How much better, as a logarithm of likelihoods, the plain model must explain what was measured before the simulator is dropped."""
TELLING = 1.5
"""No single trial counts for more than this."""
CREDIT_MEMORY, SHARE_MEMORY = 2.0, 0.95
"""The same for what ran and what failed, and the weight of the simulator's word at most."""
ROUGH = 0.2
"""Standard deviation of a target below which no prediction is taken to be more exact."""


class GuardedSurrogate(Surrogate):
    """The informed model and the plain one side by side; the one that better foretells each trial from all others predicts.

    Both are asked about each trial as if that had not been told (leave one out), so the answer depends on the set of trials alone.
    Of the chance of success they are mixed by the same evidence.
    """

    def __init__(self, prior: Prior, encoder: Encoder, seed: int, options: HybridOptions, memory: Memory) -> None:
        nothing = Belief(encoder.space, encoder, ())
        super().__init__(encoder, seed, options, nothing, memory)
        self._informed = InformedSurrogate(prior, encoder, seed, options, memory)
        self._plain = Surrogate(encoder, seed, options, nothing, memory)
        self._chosen: Surrogate = self._informed
        self.trust = SHARE_MEMORY

    def fit(self, answers: Sequence[Answer], pending: Sequence[Config] = (), unreachable: Sequence[Config] = ()) -> None:
        for model in (self._informed, self._plain):
            model.fit(answers, pending)
        known = [answer for answer in answers if self._encoder.codes(answer.config) is not None]
        if self._options.failures:
            self._fit_attainable(known, unreachable)
        self._chosen = self._informed if self._ahead(known) + CREDIT > 0.0 else self._plain
        chosen = self._chosen
        self.rows, self.targets, self.best = chosen.rows, chosen.targets, chosen.best
        self.failures, self.unit = self._informed.failures, chosen.unit
        if len(self._plain.foretold):
            gap = np.clip(self._informed.foretold - self._plain.foretold, -TELLING, TELLING)
            self.trust = SHARE_MEMORY * float(logistic(np.array(gap.sum() + CREDIT_MEMORY)))
        self.believed = self.trust * self._informed.holds
        self.others = (self._plain,) if chosen is self._informed else ()

    def _ahead(self, known: Sequence[Answer]) -> float:
        """By how much the informed model is more likely than the plain one, in nats."""
        losses = np.array([answer.loss for answer in known if not answer.failed])
        if len(losses) < LEAST:
            return 0.0
        scale, values = ruler(losses)
        if not scale.logarithmic:
            return -np.inf
        rows, level, spread = self._informed.left_out
        _, plain, rough = self._plain.left_out
        if len(plain) > len(losses):  # it was given failures as slow trials
            worked = np.array([not answer.failed for answer in known])
            plain, rough = plain[worked], rough[worked]
        targets = scale.targets(values)[rows]
        mine = _likelihood(targets, scale.targets(level), spread * scale.slope(level))
        gap = mine - _likelihood(targets, plain[rows], rough[rows])
        return float(np.clip(gap, -TELLING, TELLING).sum())

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        return self._chosen.predict(rows)

    def works(self, rows: Rows) -> Floats:
        if not len(self._plain.foretold):
            return self._informed.works(rows)
        return self.trust * self._informed.works(rows) + (1.0 - self.trust) * self._plain.works(rows)

    @property
    def sensitivity(self) -> Floats:
        return self._chosen.sensitivity


def _likelihood(targets: Floats, mean: Floats, spread: Floats) -> Floats:
    """Logarithm of a normal density."""
    variance = spread**2 + ROUGH**2
    found: Floats = -0.5 * ((targets - mean) ** 2 / variance + np.log(variance))
    return found

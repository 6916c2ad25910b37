"""Whether a simulator is worth listening to: it is believed at first, then what was measured decides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import expit

from autoscout.core.config import Config
from autoscout.learning.answers import Answer
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.prior import InformedSurrogate, Prior
from autoscout.search.hybrid.surrogate import Memory, Surrogate
from autoscout.search.hybrid.target import ruler
from autoscout.space.encode import Encoder, Floats, Rows


class ChosenSurrogate(Surrogate):
    """The informed model and the plain one side by side; each counts by how well it predicts each trial from all others.

    Both are asked about each trial as if that had not been told (leave one out), so the answer depends on the set of trials alone. What a
    candidate is worth and its chance of success are mixed; a prediction is that of the more likely model.
    """

    def __init__(self, prior: Prior, encoder: Encoder, memory: Memory) -> None:
        super().__init__(encoder, memory)
        self._informed = InformedSurrogate(prior, encoder, memory)
        self._plain = Surrogate(encoder, memory)
        self._chosen: Surrogate = self._informed
        self._share = 1.0  # how likely it is that the informed one is right
        self.trust = tuning.MAX_SIMULATOR_WEIGHT

    def fit(self, answers: Sequence[Answer], pending: Sequence[Config] = ()) -> None:
        for model in (self._informed, self._plain):
            model.fit(answers, pending)
        ordered = sorted(answers, key=lambda answer: answer.key)
        self._share = float(expit(self._ahead(ordered) + tuning.MAX_LEAD))
        chosen = self._chosen = self._informed if self._share > 0.5 else self._plain
        self.rows, self.targets, self.best, self.unit = chosen.rows, chosen.targets, chosen.best, chosen.unit
        if len(self._plain.evidence):
            gap = np.clip(self._informed.evidence - self._plain.evidence, -tuning.MAX_LEAD, tuning.MAX_LEAD)
            self.trust = tuning.MAX_SIMULATOR_WEIGHT * float(expit(gap.sum() + tuning.MAX_LEAD))

    def _ahead(self, answers: Sequence[Answer]) -> float:
        """By how much the informed model is more likely than the plain one, in nats."""
        losses = np.array([answer.loss for answer in answers if not answer.failed])
        if len(losses) < tuning.PRIOR_TRIALS:
            return np.inf
        scale, values = ruler(losses)
        if not scale.logarithmic:
            return -np.inf
        rows, level, spread = self._informed.left_out
        _, plain, rough = self._plain.left_out
        targets = scale.targets(values)[rows]
        mine = _likelihood(targets, scale.targets(level), spread * scale.slope(level))
        gap = mine - _likelihood(targets, plain[rows], rough[rows])
        return float(np.clip(gap, -tuning.MAX_LEAD, tuning.MAX_LEAD).sum())

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        return self._chosen.predict(rows)

    def improvement(self, rows: Rows) -> Floats:
        shares = ((self._informed, self._share), (self._plain, 1.0 - self._share))
        return np.asarray(sum(share * model.improvement(rows) * model.unit for model, share in shares) / self.unit)

    def chance(self, rows: Rows) -> Floats:
        if not len(self._plain.evidence):
            return self._informed.chance(rows)
        return self.trust * self._informed.chance(rows) + (1.0 - self.trust) * self._plain.chance(rows)


def _likelihood(targets: Floats, mean: Floats, spread: Floats) -> Floats:
    """Logarithm of a normal density."""
    variance = spread**2 + tuning.MIN_PREDICTION_ERROR**2
    likelihood: Floats = -0.5 * ((targets - mean) ** 2 / variance + np.log(variance))
    return likelihood

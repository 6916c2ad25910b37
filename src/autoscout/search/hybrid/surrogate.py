"""What the told trials predict: two Gaussian processes, and a chance of success."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autoscout.common.stats import expected_improvement
from autoscout.core.config import Config
from autoscout.learning.answers import Answer
from autoscout.learning.gaussian import FIT_POINTS, SHORT_AND_LONG, Mixture, Scales
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.success import Success
from autoscout.search.hybrid.target import standardise
from autoscout.search.hybrid.warm import Belief
from autoscout.space.encode import Encoder, Floats, Rows

Memory = dict[tuple[str, bytes, bytes], tuple[Scales, ...]]
"""Fitted hyperparameters by what they were fitted to: a cache, never state."""


class Surrogate:
    """Fitted to answers; predicts standardised targets (lower is better) and the chance of success.

    Failures are left out of the regression: how slow a crash is has no meaning, and any number given to it bends the model
    where the good configurations often are, at the edge of memory. They teach the chance of success instead.

    Attributes:
        rows: The configurations that worked.
        targets: Their standardised targets.
        best: The lowest of these.
        unit: What one unit of the target is worth at the good end: a share of the loss where that is one, else the loss itself.
        left_out: Rows that worked, and what all others make one expect of each: mean and standard deviation; for comparing models.
        evidence: Logarithm of the chance that each outcome had before it was known, given all others; empty before the first failure.
    """

    def __init__(self, encoder: Encoder, memory: Memory, belief: Belief | None = None) -> None:
        self._encoder = encoder
        self._memory = memory
        self._belief = belief
        self._process = Mixture(encoder, SHORT_AND_LONG)
        self._success: Success | None = None
        self._slope = belief.weight if belief else 0.0
        self.best = 0.0
        self.unit = 1.0
        self.targets: Floats = np.zeros(0)
        self.rows = encoder.rows(())
        self.evidence: Floats = np.zeros(0)
        self.left_out: tuple[NDArray[np.int64], Floats, Floats] = (np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))

    def fit(self, answers: Sequence[Answer], pending: Sequence[Config] = ()) -> None:
        """Learn.

        Args:
            answers: What is known.
            pending: What is under way; it is believed to come out as predicted, so that parallel proposals spread.
        """
        ordered = sorted(answers, key=lambda answer: answer.key)
        worked = [answer for answer in ordered if not answer.failed]
        self.rows = self._encoder.rows(answer.config for answer in worked)
        losses = np.array([answer.loss for answer in worked])
        self._fit_success(ordered)
        if len(worked) < 2:
            self.targets = np.zeros(len(worked))
            return
        self.targets, self.unit = standardise(losses)
        self.best = float(self.targets.min())
        remainder = self.targets - self._expected(self.rows, self.targets)
        # An answer of a simulator is worth less than a measurement where there are both.
        mixed = any(answer.measured for answer in worked)
        noise = np.array([tuning.SIMULATED_NOISE if mixed and not answer.measured else 0.0 for answer in worked])
        self._process.scales = self._scales("target", self._process, self.rows, losses)
        mean, deviation = self._condition(self.rows, remainder, noise, pending)
        self.left_out = (np.arange(len(mean)), self.targets - remainder + mean, deviation)

    def _condition(self, rows: Rows, targets: Floats, noise: Floats, pending: Sequence[Config]) -> tuple[Floats, Floats]:
        """Let the process learn targets, and believe what it predicts of what is under way; what all others make one expect of each row."""
        self._process.condition(rows, targets, noise)
        left_out = self._process.left_out(targets)
        if pending:
            waiting = self._encoder.rows(pending)
            believed = np.concatenate([targets, self._process.predict(waiting)[0]])
            self._process.condition(Rows.join([rows, waiting]), believed, np.concatenate([noise, np.zeros(len(waiting))]))
        return left_out

    def _expected(self, rows: Rows, targets: Floats | None = None) -> Floats:
        """What the past makes one expect; with targets, first settle how far it holds here."""
        if not self._belief:
            return np.zeros(len(rows))
        expected = self._belief.expect(rows)
        if targets is not None:
            weight = tuning.PRIOR_TRIALS * max(float(np.mean(expected**2)), 1e-3)
            slope = (self._belief.weight * weight + float(expected @ targets)) / (weight + float(expected @ expected))
            self._slope = min(1.0, max(0.0, slope))
        return self._slope * expected

    def _scales(self, purpose: str, process: Mixture, rows: Rows, losses: Floats) -> tuple[Scales, ...]:
        """Hyperparameters from a part of the rows that changes seldom, so that most steps find them ready."""
        subset = representative(losses, FIT_POINTS)
        key = (purpose, rows.codes[subset].tobytes(), losses[subset].tobytes())
        if key not in self._memory:
            if len(self._memory) > 64:
                self._memory.clear()
            self._memory[key] = process.fit(rows.take(subset), standardise(losses[subset])[0])
        return self._memory[key]

    def _fit_success(self, answers: Sequence[Answer]) -> None:
        rows, labels = outcomes(self._encoder, answers)
        if not labels.all():
            self._success = Success(self._encoder)
            self.evidence = self._success.fit(rows, labels, np.full(len(rows), tuning.PRIOR_ODDS))

    def chance(self, rows: Rows) -> Floats:
        """Chance that each row works."""
        return np.ones(len(rows)) if self._success is None else self._success.chance(rows, np.full(len(rows), tuning.PRIOR_ODDS))

    def predict(self, rows: Rows) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the target."""
        if len(self.targets) < 2:
            return self._expected(rows), np.ones(len(rows))
        mean, spread = self._process.predict(rows)
        return mean + self._expected(rows), spread

    def worth(self, rows: Rows) -> Floats:
        """What trying each row is worth: expected improvement times a power of the chance of success.

        Early failures teach where the boundary is, late ones only cost.
        """
        exponent = 1.0 + len(self.rows) / tuning.SUCCESS_EXPONENT_SCALE
        values: Floats = self.improvement(rows) * self.chance(rows) ** exponent
        return values

    def improvement(self, rows: Rows) -> Floats:
        """Expected improvement of each row over the best target."""
        improvement: Floats = expected_improvement(*self.predict(rows), self.best)
        return improvement


def outcomes(encoder: Encoder, answers: Sequence[Answer]) -> tuple[Rows, Floats]:
    """What the chance of success is learnt from: rows, and 1 for those that worked."""
    return encoder.rows(answer.config for answer in answers), np.array([0.0 if answer.failed else 1.0 for answer in answers])


def representative(losses: Floats, most: int) -> NDArray[np.int64]:
    """Up to `most` rows: a quarter the best there are, then the first of the rest.

    Rows are in the order of their hashes, so the first are random ones.
    """
    if len(losses) <= most:
        return np.arange(len(losses))
    order = np.argsort(losses, kind="stable")
    return np.sort(np.concatenate([order[: most // 4], np.sort(order[most // 4 :])[: most - most // 4]]))

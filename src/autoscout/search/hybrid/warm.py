"""Warm start: what studies of similar tasks found, as a belief about the task at hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoscout.core.config import Config
from autoscout.core.history import Past
from autoscout.learning.gaussian import FIT_POINTS, Process
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.target import standardise
from autoscout.space import Space
from autoscout.space.encode import Encoder, Floats, Rows


class Belief:
    """What past studies make one expect: a standardised target for every row, and the configurations that were best.

    Each study is a Gaussian process of its own; values of other machines differ in level and spread, so only standardised
    targets are carried over, weighed by similarity.
    """

    def __init__(self, space: Space, encoder: Encoder, past: Sequence[Past]) -> None:
        self.best: list[Config] = []
        self.weight = 0.0
        self._processes: list[tuple[float, Process]] = []
        for study in past:
            trials = [trial for trial in study.trials if trial.loss is not None and trial.config.keys() & space.knobs.keys()]
            successes = sorted(((trial.loss or 0.0, space.project(trial.config)) for trial in trials), key=lambda pair: pair[0])
            self.best += [config for _, config in successes[:2]]
            if len(successes) >= tuning.PRIOR_TRIALS:
                rows = encoder.rows(config for _, config in successes)
                targets, _ = standardise(np.array([loss for loss, _ in successes]))
                process = Process(encoder)
                some = np.arange(0, len(successes), max(1, len(successes) // FIT_POINTS))
                process.fit(rows.take(some), targets[some])
                process.condition(rows, targets)
                self._processes.append((study.similarity, process))
                self.weight = max(self.weight, study.similarity)
        self.best = list(dict.fromkeys(self.best))

    def __bool__(self) -> bool:
        return bool(self._processes)

    def expect(self, rows: Rows) -> Floats:
        """Mean expectation, shrunk to 0 where the past knows nothing."""
        total = sum(weight for weight, _ in self._processes)
        expectation = np.zeros(len(rows))
        for weight, process in self._processes:
            mean, spread = process.predict(rows)
            expectation += weight / max(total, 1e-9) * mean / (1.0 + spread**2)
        return expectation

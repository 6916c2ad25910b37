"""What one step of a search looks at; each part is computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.trial import Proposal
from autoscout.learning.answers import Answer
from autoscout.search.hybrid import tuning
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.front import leaders
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.prior import Prior
from autoscout.search.hybrid.surrogate import Surrogate
from autoscout.space import Space
from autoscout.space.encode import Encoder, Floats, Rows


@dataclass
class SearchState:
    """One step of a search.

    Attributes:
        encoder: Of the space.
        options: Of the searcher.
        seed: Of the searcher.
        given: What every proposal must extend.
        pool: The candidates under `given`.
        answers: What is learnt from, oldest first.
        count: How many answers there are, whether or not they are learnt from.
        waiting: What is under way.
        taken: What must not be proposed.
        trials: How many trials there are.
        remembered: The best configurations of similar past studies.
        priors: A simulator's predictions of each goal; None without one.
        fit: Fits the model; called at most once.
    """

    encoder: Encoder
    options: HybridOptions
    seed: int
    given: Config
    pool: Candidates
    answers: Sequence[Answer]
    count: int
    waiting: Sequence[Config]
    taken: set[Config]
    trials: int
    remembered: Sequence[Config]
    priors: Sequence[Prior | None]
    fit: Callable[[], Surrogate]

    @property
    def space(self) -> Space:
        return self.encoder.space

    @property
    def step(self) -> int:
        """Configurations that are known or under way."""
        return self.count + len(self.waiting)

    @cached_property
    def candidates(self) -> tuple[list[Config], Rows]:
        """What is compared in this step."""
        configs, rows = self.pool.weigh(self.taken, self._good(), self.trials + len(self.waiting))
        for prior in self.priors:
            if prior is not None and not self.pool.whole:
                configs, rows = prior.widen(configs, rows, self.taken, self.pool, self.given)
        return configs, rows

    def _good(self) -> list[Config]:
        """The best configurations, measured ones first; with several goals, of the front."""
        if len(self.priors) > 1:
            return [answer.config for answer in leaders(self.answers)[: tuning.BEST_CONFIGS]]
        worked = [answer for answer in self.answers if not answer.failed]
        best = sorted(worked, key=lambda item: (not item.measured, item.loss, item.key))
        return [answer.config for answer in best[: tuning.BEST_CONFIGS]]

    @cached_property
    def model(self) -> Surrogate:
        return self.fit()

    def expects_nothing(self) -> bool:
        """Whether no candidate is expected to gain `stop_gain`."""
        if len(self.model.targets) < 2 or self.waiting:
            return False
        return float(self.model.worth(self.candidates[1]).max()) * self.model.unit < self.options.stop_gain

    def _worth(self, rows: Rows) -> Floats:
        values = self.model.worth(rows)
        if self.options.cautious and (safe := self.model.chance(rows) >= tuning.MIN_SUCCESS_CHANCE).any():
            values = np.where(safe, values, 1e-120 * values)
        return values

    def most_promising(self) -> Config:
        """The candidate that is worth most; in a sampled space, uphill from it by single moves, because a sample seldom holds the peak."""
        configs, rows = self.candidates
        values = self._worth(rows)
        best = int(np.argmax(values))
        config, value = configs[best], float(values[best])
        while not self.pool.whole:
            near, rows = self.pool.around(config)
            free = [index for index, other in enumerate(near) if other not in self.taken]
            if not free:
                break
            values = self._worth(rows.take(free))
            best = int(np.argmax(values))
            if values[best] <= value:
                break
            config, value = near[free[best]], float(values[best])
        return config

    def proposal(self, config: Config, proposer: str) -> Proposal:
        """A configuration, and who proposes it."""
        return Proposal(config=config, origin=Origin(by="hybrid", notes={"round": self.step, "proposer": proposer}))

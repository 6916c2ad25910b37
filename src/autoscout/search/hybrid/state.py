"""What the proposers of one step look at; each part is computed when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.trial import EXPENSIVE_S, Proposal
from autoscout.learning.answers import Answer
from autoscout.search.hybrid import failures, tuning
from autoscout.search.hybrid.candidates import Candidates
from autoscout.search.hybrid.options import HybridOptions
from autoscout.search.hybrid.prior import Prior
from autoscout.search.hybrid.surrogate import Surrogate
from autoscout.space import Space
from autoscout.space.encode import Encoder, Floats, Rows


@dataclass
class SearchState:
    """One step of a search.

    Attributes:
        space: What is searched.
        encoder: Of the space.
        options: Of the searcher.
        seed: Of the searcher.
        given: What every proposal must extend.
        pool: The candidates under `given`.
        answers: What is learnt from, oldest first.
        count: How many answers there are, whether or not they are learnt from.
        failure_count: How many of these failed.
        waiting: What is under way.
        taken: What must not be proposed.
        trials: How many trials there are.
        remembered: The best configurations of similar past studies.
        prior: A simulator's predictions; None without one.
        fit: Fits the model; called at most once.
        front: With several goals, the answers that none beats in every goal; None with one.
        other_priors: With several goals, a simulator's predictions of the others.
    """

    space: Space
    encoder: Encoder
    options: HybridOptions
    seed: int
    given: Config
    pool: Candidates
    answers: Sequence[Answer]
    count: int
    failure_count: int
    waiting: Sequence[Config]
    taken: set[Config]
    trials: int
    remembered: Sequence[Config]
    prior: Prior | None
    fit: Callable[[], Surrogate]
    front: Sequence[Answer] | None = None
    other_priors: Sequence[Prior | None] = ()

    @property
    def step(self) -> int:
        """Configurations that are known or under way."""
        return self.count + len(self.waiting)

    @cached_property
    def home(self) -> Config:
        """The default, as far as `given` allows."""
        return self.space.project(self.space.default(), self.given)

    @cached_property
    def is_careful(self) -> bool:
        """Whether the default works and a trial of it is expensive: then the search begins around it."""
        default = next((answer for answer in self.answers if answer.config == self.home), None)
        return default is not None and not default.failed and default.cost_s >= EXPENSIVE_S

    @cached_property
    def good(self) -> list[Config]:
        """The best configurations, measured ones first; with several goals, of the front."""
        if self.front is not None:
            return [answer.config for answer in self.front[: tuning.BEST_CONFIGS]]
        worked = [answer for answer in self.answers if not answer.failed]
        return [
            answer.config for answer in sorted(worked, key=lambda item: (not item.measured, item.loss, item.key))[: tuning.BEST_CONFIGS]
        ]

    @cached_property
    def weighed(self) -> tuple[list[Config], Rows]:
        """The candidates of this step."""
        configs, rows = self.pool.weigh(self.taken, self.good, self.trials + len(self.waiting))
        for prior in (self.prior, *self.other_priors):
            if prior is not None and not self.pool.whole:
                configs, rows = prior.widen(configs, rows, self.taken, self.given, self.seed)
        return configs, rows

    @property
    def rows(self) -> Rows:
        return self.weighed[1]

    @cached_property
    def model(self) -> Surrogate:
        return self.fit()

    @cached_property
    def risk(self) -> failures.Risk:
        """What failures cost so far, and may still cost."""
        return failures.risk(self.model, self.answers, self.failure_count, self.step, self.pool.rows if self.prior is not None else None)

    @cached_property
    def prediction(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the candidates' targets."""
        return self.model.predict(self.rows)

    @cached_property
    def chance(self) -> Floats:
        """The candidates' chance of success."""
        return self.model.chance(self.rows)

    @cached_property
    def values(self) -> Floats:
        """What each candidate is worth."""
        return self.risk.values(self.model, *self.prediction, self.chance)

    @property
    def gain(self) -> float:
        """Share of the best loss that the best candidate is expected to gain."""
        return float(self.values.max()) * self.model.unit

    def worth(self, rows: Rows) -> Floats:
        """The same as `values` for other rows."""
        return self.risk.values(self.model, *self.model.predict(rows), self.model.chance(rows))

    def proposal(self, config: Config, proposer: str) -> Proposal:
        """A configuration, and who proposes it."""
        return Proposal(config=config, origin=Origin(by="hybrid", notes={"round": self.step, "proposer": proposer}))

"""Searcher `cherrypick`: a Gaussian process with expected improvement, as CherryPick (Alipourfard et al., NSDI 2017) searches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from autoscout.common.stats import expected_improvement
from autoscout.core.config import Config
from autoscout.core.errors import require
from autoscout.core.origin import Origin
from autoscout.core.protocols import Searcher
from autoscout.core.seeds import stream
from autoscout.core.task import Task
from autoscout.core.trial import Proposal, Trial
from autoscout.learning.answers import Answer, AnswerSet, finite_losses
from autoscout.learning.gaussian import Beliefs, Process, Scales
from autoscout.space import Space
from autoscout.space.encode import Encoder, Floats, Rows, gates
from autoscout.space.neighbours import fresh, mutate, spread

_NOTHING = Config()
_FITTED_AT = (3, 5, 7, 10, 14, 20, 28, 40, 56, 80)
"""Hyperparameters are fitted to the oldest answers, as many as the largest of these numbers that there are: they change rarely, and depend
on nothing but the told trials."""
_PLAIN = Beliefs(weight=(-40.0, 0.01))
"""No effects of single knobs (their variance is exp(-40)): what is left of the process is CherryPick's plain Matérn 5/2."""


@dataclass(frozen=True, kw_only=True)
class CherrypickOptions:
    """How `cherrypick` searches and when it stops.

    Attributes:
        start: Random points before the model is asked.
        stop: Stop once the expected improvement is below this share of the best value; CherryPick's own is 0.1. 0 never stops.
        at_least: Answers before it may stop; CherryPick's own is 6.
        pool: Random candidates, in addition to neighbours of the best; a space of at most twice as many is searched whole.
    """

    start: int = 3
    stop: float = 0.0
    at_least: int = 6
    pool: int = 800

    def __post_init__(self) -> None:
        rules = {
            "start": (self.start >= 1, "must be at least 1"),
            "stop": (0 <= self.stop < 1, "is a share from 0 to below 1"),
            "at_least": (self.at_least >= 1, "must be at least 1"),
            "pool": (self.pool >= 10, "must be at least 10"),
        }
        require("cherrypick", self, rules)


class CherrypickSearcher(Searcher):
    """Matérn 5/2 on the logarithm of the cost, expected improvement over a pool of candidates.

    It has no notion of failure: a failed configuration counts as the worst that worked. Pending proposals count as if they had been
    measured as predicted.
    """

    def __init__(self, space: Space, task: Task, seed: int = 0, options: CherrypickOptions | None = None) -> None:
        self._space = space
        self._seed = seed
        self._options = options or CherrypickOptions()
        self._trials = AnswerSet(space, task.objective)
        self._encoder = Encoder(space)
        self._process = Process(self._encoder, _PLAIN)
        self._pools: dict[Config, list[Config]] = {}
        self._fits: dict[tuple[tuple[Config, float], ...], Scales] = {}

    def ask(self, n: int, given: Config = _NOTHING, pending: Sequence[Proposal] = ()) -> list[Proposal]:
        if n < 1 or not self._space.feasible(given):
            return []
        taken = self._trials.taken(pending)
        waiting = [proposal.config for proposal in pending]
        proposals: list[Proposal] = []
        for index in range(len(pending), len(pending) + n):
            config, expected = self._next(index, given, taken, waiting)
            if config is None:
                break
            taken.add(config)
            waiting.append(config)
            notes = {"round": self._trials.count, "place": index, **({} if expected is None else {"expected": round(expected, 6)})}
            proposals.append(Proposal(config=config, origin=Origin(by="cherrypick", notes=notes)))
        return proposals

    def tell(self, trials: Sequence[Trial]) -> None:
        self._trials.add(trials)

    def _next(self, index: int, given: Config, taken: set[Config], waiting: Sequence[Config]) -> tuple[Config | None, float | None]:
        answers = self._trials.answers()
        rng = stream(self._seed, "cherrypick", self._trials.count, index)
        if len(answers) + len(waiting) < self._options.start or not any(math.isfinite(answer.loss) for answer in answers):
            default = self._space.project(self._space.default(), given)
            if not answers and not waiting and default not in taken:
                return default, None
            return fresh(self._space, rng, given, taken), None
        candidates = self._candidates(rng, answers, given, taken)
        if not candidates:
            return fresh(self._space, rng, given, taken), None
        gains, scale = self._gains(answers, [config for config in waiting if self._is_valid(config)], candidates)
        chosen = int(np.argmax(gains))
        expected = float(gains[chosen]) * scale  # on the logarithm of the cost, so a share of it
        if self._options.stop and len(answers) >= self._options.at_least and expected < self._options.stop:
            return None, None
        return candidates[chosen], expected

    def _is_valid(self, config: Config) -> bool:
        return not self._space.check(config)

    def _candidates(self, rng: np.random.Generator, answers: Sequence[Answer], given: Config, taken: set[Config]) -> list[Config]:
        if given not in self._pools:
            listed = list(islice(self._space.enumerate(given), 2 * self._options.pool + 1))
            if len(listed) > 2 * self._options.pool:
                draw = stream(self._seed, "cherrypick", "pool", given.key)
                first = gates(self._space)
                sampled = (spread(self._space, draw, given, first) for _ in range(self._options.pool))
                listed = list(dict.fromkeys(config for config in sampled if config is not None))
            self._pools[given] = listed
        best = sorted(answers, key=lambda answer: (answer.loss, answer.age))[:5]
        near = (mutate(self._space, answer.config, rng, given) for answer in best for _ in range(10))
        candidates = dict.fromkeys([*self._pools[given], *(config for config in near if config is not None and config.extends(given))])
        return [config for config in candidates if config not in taken]

    def _gains(self, answers: Sequence[Answer], waiting: Sequence[Config], candidates: Sequence[Config]) -> tuple[Floats, float]:
        """Expected improvement of the candidates, in units of the returned scale."""
        values, scale = _targets(answers)
        rows = self._encoder.rows(answer.config for answer in answers)
        self._process.scales = self._fit(answers)
        self._process.condition(rows, values)
        if waiting:
            more = self._encoder.rows(waiting)
            values = np.concatenate([values, self._process.predict(more)[0]])
            self._process.condition(Rows.join([rows, more]), values)
        mean, deviation = self._process.predict(self._encoder.rows(candidates))
        return expected_improvement(mean, deviation, float(values.min())), scale

    def _fit(self, answers: Sequence[Answer]) -> Scales:
        size = max((size for size in _FITTED_AT if size <= len(answers)), default=len(answers))
        oldest = answers[:size]
        key = tuple((answer.config, answer.loss) for answer in oldest)
        if key not in self._fits:
            self._fits = {key: self._process.fit(self._encoder.rows(answer.config for answer in oldest), _targets(oldest)[0])}
        return self._fits[key]


def _targets(answers: Sequence[Answer]) -> tuple[Floats, float]:
    """Standardised costs, logarithmic where all are positive; and one unit of them."""
    losses = np.array(finite_losses(answers))
    values = np.log(losses) if losses.min() > 0 else losses / max(1e-300, float(np.abs(losses).max()))
    deviation = float(values.std()) or 1.0
    return (values - values.mean()) / deviation, deviation


__all__ = ["CherrypickSearcher"]

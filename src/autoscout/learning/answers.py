"""What a searcher remembers of its trials: a set of answers, in an order that the trials carry in themselves.

The order in which trials arrive, and how they are grouped, leaves no trace: proposals of a searcher say in their origin in which round
they were made, and that is their age. Trials from elsewhere count as older than all of them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.task import Objective
from autoscout.core.trial import Fidelity, Proposal, Status, Trial
from autoscout.space import Space


@dataclass(frozen=True)
class Answer:
    """What is known about one configuration.

    Attributes:
        config: The configuration.
        loss: Mean loss at the highest fidelity present, by the first goal; infinite when it failed there. Of a bounded answer an estimate:
            what it had reached when it was stopped, else the mean of those losses that are no better than its bound.
        origin: Of the oldest proposal of it.
        age: Round, place within the round, and key of that proposal.
        simulated: Mean loss of simulated trials; None where there is none.
        measured: Whether `loss` was measured rather than simulated.
        bounded: Whether it was stopped early, and its loss is only known to be no better than a bound.
        losses: The same as `loss` by every goal.
        cost_s: What its trials took on average, in seconds of the measured system; 0 where it was only simulated.
    """

    config: Config
    loss: float
    origin: Origin
    age: tuple[int, int, str]
    simulated: float | None = None
    measured: bool = True
    bounded: bool = False
    losses: tuple[float, ...] = ()
    cost_s: float = 0.0

    @property
    def failed(self) -> bool:
        return math.isinf(self.loss)

    @property
    def key(self) -> str:
        """Of the configuration."""
        return self.age[2]


class AnswerSet:
    """The trials of a search by configuration.

    Args:
        space: Configurations that it does not know are not learned from.
        objective: What a loss is.
    """

    def __init__(self, space: Space, objective: Objective) -> None:
        self._space = space
        self._objective = objective
        self._losses: dict[Config, dict[Fidelity, dict[int, tuple[float, ...]]]] = {}
        self._bounds: dict[Config, tuple[float, float]] = {}  # of bounded trials: the least the loss can be, and what it was so far
        self._costs: dict[Config, dict[int, float]] = {}  # of measured trials, by repeat
        self._origins: dict[Config, tuple[tuple[int, int, str], str, Origin]] = {}
        self._current: dict[Config, Answer] = {}
        self._by_age: list[Answer] = []
        self._open: set[Config] = set()  # bounded ones whose loss has to be guessed from all others
        self._stale: dict[Config, None] = {}  # told of since the last look
        self._answers: list[Answer] | None = None
        self.configs: set[Config] = set()
        self.count = 0

    def add(self, trials: Sequence[Trial]) -> None:
        """Take trials in. Aborted ones are not stored by studies and so are not counted; they are only not asked for again."""
        for trial in trials:
            self.configs.add(trial.config)
            if trial.measurement.status is Status.ABORTED:
                continue
            self.count += 1
            if trial.measurement.fidelity is Fidelity.PREDICTED:
                continue
            if trial.config not in self._losses and self._space.check(trial.config):
                continue
            losses = self._losses.setdefault(trial.config, {}).setdefault(trial.measurement.fidelity, {})
            repeat, loss = trial.proposal.repeat, self._objective.losses(trial.measurement)
            losses[repeat] = min(loss, losses.get(repeat, loss))
            if trial.measurement.fidelity is Fidelity.MEASURED:
                costs = self._costs.setdefault(trial.config, {})
                costs[repeat] = max(trial.measurement.cost_s, costs.get(repeat, 0.0))
            if trial.measurement.status is Status.BOUNDED and math.isfinite(least := self._objective.least_loss(trial.measurement)):
                so_far = self._objective.loss(replace(trial.measurement, status=Status.OK))
                self._bounds[trial.config] = max((least, so_far), self._bounds.get(trial.config, (-math.inf, 0.0)))
            self._remember(trial.proposal)
            self._stale[trial.config] = None
            self._answers = None

    def _remember(self, proposal: Proposal) -> None:
        """The oldest proposal of a configuration counts; equally old ones are told apart by their text, so arrival does not matter."""
        entry = (_age(proposal), repr(proposal.origin), proposal.origin)
        held = self._origins.get(proposal.config)
        if held is None or entry[:2] < held[:2]:
            self._origins[proposal.config] = entry

    def answers(self) -> list[Answer]:
        """One per configuration, oldest first. A look costs what is new since the last one, not what is old."""
        if self._answers is None:
            for config in self._stale:
                self._renew(config)
            self._stale.clear()
            self._answers = self._guessed() if self._open else list(self._by_age)
        return self._answers

    def _renew(self, config: Config) -> None:
        """Put the answer for a configuration in its place, and out of the one that it had."""
        former = self._current.get(config)
        if former is not None:
            del self._by_age[bisect_left(self._by_age, former.age, key=_age_of)]
        answer = self._answer(config)
        self._open.discard(config)
        if answer.failed and config in self._bounds:
            least, so_far = self._bounds[config]
            if math.isfinite(so_far):
                answer = _stopped(answer, max(least, so_far))
            else:
                self._open.add(config)
        self._current[config] = answer
        insort(self._by_age, answer, key=_age_of)

    def _guessed(self) -> list[Answer]:
        """All answers, with the mean of the losses beyond its bound for one that was stopped before it had a loss."""
        losses = sorted(answer.loss for answer in self._by_age if not answer.failed and not answer.bounded)
        means: dict[int, float] = {}
        answers = []
        for answer in self._by_age:
            if answer.config in self._open:
                least = self._bounds[answer.config][0]
                first = bisect_right(losses, least)
                if first not in means and first < len(losses):
                    means[first] = math.fsum(losses[first:]) / (len(losses) - first)
                answer = _stopped(answer, max(least, means.get(first, least)))
            answers.append(answer)
        return answers

    def _answer(self, config: Config) -> Answer:
        losses = self._losses[config]
        highest, simulated = max(losses), losses.get(Fidelity.SIMULATED)
        age, _, origin = self._origins[config]
        settled = _settled(losses[highest].values())
        return Answer(
            config=config,
            loss=settled[0],
            origin=origin,
            age=age,
            simulated=None if simulated is None else _settled(simulated.values())[0],
            measured=highest is Fidelity.MEASURED,
            losses=settled,
            cost_s=math.fsum(costs) / len(costs) if (costs := self._costs.get(config, {}).values()) else 0.0,
        )

    def taken(self, pending: Sequence[Proposal]) -> set[Config]:
        """What must not be proposed."""
        return self.configs | {proposal.config for proposal in pending}


def _age_of(answer: Answer) -> tuple[int, int, str]:
    return answer.age


def _stopped(answer: Answer, loss: float) -> Answer:
    """An answer that was stopped early, with an estimate of its loss."""
    return replace(answer, loss=loss, losses=(loss,), bounded=True)


def _age(proposal: Proposal) -> tuple[int, int, str]:
    number, place = proposal.origin.notes.get("round"), proposal.origin.notes.get("place")
    return (number if isinstance(number, int) else -1, place if isinstance(place, int) else 0, proposal.config.key)


def _settled(losses: Collection[tuple[float, ...]]) -> tuple[float, ...]:
    """The mean of those that worked when most did, else a failure."""
    worked = sorted(loss for loss in losses if math.isfinite(loss[0]))
    if 2 * len(worked) > len(losses):
        return tuple(math.fsum(column) / len(worked) for column in zip(*worked, strict=True))
    return (math.inf,) * len(next(iter(losses)))


def finite_losses(answers: Sequence[Answer], goal: int = 0) -> list[float]:
    """Losses with failures at the worst value that worked, for methods without a notion of failure; 0 when nothing worked.

    Args:
        answers: What is known.
        goal: By which of several goals.
    """
    losses = [answer.losses[goal] if answer.losses else answer.loss for answer in answers]
    worst = max((loss for loss in losses if math.isfinite(loss)), default=0.0)
    return [loss if math.isfinite(loss) else worst for loss in losses]

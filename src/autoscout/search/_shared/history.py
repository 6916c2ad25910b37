"""What a baseline remembers of told trials: a set of answers, in an order that the trials carry in themselves.

The order in which trials arrive, and how they are grouped, leaves no trace: proposals of a searcher say in their origin in which round
they were made, and that is their age. Trials from elsewhere count as older than all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.task import Objective
from autoscout.core.trial import Fidelity, Proposal, Status, Trial
from autoscout.space import Space


@dataclass(frozen=True)
class Answer:
    """What is known about one configuration: its loss at the highest fidelity present (infinite: failed) and where it came from."""

    config: Config
    loss: float
    origin: Origin
    age: tuple[int, int, str]  # round, place within it, key


class Told:
    """Told trials by configuration.

    Args:
        space: Configurations that it does not know are not learned from.
        objective: What a loss is.
    """

    def __init__(self, space: Space, objective: Objective) -> None:
        self._space = space
        self._objective = objective
        self._losses: dict[Config, dict[Fidelity, list[float]]] = {}
        self._ages: dict[Config, tuple[tuple[int, int, str], Origin]] = {}
        self._answers: list[Answer] | None = None
        self.seen: set[Config] = set()
        self.count = 0

    def add(self, trials: Sequence[Trial]) -> None:
        """Take trials in. Aborted ones are not stored by studies and so are not counted; they are only not asked for again."""
        for trial in trials:
            self.seen.add(trial.config)
            if trial.measurement.status is Status.ABORTED:
                continue
            self.count += 1
            if trial.measurement.fidelity is Fidelity.PREDICTED:
                continue
            if trial.config not in self._losses and self._space.check(trial.config):
                continue
            losses = self._losses.setdefault(trial.config, {})
            losses.setdefault(trial.measurement.fidelity, []).append(self._objective.loss(trial.measurement))
            age = _age(trial.proposal)
            if trial.config not in self._ages or age < self._ages[trial.config][0]:
                self._ages[trial.config] = (age, trial.proposal.origin)
            self._answers = None

    def answers(self) -> list[Answer]:
        """One per configuration, oldest first."""
        if self._answers is None:
            found = []
            for config, losses in self._losses.items():
                age, origin = self._ages[config]
                found.append(Answer(config, _settled(losses[max(losses)]), origin, age))
            self._answers = sorted(found, key=lambda answer: answer.age)
        return self._answers

    def taken(self, pending: Sequence[Proposal]) -> set[Config]:
        """What must not be proposed."""
        return self.seen | {proposal.config for proposal in pending}


def _age(proposal: Proposal) -> tuple[int, int, str]:
    made, place = proposal.origin.notes.get("round"), proposal.origin.notes.get("place")
    return (made if isinstance(made, int) else -1, place if isinstance(place, int) else 0, proposal.config.key)


def _settled(losses: Sequence[float]) -> float:
    """The mean of those that worked when most did, else a failure."""
    worked = sorted(loss for loss in losses if math.isfinite(loss))
    return math.fsum(worked) / len(worked) if 2 * len(worked) > len(losses) else math.inf


def finite_losses(answers: Sequence[Answer]) -> list[float]:
    """Losses with failures at the worst value that worked, for methods without a notion of failure; 0 when nothing worked."""
    worked = [answer.loss for answer in answers if math.isfinite(answer.loss)]
    worst = max(worked, default=0.0)
    return [answer.loss if math.isfinite(answer.loss) else worst for answer in answers]

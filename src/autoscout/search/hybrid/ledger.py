"""What was told, as a set: the order in which trials arrive leaves no trace."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from autoscout.core.config import Config
from autoscout.core.task import Objective
from autoscout.core.trial import Fidelity, Status, Trial

MOST_LOST = 100
"""Unreachable configurations that are learnt from; the cost of a step must stay bounded."""
EARLY = 20
"""Trials that count as early."""
RARE = 20
"""Where fewer than one in so many proposals can be had as it is, what cannot be had says nothing about a place."""


@dataclass(frozen=True)
class Answer:
    """What is known about one configuration.

    Attributes:
        config: The configuration.
        key: Its key.
        loss: Mean loss at the highest fidelity present; infinite when it failed there.
        simulated: The same, of simulated trials; None where there is none.
        origin: Of the first look, for credit.
        measured: Whether `loss` was measured rather than simulated.
    """

    config: Config
    key: str
    loss: float
    simulated: float | None
    origin: dict[str, object]
    measured: bool

    @property
    def failed(self) -> bool:
        return math.isinf(self.loss)


def early_failures(answers: Sequence[Answer]) -> float:
    """The share of failures before the search could have learnt to avoid them: about what random proposals would cost."""

    def place(answer: Answer) -> tuple[int, str]:
        number = answer.origin.get("round")
        return (number if isinstance(number, int) else 0), answer.key

    first = sorted(answers, key=place)[:EARLY]
    return (sum(answer.failed for answer in first) + 0.5) / (len(first) + 1.0)


class Ledger:
    """Told trials by configuration."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._losses: dict[Config, dict[Fidelity, dict[int, float]]] = {}
        self._origins: dict[Config, tuple[int, str, dict[str, object]]] = {}
        self._answers: list[Answer] | None = None
        self._keys: dict[Config, str] = {}
        self.told = 0
        self.seen: set[Config] = set()
        self._lost: list[tuple[Config, Config]] | None = None
        self._asked: dict[str, Config] = {}  # keys of proposals that came back as another configuration, and that one
        self._refused: dict[str, Config] = {}

    def add(self, trials: Sequence[Trial]) -> None:
        """Take trials in; an aborted one says nothing about its configuration, and is never stored, so it is not counted."""
        self._lost = None
        for trial in trials:
            self.seen.add(trial.config)
            measurement = trial.measurement
            if measurement.status is Status.ABORTED:
                self._refused[trial.config.key] = trial.config
                continue
            self.told += 1
            key = trial.proposal.origin.notes.get("key")
            if isinstance(key, str) and key != trial.config.key:
                held = self._asked.get(key)
                self._asked[key] = trial.config if held is None else min(held, trial.config, key=lambda config: config.key)
            if measurement.fidelity is Fidelity.PREDICTED:
                continue
            losses = self._losses.setdefault(trial.config, {}).setdefault(measurement.fidelity, {})
            loss = self._objective.loss(measurement)
            if loss < losses.get(trial.proposal.repeat, math.nan) or trial.proposal.repeat not in losses:
                losses[trial.proposal.repeat] = loss
                self._answers = None
            self._remember(trial)

    def _remember(self, trial: Trial) -> None:
        """Of several proposals of a configuration the first look counts; ties by text, so that arrival does not matter."""
        origin = trial.proposal.origin.flat
        entry = (abs(trial.proposal.repeat), repr(sorted(origin.items(), key=lambda item: item[0])), origin)
        held = self._origins.get(trial.config)
        if held is None or entry[:2] < held[:2]:
            self._origins[trial.config] = entry

    def unreachable(self) -> list[Config]:
        """Proposals that came back as another configuration: they cannot be had. None where hardly any can: that teaches nothing."""
        return [asked for asked, _ in self._replaced()][:MOST_LOST] if not self._sparse else []

    def snapped(self) -> list[tuple[Config, Config]]:
        """What was asked for and what was measured in its place, where hardly anything that is asked for can be had."""
        return self._replaced()[:MOST_LOST] if self._sparse else []

    @property
    def _sparse(self) -> bool:
        return RARE * sum(answer.origin.get("key") == answer.key for answer in self.answers()) < len(self._replaced())

    def _replaced(self) -> list[tuple[Config, Config]]:
        if self._lost is None:
            asked = ((self._refused.get(key), self._asked[key]) for key in sorted(self._asked))
            self._lost = [(config, given) for config, given in asked if config is not None and config not in self._losses]
        return self._lost

    def answers(self) -> list[Answer]:
        """All configurations with an answer, in an order that depends on nothing but the set."""
        if self._answers is None:
            for config in self._losses.keys() - self._keys.keys():
                self._keys[config] = config.key
            self._answers = [self._answer(config) for config in sorted(self._losses, key=self._keys.__getitem__)]
        return self._answers

    def _answer(self, config: Config) -> Answer:
        losses = self._losses[config]
        best = max(losses)
        simulated = losses.get(Fidelity.SIMULATED)
        return Answer(
            config=config,
            key=self._keys[config],
            loss=_mean(losses[best].values()),
            simulated=None if simulated is None else _mean(simulated.values()),
            origin=self._origins[config][2],
            measured=best is Fidelity.MEASURED,
        )


def _mean(losses: Collection[float]) -> float:
    """Mean of those that worked, when most did; infinite otherwise."""
    worked = [loss for loss in losses if not math.isinf(loss)]
    return math.fsum(worked) / len(worked) if 2 * len(worked) > len(losses) else math.inf

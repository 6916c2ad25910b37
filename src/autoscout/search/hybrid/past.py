"""Warm start: what studies of similar tasks found, as plain data, and as a belief about the task at hand."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.history import similar, trials_of
from autoscout.core.protocols import Store
from autoscout.core.task import Task
from autoscout.core.trial import Fidelity, Status
from autoscout.search.hybrid.encode import Encoder, Floats, Rows
from autoscout.search.hybrid.process import Process
from autoscout.search.hybrid.target import standardise
from autoscout.space import Space


@dataclass(frozen=True, kw_only=True)
class PastTrial:
    """A configuration of a past study and its loss; None for a failure."""

    config: dict[str, Value]
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Past:
    """One past study.

    Attributes:
        similarity: 0 to 1, how far its task is like this one.
        trials: What it measured.
        ordering: The sparse knobs in the order that won its tournament.
    """

    similarity: float
    trials: tuple[PastTrial, ...]
    ordering: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not 0.0 <= self.similarity <= 1.0:
            raise ConfigError(Fault(where="past", field="similarity", value=repr(self.similarity), rule="must lie between 0 and 1"))


def recall(store: Store, task: Task, limit: int = 3, most: int = 200, exclude: Collection[str] = ()) -> tuple[Past, ...]:
    """What the most similar past studies of a store measured.

    Args:
        store: Where to look.
        task: What is about to be tuned.
        limit: How many studies.
        most: How many trials of each: the best half of them, and evenly from the rest, which says where not to look.
        exclude: Studies to leave out: the one that asks.
    """
    found = []
    for similarity, record in similar(store, task, limit, exclude):
        losses: dict[Config, float] = {}
        origins: list[tuple[int, Any]] = []
        for trial in trials_of(store, record.name):
            if trial.measurement.fidelity is Fidelity.MEASURED and trial.measurement.status is not Status.ABORTED:
                loss = record.task.objective.loss(trial.measurement)
                losses[trial.config] = min(loss, losses.get(trial.config, math.inf))
                origins.append((int(trial.proposal.origin.get("round", -1)), trial.proposal.origin.get("ordering")))
        ranked = sorted(losses, key=lambda config: (losses[config], config.key))
        kept = ranked[: most // 2] + ranked[most // 2 :: max(1, math.ceil(2 * (len(ranked) - most // 2) / most))]
        trials = tuple(PastTrial(config=config.to_json(), loss=None if math.isinf(losses[config]) else losses[config]) for config in kept)
        last = max((pair for pair in origins if pair[1]), key=lambda pair: pair[0], default=(0, ()))[1]
        if trials:
            found.append(Past(similarity=similarity, trials=trials, ordering=tuple(map(str, last))))
    return tuple(found)


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
            worked = [(trial.loss, self._fitted(space, trial)) for trial in study.trials if trial.loss is not None]
            known = sorted((pair for pair in worked if pair[1] is not None), key=lambda pair: pair[0])
            if not known:
                continue
            self.best += [config for _, config in known[:2] if config is not None]
            if len(known) >= 4:
                rows = encoder.rows(config for _, config in known if config is not None)
                targets, _ = standardise(np.array([loss for loss, _ in known]))
                process = Process(encoder)
                process.fit(rows.take(np.arange(0, len(known), max(1, len(known) // 60))), targets[:: max(1, len(known) // 60)])
                process.condition(rows, targets)
                self._processes.append((study.similarity, process))
                self.weight = max(self.weight, study.similarity)
        self.best = list(dict.fromkeys(self.best))

    @staticmethod
    def _fitted(space: Space, trial: PastTrial) -> Config | None:
        """The configuration as near as this space allows; None when they have no knob in common."""
        if not trial.config.keys() & space.knobs.keys():
            return None
        return space.project(trial.config)

    def __bool__(self) -> bool:
        return bool(self._processes)

    def expect(self, rows: Rows) -> Floats:
        """Mean expectation, shrunk to 0 where the past knows nothing."""
        total = sum(weight for weight, _ in self._processes)
        found = np.zeros(len(rows))
        for weight, process in self._processes:
            mean, spread = process.predict(rows)
            found += weight / max(total, 1e-9) * mean / (1.0 + spread**2)
        return found

"""What past studies can tell a new one. Works on any store."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from autoscout.core.config import Config, Value
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.protocols import Store, StudyRecord
from autoscout.core.task import Task, similarity
from autoscout.core.trial import Fidelity, Status, Trial

MIN_SIMILARITY = 0.5
"""Similarity from which on a past study is worth learning from unasked: more than half of the facts agree."""


MOST = 200
"""Trials of a past study that a new one is told."""


@dataclass(frozen=True, kw_only=True)
class PastTrial:
    """A configuration of a past study and its loss by the objective at hand; None for a failure."""

    config: dict[str, Value]
    loss: float | None


@dataclass(frozen=True, kw_only=True)
class Past:
    """One past study, as plain data.

    Attributes:
        similarity: 0 to 1, how far its task is like this one.
        trials: What it measured.
        last: The notes of its last proposal (by their `round`); only the searcher that wrote them reads a meaning into them.
        study: Its name.
    """

    similarity: float
    trials: tuple[PastTrial, ...]
    last: dict[str, Any] = field(default_factory=dict)
    study: str = ""

    def __post_init__(self) -> None:
        if not 0.0 <= self.similarity <= 1.0:
            raise ConfigError(Fault(where="past", field="similarity", value=repr(self.similarity), rule="must lie between 0 and 1"))

    def __str__(self) -> str:
        return f"{len(self.trials)} trials of study {self.study or '?'} (similarity {self.similarity:.2g})"

    @property
    def best(self) -> PastTrial | None:
        """Its best trial, the first among equals; None when nothing worked."""
        worked = [trial for trial in self.trials if trial.loss is not None]
        return min(worked, key=lambda trial: trial.loss or 0.0, default=None)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def best(trials: Iterable[Trial], task: Task) -> Trial | None:
    """The best finished trial: highest fidelity first, then lowest loss, then the earliest."""
    winner: Trial | None = None
    rank: tuple[int, float] | None = None
    for trial in trials:
        loss = task.objective.loss(trial.measurement)
        if loss == float("inf") or trial.measurement.fidelity is Fidelity.PREDICTED:
            continue
        candidate = (-int(trial.measurement.fidelity), loss)
        if rank is None or candidate < rank:
            winner, rank = trial, candidate
    return winner


def similar(store: Store, task: Task, limit: int = 5, exclude: Collection[str] = ()) -> list[tuple[float, StudyRecord]]:
    """Past studies whose task is like this one, the most alike first, newer ones first among equals.

    Args:
        store: Where to look.
        task: What is about to be tuned.
        limit: How many studies at most.
        exclude: Names to leave out: the study that asks, for one.
    """
    pairs = [(similarity(task, record.task), record) for record in store.studies() if record.name not in exclude]
    pairs = [pair for pair in pairs if pair[0] > 0.0]
    return sorted(pairs, key=lambda pair: -pair[0])[:limit]  # `studies` gives the newest first and sorting is stable


def trials_of(store: Store, study: str) -> Iterator[Trial]:
    """All stored trials of a study in order."""
    for batch in store.batches(study):
        yield from batch


def best_of(store: Store, record: StudyRecord) -> Trial | None:
    """The best trial of a past study, by its own objective; None when nothing succeeded."""
    return best(trials_of(store, record.name), record.task)


def bring(store: Store, study: str, trials: Iterable[Trial]) -> int:
    """Append trials that come from elsewhere (a `trials.jsonl`, another store) to an open study, batch by batch.

    Trials that already stand there are left out. Returns how many were stored.
    """
    stored = 0
    for _, batch in groupby(trials, key=lambda trial: (trial.study, trial.batch)):
        stored += len(store.append(study, list(batch)))
    return stored


def recall(
    store: Store,
    task: Task,
    limit: int = 3,
    most: int = MOST,
    exclude: Collection[str] = (),
    least: float = 0.0,
    fidelity: Fidelity = Fidelity.MEASURED,
) -> tuple[Past, ...]:
    """What the most similar past studies of a store measured, judged by the objective at hand.

    Args:
        store: Where to look.
        task: What is about to be tuned.
        limit: How many studies.
        most: How many trials of each: the best half of them, and evenly from the rest, which says where not to look.
        exclude: Studies to leave out: the one that asks.
        least: How similar they must be.
        fidelity: Answers below it do not count: that of the system's own answers.
    """
    studies: list[Past] = []
    for alike, record in similar(store, task, len(store.studies()), exclude):
        if alike < least or len(studies) == limit:
            break
        past = past_of(alike, record.name, trials_of(store, record.name), task, most, fidelity)
        if past is not None:
            studies.append(past)
    return tuple(studies)


def past_of(
    alike: float, study: str, trials: Iterable[Trial], task: Task, most: int = MOST, fidelity: Fidelity = Fidelity.MEASURED
) -> Past | None:
    """What one study measured, see `recall`; None when nothing in it worked."""
    losses: dict[Config, float] = {}
    last: dict[str, Any] = {}
    for trial in trials:
        if trial.measurement.fidelity < fidelity or trial.measurement.status in (Status.ABORTED, Status.BOUNDED):
            continue
        loss = task.objective.loss(trial.measurement)
        losses[trial.config] = min(loss, losses.get(trial.config, math.inf))
        notes = trial.proposal.origin.notes
        if isinstance(notes.get("round"), int) and notes["round"] >= last.get("round", 0):
            last = dict(notes)
    ranked = sorted(losses, key=lambda config: (losses[config], config.key))
    if not ranked or math.isinf(losses[ranked[0]]):
        return None
    sample = ranked[: most // 2] + ranked[most // 2 :: max(1, math.ceil(2 * (len(ranked) - most // 2) / most))]
    return Past(
        similarity=alike,
        trials=tuple(PastTrial(config=config.to_json(), loss=None if math.isinf(losses[config]) else losses[config]) for config in sample),
        last=last,
        study=study,
    )

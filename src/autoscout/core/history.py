"""What past studies can tell a new one. Works on any store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

from autoscout.core.protocols import Store, StudyRecord, best
from autoscout.core.task import Task, similarity
from autoscout.core.trial import Trial


def similar(store: Store, task: Task, limit: int = 5, exclude: Collection[str] = ()) -> list[tuple[float, StudyRecord]]:
    """Past studies whose task is like this one, the most alike first, newer ones first among equals.

    Args:
        store: Where to look.
        task: What is about to be tuned.
        limit: How many studies at most.
        exclude: Names to leave out: the study that asks, for one.
    """
    found = [(similarity(task, record.task), record) for record in store.studies() if record.name not in exclude]
    found = [pair for pair in found if pair[0] > 0.0]
    return sorted(found, key=lambda pair: -pair[0])[:limit]  # `studies` gives the newest first and sorting is stable


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

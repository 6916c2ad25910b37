"""A store that forgets: for tests and for quick use from Python."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from autoscout.core.actions import Action, Pulse
from autoscout.core.clock import Clock, RealClock
from autoscout.core.errors import Fault, StoreError
from autoscout.core.journal import settled
from autoscout.core.protocols import Store, StudyRecord
from autoscout.core.room import Room
from autoscout.core.trial import Proposal, Status, Trial
from autoscout.store._shared.rules import Claim, Slot, check_record, distinct, join, slot, unknown_study, within


@dataclass
class _Shelf:
    record: StudyRecord
    batches: list[list[Trial]] = field(default_factory=list)
    count: int = 0  # trials in them
    identities: set[tuple[str, str, int]] = field(default_factory=set)
    finished: set[Slot] = field(default_factory=set)
    claims: dict[Slot, Claim] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)


class MemoryStore(Store):
    """Keeps trials in this process only: for tests and quick use from Python.

    Args:
        target: Anything: every memory store is a new one.
        clock: Where dates and leases come from.
        journal: Not written.
        create: Without it there is nothing to open, because nothing outlives the process.
    """

    schemes: ClassVar[tuple[str, ...]] = ("memory",)
    volatile: ClassVar[bool] = True
    takes_actions: ClassVar[bool] = True

    def __init__(
        self, target: str | os.PathLike[str] = "memory:", clock: Clock | None = None, journal: Path | None = None, create: bool = True
    ) -> None:
        if not create:
            raise StoreError(Fault(where=str(target), rule="a store in memory is empty when it is opened"))
        del journal  # trials that end with the process need no readable copy
        self.location = "memory"
        self._clock = clock or RealClock()
        self._lock = threading.Lock()
        self._shelves: dict[str, _Shelf] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def open(self, record: StudyRecord) -> StudyRecord:
        check_record(record, self.location)
        with self._lock:
            shelf = self._shelves.get(record.name)
            if shelf is None:
                shelf = _Shelf(replace(record, created_s=record.created_s or self._clock.now_s()))
                self._shelves[record.name] = shelf
            else:
                shelf.record = join(shelf.record, record, self.location)
            return shelf.record

    def claim(self, study: str, proposals: Sequence[Proposal], worker: str, lease_s: float, room: Room | None = None) -> list[Proposal]:
        with self._lock:
            shelf, now_s = self._shelf(study), self._clock.now_s()
            granted = {
                place: proposal
                for place, proposal in distinct(proposals).items()
                if place not in shelf.finished and not (place in shelf.claims and shelf.claims[place].bars(worker, now_s))
            }
            if room is not None:
                granted = within(granted, room, shelf.count, shelf.claims, worker, now_s)
            shelf.claims.update((place, Claim(worker=worker, until_s=now_s + lease_s)) for place in granted)
            return list(granted.values())

    def append(self, study: str, trials: Sequence[Trial]) -> list[Trial]:
        with self._lock:
            shelf = self._shelf(study)
            number = shelf.count
            stored: list[Trial] = []
            for trial in trials:
                place = slot(trial.proposal)
                held = shelf.claims.get(place)
                aborted = trial.measurement.status is Status.ABORTED
                if held and (not aborted or trial.worker in ("", held.worker)):
                    del shelf.claims[place]
                if not aborted and trial.identity not in shelf.identities:
                    shelf.identities.add(trial.identity)
                    shelf.finished.add(place)
                    stored.append(settled(replace(trial, study=study, number=number + len(stored), batch=len(shelf.batches))))
            if stored:
                shelf.batches.append(stored)
                shelf.count += len(stored)
            return list(stored)

    def batches(self, study: str, after: int = -1) -> Iterator[list[Trial]]:
        with self._lock:
            return iter([list(batch) for batch in self._shelf(study).batches[max(after, -1) + 1 :]])

    def studies(self) -> list[StudyRecord]:
        with self._lock:
            return sorted((shelf.record for shelf in reversed(self._shelves.values())), key=lambda record: -record.created_s)

    def act(self, study: str, action: Action) -> Action:
        with self._lock:
            actions = self._shelf(study).actions
            actions.append(replace(action, number=len(actions), at_s=self._clock.now_s(), answer=""))
            return actions[-1]

    def actions(self, study: str) -> list[Action]:
        with self._lock:
            return list(self._shelf(study).actions)

    def answer(self, study: str, number: int, text: str) -> None:
        with self._lock:
            actions = self._shelf(study).actions
            if 0 <= number < len(actions):
                actions[number] = replace(actions[number], answer=text)

    def pulses(self) -> dict[str, Pulse]:
        with self._lock:
            now_s = self._clock.now_s()
            return {
                name: Pulse(
                    trials=shelf.count,
                    actions=(len(shelf.actions), sum(bool(action.answer) for action in shelf.actions)),
                    workers=tuple(claim.worker for claim in shelf.claims.values() if not claim.is_stale(now_s)),
                )
                for name, shelf in self._shelves.items()
            }

    def close(self) -> None:
        """Nothing to let go of."""

    def _shelf(self, study: str) -> _Shelf:
        shelf = self._shelves.get(study)
        if shelf is None:
            raise unknown_study(study, list(self._shelves), self.location)
        return shelf


__all__ = ["MemoryStore"]

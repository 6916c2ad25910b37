"""The durable store: a SQLite file in the result folder, or a PostgreSQL database that a team shares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Connection, Row, insert, select, update

from autoscout.core.actions import Action, Pulse
from autoscout.core.clock import Clock, RealClock
from autoscout.core.errors import Fault, StoreError
from autoscout.core.journal import decode, encode
from autoscout.core.log import NOTICES, logger
from autoscout.core.protocols import Store, StudyRecord
from autoscout.core.room import Room
from autoscout.core.trial import Proposal, Status, Trial
from autoscout.store._shared.rules import Claim, Slot, check_record, digest, distinct, join, slot, within
from autoscout.store.sql import statements
from autoscout.store.sql.database import Database
from autoscout.store.sql.journal import Journal, Rows
from autoscout.store.sql.schema import actions, studies, trials

log = logger(__name__)
notices = logger(NOTICES)

PAGE = 256  # batches read at once


class SqlStore(Store):
    """Keeps studies in a SQLite file (default) or, by URL, in a PostgreSQL database shared by a team.

    Args:
        target: Path of a SQLite file, or a `postgresql://user@host/database` URL.
        clock: Where dates and leases come from.
        journal: The `trials.jsonl` that receives one line per trial of every study opened here; None for none.
        create: Whether a SQLite file that does not exist is begun, or refused.

    Raises:
        StoreError: it cannot be opened, or was written by a newer AutoScout.
        PluginError: the PostgreSQL driver is not installed.
    """

    schemes: ClassVar[tuple[str, ...]] = ("sqlite", "postgresql", "postgres")
    takes_actions: ClassVar[bool] = True

    def __init__(
        self, target: str | os.PathLike[str], clock: Clock | None = None, journal: Path | None = None, create: bool = True
    ) -> None:
        self._clock = clock or RealClock()
        self._database = Database(target, create)
        self._journal = Journal(journal) if journal else None
        self._opened: set[str] = set()
        self._named: set[object] = set()  # damaged rows that were named already

    @classmethod
    def example(cls, folder: Path) -> str:
        """A SQLite file in a folder."""
        return str(folder / "store.db")

    @property
    def location(self) -> str:
        """Where it is, for people: a path, or a URL without its password."""
        return self._database.location

    def open(self, record: StudyRecord) -> StudyRecord:
        check_record(record, self.location)
        stored = self._database.write(lambda connection, _: self._join(connection, record))
        self._opened.add(record.name)
        self._set_aside(record.name)
        if self._journal:
            self._journal.heal(record.name, self._lines(record.name), self._database.read(statements.aside))
        return stored

    def claim(self, study: str, proposals: Sequence[Proposal], worker: str, lease_s: float, room: Room | None = None) -> list[Proposal]:
        by_slot = distinct(proposals)
        return self._database.write(lambda connection, _: self._take(connection, study, by_slot, worker, lease_s, room))

    def append(self, study: str, trials: Sequence[Trial]) -> list[Trial]:
        stored = self._database.write(lambda connection, again: self._keep(connection, study, trials, again))
        if self._journal and stored:
            self._journal.add(study, self._lines(study))
        return stored

    def batches(self, study: str, after: int = -1) -> Iterator[list[Trial]]:
        row: Row[Any] = self._database.read(lambda connection: statements.find_study(connection, study, self.location))
        return self._pages(row.id, max(after, -1))

    def studies(self) -> list[StudyRecord]:
        records, faults = self._database.read(lambda connection: statements.all_studies(connection, self.location))
        for fault in faults.values():
            if fault not in self._named:
                self._named.add(fault)
                notices.warning("%s; it is left out of the list", fault)
        return records

    def damage(self) -> dict[str, Fault]:
        return self._database.read(lambda connection: statements.all_studies(connection, self.location))[1]

    def act(self, study: str, action: Action) -> Action:
        return self._database.write(lambda connection, _: self._ask(connection, study, action))

    def actions(self, study: str) -> list[Action]:
        return self._database.read(
            lambda connection: statements.all_actions(connection, statements.find_study(connection, study, self.location).id, self.location)
        )

    def answer(self, study: str, number: int, text: str) -> None:
        def note(connection: Connection, _: bool) -> None:
            study_id = statements.find_study(connection, study, self.location).id
            connection.execute(update(actions).where(actions.c.study_id == study_id, actions.c.number == number).values(answer=text))

        self._database.write(note)

    def pulses(self) -> dict[str, Pulse]:
        return self._database.read(lambda connection: statements.pulses(connection, self._clock.now_s()))

    def close(self) -> None:
        """Let go of files and connections; trials that other machines added to our studies reach the journal first."""
        while self._opened:
            study = self._opened.pop()
            try:
                if self._journal:
                    self._journal.add(study, self._lines(study))
            except StoreError as error:
                log.warning("the journal lacks the last trials of study %r until it is opened again: %s", study, error)
        self._database.close()

    def _join(self, connection: Connection, record: StudyRecord) -> StudyRecord:
        statements.insert_study(connection, statements.columns(replace(record, created_s=record.created_s or self._clock.now_s())))
        row = statements.find_study(connection, record.name, self.location, lock=True)
        joined = join(statements.record(row, self.location), record, self.location)
        if joined.space != row.space:
            log.info("study %r continues with another space; trials stored before stay", record.name)
        connection.execute(update(studies).where(studies.c.id == row.id).values(statements.columns(joined)))
        now_s = self._clock.now_s()
        stale = [place for place, claim in statements.all_held(connection, row.id).items() if claim.is_stale(now_s)]
        statements.release(connection, row.id, stale)
        return joined

    def _set_aside(self, study: str) -> None:
        """Take trials that cannot be read out of a study, so that it continues without them: their configurations are measured again.

        One that `trials.jsonl` still has is restored.
        """
        if not self._database.read(lambda connection: statements.unreadable_trials(connection, study)):
            return
        by_number = {trial.number: trial for trial in self._journal.trials(study)} if self._journal else {}

        def repair(connection: Connection, _: bool) -> list[str]:
            study_id = statements.find_study(connection, study, self.location, lock=True).id
            return statements.set_aside(connection, study_id, study, statements.unreadable_trials(connection, study), by_number)

        for words in self._database.write(repair):
            notices.warning("%s: %s", self.location, words)

    def _ask(self, connection: Connection, study: str, action: Action) -> Action:
        study_id = statements.find_study(connection, study, self.location, lock=True).id
        return statements.insert_action(connection, study_id, replace(action, at_s=self._clock.now_s()))

    def _take(
        self, connection: Connection, study: str, by_slot: dict[Slot, Proposal], worker: str, lease_s: float, room: Room | None
    ) -> list[Proposal]:
        study_id = statements.find_study(connection, study, self.location, lock=True).id
        now_s = self._clock.now_s()
        finished = {(config, repeat) for config, _, repeat in statements.finished(connection, study_id, by_slot)}
        barred = {place for place, claim in statements.held(connection, study_id, by_slot).items() if claim.bars(worker, now_s)}
        granted = {place: proposal for place, proposal in by_slot.items() if place not in finished | barred}
        if room is not None:
            number, _ = statements.last_trial(connection, study_id)
            granted = within(granted, room, number + 1, statements.all_held(connection, study_id), worker, now_s)
        statements.hold(connection, study_id, list(granted), Claim(worker=worker, until_s=now_s + lease_s))
        return list(granted.values())

    def _keep(self, connection: Connection, study: str, batch: Sequence[Trial], again: bool) -> list[Trial]:
        study_id = statements.find_study(connection, study, self.location, lock=True).id
        done = [trial for trial in batch if trial.measurement.status is not Status.ABORTED]
        places = [slot(trial.proposal) for trial in done]
        lines = statements.finished(connection, study_id, places)
        number, last_batch = statements.last_trial(connection, study_id)
        rows: list[dict[str, Any]] = []
        stored: list[Trial] = []
        for trial in done:
            identity = (digest(trial.config), trial.measurement.fidelity.label, trial.proposal.repeat)
            if identity in lines:
                before = decode(lines[identity])
                if again and _is_same(before, trial):  # stored by the attempt whose answer never reached us
                    stored.append(before)
                continue
            number += 1
            line = lines[identity] = encode(replace(trial, study=study, number=number, batch=last_batch + 1))
            stored.append(decode(line))
            rows.append(
                {"study_id": study_id, "number": number, "batch": last_batch + 1, "data": line, "status": trial.measurement.status.value}
                | dict(zip(("config", "fidelity", "repeat"), identity, strict=True))
            )
        if rows:
            connection.execute(insert(trials), rows)
            statements.check_taken(connection, study_id, number, self.location)
        statements.release(connection, study_id, places)
        for trial in batch:
            if trial.measurement.status is Status.ABORTED:
                statements.release(connection, study_id, [slot(trial.proposal)], trial.worker)
        return stored

    def _pages(self, study_id: int, after: int) -> Iterator[list[Trial]]:
        """Page by page, so that a slow reader keeps no transaction open. Batch numbers have gaps only where damaged rows were set aside."""
        while True:
            span = trials.c.batch.between(after + 1, after + PAGE)
            query = select(trials.c.batch, trials.c.data).where(trials.c.study_id == study_id, span).order_by(trials.c.number)
            batches: dict[int, list[Trial]] = {}
            for batch, line in self._rows(query):
                trials_of_batch = batches.setdefault(batch, [])
                if (trial := self._read(line)) is not None:
                    trials_of_batch.append(trial)
            yield from filter(None, batches.values())
            after += PAGE
            if len(batches) < PAGE:
                last = self._database.read(lambda connection: statements.last_trial(connection, study_id)[1])
                if not isinstance(last, int) or after >= last:  # a damaged column holds anything
                    return

    def _lines(self, study: str) -> Rows:
        return lambda start: self._rows(statements.lines_of(study, start))

    def _rows(self, query: Any) -> list[tuple[int, str]]:
        return self._database.read(lambda connection: [(number, line) for number, line in connection.execute(query)])

    def _read(self, line: str) -> Trial | None:
        """A stored trial; None for one that cannot be read, which is said once."""
        why = statements.unreadable(line)
        if not why:
            return decode(line)
        if line not in self._named:
            self._named.add(line)
            notices.warning("%s: a stored trial cannot be read and is left out: %s (%.60r)", self.location, why, line)
        return None


def _is_same(stored: Trial, mine: Trial) -> bool:
    return (stored.worker, stored.started_s, stored.finished_s) == (mine.worker, mine.started_s, mine.finished_s)


__all__ = ["SqlStore"]

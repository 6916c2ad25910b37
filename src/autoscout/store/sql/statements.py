"""The statements that the methods of `SqlStore` are made of; each runs inside somebody's transaction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, delete, func, insert, inspect, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from autoscout.core.actions import Action, Pulse
from autoscout.core.errors import ConfigError, Fault, StoreError
from autoscout.core.journal import decode, encode
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Task
from autoscout.core.trial import Trial
from autoscout.store._shared.rules import Claim, Slot, digest, unknown_study
from autoscout.store.sql.schema import actions, claims, damaged_trials, studies, trials

UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged row raises."""
CHUNK = 400  # slots in one statement: older SQLite takes 999 variables


def columns(record: StudyRecord) -> dict[str, Any]:
    """A record as a row."""
    return {
        "name": record.name,
        "task": json.dumps(record.task.to_json()),
        "space": record.space,
        "spec": json.dumps(dict(record.spec)),
        "created_s": record.created_s,
    }


def record(row: Row[Any], location: str) -> StudyRecord:
    """A row as a record.

    Raises:
        StoreError: somebody or something has changed the row.
    """
    try:
        task, spec = Task.from_json(json.loads(row.task)), json.loads(row.spec)
        if not isinstance(spec, dict) or not isinstance(row.name, str) or not isinstance(row.space, str):
            raise TypeError("a study has a name, a space and a specification")
        return StudyRecord(name=row.name, task=task, space=row.space, spec=spec, created_s=float(row.created_s))
    except (*UNREADABLE, ConfigError) as error:
        raise damaged(location, f"study {row.name!r} cannot be read", error) from error


def damaged(location: str, what: str, error: Exception, value: object = "") -> StoreError:
    """For a row that is not what we wrote."""
    reason = f"{error} is missing" if isinstance(error, KeyError) else str(error) or type(error).__name__
    fix = "Was the database edited by hand? Its trials are also in trials.jsonl (docs/guides/store.md)"
    return StoreError(Fault(where=location, value=str(value)[:60], rule=f"{what}: {reason}", fix=fix))


def all_studies(connection: Connection, location: str) -> tuple[list[StudyRecord], dict[str, Fault]]:
    """All records, newest first, and what is wrong with the rows that cannot be read, by the name of the study."""
    records: list[StudyRecord] = []
    faults: dict[str, Fault] = {}
    for row in connection.execute(select(studies).order_by(studies.c.created_s.desc(), studies.c.id.desc())):
        try:
            records.append(record(row, location))
        except StoreError as error:
            faults[str(row.name)] = error.faults[0]
    return records, faults


def insert_study(connection: Connection, values: dict[str, Any]) -> None:
    """Add a study unless its name is taken, also when another process is just taking it."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(studies).values(values).on_conflict_do_nothing(index_elements=["name"]))


def find_study(connection: Connection, name: str, location: str, lock: bool = False) -> Row[Any]:
    """The row of a study. Locked, it makes claims and appends to one study wait for each other on every database."""
    query = select(studies).where(studies.c.name == name)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        names = connection.execute(select(studies.c.name).order_by(studies.c.id.desc())).scalars().all()
        raise unknown_study(name, names, location)
    return row


def last_trial(connection: Connection, study_id: int) -> tuple[int, int]:
    """Number and batch of the newest trial; -1 each before the first."""
    query = select(trials.c.number, trials.c.batch).where(trials.c.study_id == study_id).order_by(trials.c.number.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return (-1, -1) if row is None else (row.number, row.batch)


def unreadable(line: object) -> str:
    """Why a stored trial cannot be read; empty for one that can."""
    try:
        decode(line)  # type: ignore[arg-type]  # a damaged column holds anything
    except UNREADABLE as error:
        return str(error) or type(error).__name__
    return ""


def unreadable_trials(connection: Connection, study: str) -> list[int]:
    """Numbers of the trials that cannot be read."""
    return [row.number for row in connection.execute(lines_of(study, -1)) if unreadable(row.data)]


def aside(connection: Connection) -> frozenset[int]:
    """Numbers of the trials, of any study, that were set aside."""
    if not inspect(connection).has_table(damaged_trials.name):
        return frozenset()
    return frozenset(connection.execute(select(damaged_trials.c.number)).scalars())


def set_aside(connection: Connection, study_id: int, study: str, numbers: Sequence[int], kept: Mapping[int, Trial]) -> list[str]:
    """Restore damaged trials from those that are kept elsewhere, move the others to a table of their own, and say what was done.

    The study's row must be locked.
    """
    said: list[str] = []
    for number in numbers:
        here = (trials.c.study_id == study_id) & (trials.c.number == number)
        row = connection.execute(select(trials).where(here)).one()
        trial = kept.get(number)
        if trial is not None and digest(trial.config) == row.config:
            connection.execute(update(trials).where(here).values(data=encode(trial)))
            said.append(f"trial {number} of study {study!r} could not be read and was restored from trials.jsonl")
            continue
        damaged_trials.create(connection, checkfirst=True)
        connection.execute(insert(damaged_trials).values(study_id=study_id, number=number, data=str(row.data)))
        connection.execute(delete(trials).where(here))
        why = f"cannot be read ({unreadable(row.data)})"
        said.append(f"trial {number} of study {study!r} {why}: set aside in the table {damaged_trials.name}, and measured again if needed")
    return said


def check_taken(connection: Connection, study_id: int, number: int, location: str) -> None:
    """See that the trial with this number is there.

    Raises:
        StoreError: the database has swallowed it.
    """
    if last_trial(connection, study_id)[0] < number:
        rule, fix = "the database takes trials but does not keep them", "Look for triggers and rules on its tables, then resume"
        raise StoreError(Fault(where=location, value=f"trial {number}", rule=rule, fix=fix))


def lines_of(study: str, start: int) -> Select[tuple[int, str]]:
    """Number and line of a study's trials from a number on, in order."""
    query = select(trials.c.number, trials.c.data).join(studies, trials.c.study_id == studies.c.id)
    return query.where(studies.c.name == study, trials.c.number >= start).order_by(trials.c.number)


def finished(connection: Connection, study_id: int, places: Iterable[Slot]) -> dict[tuple[str, str, int], str]:
    """Digest, fidelity and repeat -> line, of all stored trials in the given slots."""
    rows = _among(connection, study_id, trials, (trials.c.config, trials.c.repeat, trials.c.fidelity, trials.c.data), places)
    return {(config, fidelity, repeat): line for config, repeat, fidelity, line in rows}


def held(connection: Connection, study_id: int, places: Iterable[Slot]) -> dict[Slot, Claim]:
    """The claims on the given slots, stale ones too."""
    rows = _among(connection, study_id, claims, (claims.c.config, claims.c.repeat, claims.c.worker, claims.c.until_s), places)
    return {(config, repeat): Claim(worker=worker, until_s=until_s) for config, repeat, worker, until_s in rows}


def all_held(connection: Connection, study_id: int) -> dict[Slot, Claim]:
    """All claims of a study, stale ones too."""
    rows = connection.execute(select(claims).where(claims.c.study_id == study_id))
    return {(row.config, row.repeat): Claim(worker=row.worker, until_s=row.until_s) for row in rows}


def hold(connection: Connection, study_id: int, places: Sequence[Slot], claim: Claim) -> None:
    """Put a claim on slots, in place of older ones."""
    if places:
        release(connection, study_id, places)
        row = {"study_id": study_id, "worker": claim.worker, "until_s": claim.until_s}
        connection.execute(insert(claims), [{**row, "config": config, "repeat": repeat} for config, repeat in places])


def release(connection: Connection, study_id: int, places: Sequence[Slot], worker: str = "") -> None:
    """Give slots back; only those that `worker` holds, unless it is empty."""
    for start in range(0, len(places), CHUNK):
        chosen = tuple_(claims.c.config, claims.c.repeat).in_(places[start : start + CHUNK])
        gone = delete(claims).where(claims.c.study_id == study_id, chosen)
        connection.execute(gone.where(claims.c.worker == worker) if worker else gone)


def all_actions(connection: Connection, study_id: int, location: str) -> list[Action]:
    """What was asked of a study, in order.

    Raises:
        StoreError: somebody or something has changed a row.
    """
    rows = connection.execute(select(actions).where(actions.c.study_id == study_id).order_by(actions.c.number))
    try:
        return [Action.from_json({**json.loads(row.data), "answer": row.answer}) for row in rows]
    except (*UNREADABLE, ConfigError) as error:
        raise damaged(location, "an action cannot be read", error) from error


def insert_action(connection: Connection, study_id: int, action: Action) -> Action:
    """Keep an action, numbered; the study's row must be locked."""
    newest = connection.execute(select(func.max(actions.c.number)).where(actions.c.study_id == study_id)).scalar()
    numbered = replace(action, number=0 if newest is None else newest + 1, answer="")
    connection.execute(insert(actions).values(study_id=study_id, number=numbered.number, data=json.dumps(numbered.to_json()), answer=""))
    return numbered


def pulses(connection: Connection, now_s: float) -> dict[str, Pulse]:
    """How far every study is, by three statements whatever the studies hold."""
    newest = select(func.max(trials.c.number)).where(trials.c.study_id == studies.c.id).scalar_subquery()  # numbers have no gaps
    counts = connection.execute(select(studies.c.id, studies.c.name, newest)).all()
    asked: dict[int, list[str]] = {}
    for row in connection.execute(select(actions.c.study_id, actions.c.answer)):
        asked.setdefault(row.study_id, []).append(row.answer)
    workers: dict[int, list[str]] = {}
    for study_id, worker, until_s in connection.execute(select(claims.c.study_id, claims.c.worker, claims.c.until_s)):
        if not Claim(worker=worker, until_s=until_s).is_stale(now_s):
            workers.setdefault(study_id, []).append(worker)
    return {
        name: Pulse(
            trials=0 if last is None else last + 1,
            actions=(len(asked.get(study_id, ())), sum(map(bool, asked.get(study_id, ())))),
            workers=tuple(workers.get(study_id, ())),
        )
        for study_id, name, last in counts
    }


def _among(
    connection: Connection, study_id: int, source: Table, columns: Sequence[ColumnElement[Any]], places: Iterable[Slot]
) -> Iterator[tuple[Any, ...]]:
    """The rows that belong to the given slots; the first two of the wanted columns must be config and repeat."""
    chosen = set(places)
    configs = sorted({config for config, _ in chosen})
    for start in range(0, len(configs), CHUNK):
        some = source.c.config.in_(configs[start : start + CHUNK])
        for row in connection.execute(select(*columns).where(source.c.study_id == study_id, some)):
            if (row[0], row[1]) in chosen:
                yield tuple(row)

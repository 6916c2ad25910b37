"""Stores of other versions: older ones are migrated, newer ones refused."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from autoscout.core.errors import StoreError
from autoscout.core.history import trials_of
from autoscout.core.journal import encode, read_trials
from autoscout.core.trial import Fidelity, Status, Trial
from autoscout.store.sql import schema as _schema
from autoscout.store.sql.engine import locate
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import ELSEWHERE, LEASE_S, proposal, record, task, trial

VERSION_1 = """
CREATE TABLE autoscout_schema (version INTEGER NOT NULL);
CREATE TABLE autoscout_studies (id {serial}, name VARCHAR(200) NOT NULL UNIQUE, task TEXT NOT NULL, space TEXT NOT NULL,
    spec TEXT NOT NULL, created_s DOUBLE PRECISION NOT NULL);
CREATE TABLE autoscout_trials (study_id INTEGER NOT NULL REFERENCES autoscout_studies (id), number INTEGER NOT NULL,
    batch INTEGER NOT NULL, config VARCHAR(64) NOT NULL, repeat INTEGER NOT NULL, data TEXT NOT NULL, PRIMARY KEY (study_id, number));
CREATE UNIQUE INDEX autoscout_trials_identity ON autoscout_trials (study_id, config, repeat);
CREATE INDEX autoscout_trials_batch ON autoscout_trials (study_id, batch);
CREATE TABLE autoscout_claims (study_id INTEGER NOT NULL REFERENCES autoscout_studies (id), config VARCHAR(64) NOT NULL,
    worker TEXT NOT NULL, until_s DOUBLE PRECISION NOT NULL, PRIMARY KEY (study_id, config));
INSERT INTO autoscout_schema VALUES (1);
"""
SERIAL = {"sqlite": "INTEGER NOT NULL PRIMARY KEY", "postgresql": "SERIAL PRIMARY KEY"}


def _engine(target: str) -> Engine:
    return create_engine(locate(target), poolclass=NullPool)


def _version_1(target: str) -> list[Trial]:
    """Write a store as version 1 did; returns its trials."""
    engine = _engine(target)
    old = [trial(0), trial(1, status=Status.TIMEOUT, metrics={}), trial(2, fidelity=Fidelity.SIMULATED)]
    old = [replace(t, study="study", number=number, batch=number // 2) for number, t in enumerate(old)]
    with engine.begin() as connection:
        for statement in VERSION_1.format(serial=SERIAL[engine.dialect.name]).split(";\n"):
            if statement.strip():
                connection.execute(text(statement))
        study = {"name": "study", "task": json.dumps(task().to_json()), "space": "0123abcd", "spec": "{}", "created_s": 5.0}
        columns, places = ", ".join(study), ", ".join(f":{name}" for name in study)
        connection.execute(text(f"INSERT INTO autoscout_studies ({columns}) VALUES ({places})"), study)
        for t in old:
            row = {"n": t.number, "b": t.batch, "c": _digest(t), "r": 0, "d": encode(t)}
            connection.execute(text("INSERT INTO autoscout_trials VALUES (1, :n, :b, :c, :r, :d)"), row)
        connection.execute(text("INSERT INTO autoscout_claims VALUES (1, 'abc', 'old worker', 1e12)"))
    engine.dispose()
    return old


def _digest(t: Trial) -> str:
    from hashlib import sha256

    return sha256(t.config.canonical.encode()).hexdigest()


def _set_version(target: str, version: int) -> None:
    engine = _engine(target)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE autoscout_schema SET version = {version}"))
    engine.dispose()


def _layout(target: str) -> dict[str, Any]:
    """What the tables look like, as far as programs can tell."""
    engine = _engine(target)
    looked = inspect(engine)
    found = {
        name: {
            "columns": {c["name"]: (_kind(c["type"]), c["nullable"]) for c in looked.get_columns(name)},
            "key": looked.get_pk_constraint(name)["constrained_columns"],
            "indexes": sorted((str(i["name"]), tuple(i["column_names"]), bool(i["unique"])) for i in looked.get_indexes(name)),
            "foreign": [f["referred_table"] for f in looked.get_foreign_keys(name)],
        }
        for name in sorted(looked.get_table_names())
    }
    engine.dispose()
    return found


def _kind(column: Any) -> str:
    """SQLite keeps the word that was written for a 64-bit float, and there are several."""
    return "DOUBLE" if str(column) in ("REAL", "DOUBLE", "DOUBLE PRECISION", "DOUBLE_PRECISION") else str(column)


def test_version_1_is_migrated(target: str, tmp_path: Path) -> None:
    old = _version_1(target)
    with SqlStore(target, journal=tmp_path / "trials.jsonl") as store:
        (found,) = store.studies()
        assert (found.name, found.task, found.created_s) == ("study", task(), 5.0)
        store.open(record())
        assert list(trials_of(store, "study")) == old
        assert read_trials(tmp_path / "trials.jsonl") == old, "a store that had no journal gets one"
        wanted = [proposal(0), proposal(1), proposal(2), proposal(3)]
        assert store.claim("study", wanted, ELSEWHERE, LEASE_S) == [proposal(3)]
        measured = store.append("study", [trial(1), trial(2), trial(3)])
        assert [(t.number, t.batch, t.config["x"]) for t in measured] == [(3, 2, 2), (4, 2, 3)], "a fidelity of its own is new"


def test_migrated_and_new_stores_look_the_same(target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    _version_1(target)
    SqlStore(target).close()
    fresh = str(tmp_path / "fresh.db") if "://" not in target else request.getfixturevalue("postgres").database()
    SqlStore(fresh).close()
    assert _layout(target) == _layout(fresh)
    assert _layout(fresh).keys() == set(_schema.metadata.tables)


def test_a_newer_store_is_refused(target: str) -> None:
    SqlStore(target).close()
    _set_version(target, _schema.VERSION + 1)
    with pytest.raises(StoreError) as caught:
        SqlStore(target)
    message = str(caught.value)
    assert str(_schema.VERSION + 1) in message, "the version found"
    assert f"up to schema version {_schema.VERSION}" in message, "the version known"
    assert "upgrade autoscout" in message
    assert ("store.db" if "://" not in target else "postgresql") in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("version", [0, -3])
def test_a_version_that_never_was_is_refused(target: str, version: int) -> None:
    SqlStore(target).close()
    _set_version(target, version)
    with pytest.raises(StoreError, match="not made by AutoScout"):
        SqlStore(target)


def test_a_running_study_notices_that_its_store_was_migrated(target: str) -> None:
    with SqlStore(target) as store:
        store.open(record())
        _set_version(target, _schema.VERSION + 1)
        with pytest.raises(StoreError, match="newer"):
            store.append("study", [trial(0)])
        _set_version(target, _schema.VERSION)
        assert len(store.append("study", [trial(0)])) == 1


def test_a_migration_that_fails_changes_nothing(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _version_1(target)
    before = _layout(target)

    def fail(connection: Any) -> None:
        _schema._one_to_two(connection)
        connection.execute(text("INSERT INTO no_such_table VALUES (1)"))

    with monkeypatch.context() as patch:
        patch.setitem(_schema._MIGRATIONS, 1, fail)
        with pytest.raises(StoreError):
            SqlStore(target)
    assert _layout(target) == before
    with SqlStore(target) as store:
        assert list(trials_of(store, "study")) == old


@pytest.mark.parametrize("old", [True, False], ids=["migrating", "creating"])
def test_several_processes_open_at_once(target: str, old: bool) -> None:
    written = _version_1(target) if old else []
    fork = multiprocessing.get_context("fork")
    gate = fork.Barrier(5)
    processes = [fork.Process(target=_open_and_append, args=(target, gate, 10 + me)) for me in range(5)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 5
    with SqlStore(target) as store:
        stored = list(trials_of(store, "study"))
    assert stored[: len(written)] == written
    assert sorted(int(str(t.config["x"])) for t in stored[len(written) :]) == [10, 11, 12, 13, 14]


def _open_and_append(target: str, gate: Any, x: int) -> None:
    gate.wait()
    with SqlStore(target) as store:
        store.open(record())
        store.append("study", [trial(x)])

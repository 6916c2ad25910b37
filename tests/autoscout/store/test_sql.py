"""What is particular to the SQL store: where it opens, what it promises the disk, forks, journals."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

import _postgres
from autoscout.core.clock import VirtualClock
from autoscout.core.errors import PluginError, StoreError
from autoscout.core.history import bring, trials_of
from autoscout.core.journal import read_trials
from autoscout.store.sql import database as _database
from autoscout.store.sql import engine as _engine
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import ELSEWHERE, proposal, record, trial


def _ask(store: SqlStore, statement: str) -> Any:
    return store._database.write(lambda connection, _: connection.execute(text(statement)).scalar())


# --- opening ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [str, Path, lambda path: f"sqlite:///{path}"], ids=["text", "path", "url"])
def test_a_file_can_be_named_in_three_ways(tmp_path: Path, form: Callable[[Path], Any]) -> None:
    path = tmp_path / "new folder" / "my store.db"
    with SqlStore(form(path)) as store:
        store.open(record())
    assert path.is_file()
    with SqlStore(form(path), create=False) as store:
        assert [found.name for found in store.studies()] == ["study"]


def test_paths_are_not_read_as_urls(tmp_path: Path) -> None:
    path = tmp_path / "store #1%20?mode=ro.db"
    SqlStore(path).close()
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_relative_paths_stay_where_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with SqlStore("store.db") as store:
        monkeypatch.chdir("/")
        store.open(record())
        assert store.location == str(tmp_path / "store.db")


def test_nothing_is_begun_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        SqlStore(tmp_path / "store.db", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_folder_is_tidy(tmp_path: Path) -> None:
    with SqlStore(tmp_path / "store.db", journal=tmp_path / "trials.jsonl") as store:
        store.open(record())
        store.append("study", [trial(0)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store.db", "trials.jsonl"]
    with pytest.raises(StoreError, match="was closed"):
        store.studies()
    store.close()


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("mysql://user:hunter2@host/db", "'mysql' is not supported"),
        ("postgresql+asyncpg://user:hunter2@host/db", "'postgresql+asyncpg' is not supported"),
        ("postgresql://user:hunter2@host:port/db", "not a database URL"),
        ("postgresql://user:hunter2@host", "names no database"),
        ("://", "not a database URL"),
        ("http://example.org/", "'http' is not supported"),
        ("sqlite://", "use the memory store"),
        ("sqlite:///:memory:", "use the memory store"),
    ],
)
def test_wrong_urls(target: str, says: str) -> None:
    with pytest.raises(StoreError) as caught:
        SqlStore(target)
    assert says in str(caught.value)
    assert "postgresql://user@host/database" in str(caught.value), "shows what a right one looks like"
    assert "hunter2" not in str(caught.value), "keeps passwords to itself"
    assert len(caught.value.faults) == 1


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(PluginError, match=r"autoscout\[postgres\]"):
        SqlStore("postgresql://user@host/database")


# --- durability -------------------------------------------------------------------------------------------------


def test_sqlite_waits_for_the_disk(tmp_path: Path) -> None:
    with SqlStore(tmp_path / "store.db") as store:
        assert _ask(store, "PRAGMA journal_mode") == "wal"
        assert _ask(store, "PRAGMA synchronous") == 2, "FULL: NORMAL loses commits when the power fails"
        assert _ask(store, "PRAGMA busy_timeout") == 60_000


def test_every_commit_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with SqlStore(tmp_path / "store.db", journal=tmp_path / "trials.jsonl") as store:
        store.open(record())
        assert synced.count(tmp_path.name) == 2, "the folder entries of both new files"
        store.append("study", [trial(0)])
        store.append("study", [trial(1)])
    assert synced.count("trials.jsonl") == 2


def test_a_server_that_answers_early_is_told_to_wait(postgres: _postgres.Server, postgres_url: str) -> None:
    name = postgres_url.partition("@/")[2].partition("?")[0]
    for setting, expected in (("off", "on"), ("remote_apply", "remote_apply"), ("local", "local")):
        postgres.execute(f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
        with SqlStore(postgres_url) as store:
            assert _ask(store, "SELECT current_setting('synchronous_commit')") == expected


def test_readers_do_not_wait_for_a_writer(target: str) -> None:
    with SqlStore(target) as writer, SqlStore(target) as reader:
        writer.open(record())
        writer.append("study", [trial(0)])

        def work(connection: Any, _: bool) -> int:
            connection.execute(text("UPDATE autoscout_studies SET space = 'x'"))
            return len(list(trials_of(reader, "study"))) + len(reader.studies())

        assert writer._database.write(work) == 2


# --- processes --------------------------------------------------------------------------------------------------


def test_a_store_survives_a_fork(target: str, tmp_path: Path) -> None:
    with SqlStore(target, journal=tmp_path / "trials.jsonl") as store:
        store.open(record())
        store.append("study", [trial(0)])
        fork = multiprocessing.get_context("fork")
        children = [
            fork.Process(target=lambda me: store.append("study", [trial(x) for x in range(me, me + 5)]), args=(me,)) for me in (10, 20)
        ]
        for child in children:
            child.start()
        mine = [t for x in range(30, 35) for t in store.append("study", [trial(x)])]
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0]
        assert len(mine) == 5
        assert len(list(trials_of(store, "study"))) == 16
    assert len(read_trials(tmp_path)) == 16


def _connect(path: Path, gate: Any) -> None:
    gate.wait()
    connection = sqlite3.connect(path)
    _engine._set_up_sqlite(connection, None)
    connection.close()


def test_processes_switch_a_new_file_to_wal_at_once(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    for turn in range(30):
        gate = fork.Barrier(6)
        processes = [fork.Process(target=_connect, args=(tmp_path / f"{turn}.db", gate)) for _ in range(6)]
        for process in processes:
            process.start()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * 6


def test_leases_follow_the_clock(target: str) -> None:
    clock = VirtualClock(1000.0)
    with SqlStore(target, clock=clock) as store:
        assert store.open(record()).created_s == 1000.0
        store.claim("study", [proposal(0)], ELSEWHERE, lease_s=60.0)
        clock.sleep(59.0)
        assert store.claim("study", [proposal(0)], "b", 60.0) == []
        clock.sleep(1.0)
        assert store.claim("study", [proposal(0)], "b", 60.0) == [proposal(0)]


def test_opening_sweeps_out_dead_claims(target: str) -> None:
    with SqlStore(target) as store:
        store.open(record())
        store.claim("study", [proposal(x) for x in range(900)], ELSEWHERE, lease_s=0.0)
        store.claim("study", [proposal(1000)], ELSEWHERE, lease_s=3600.0)
        store.open(record())
        assert _ask(store, "SELECT count(*) FROM autoscout_claims") == 1


def test_many_trials_in_one_batch(target: str) -> None:
    with SqlStore(target) as store:
        store.open(record())
        assert len(store.claim("study", [proposal(x) for x in range(1500)], ELSEWHERE, 60.0)) == 1500
        assert len(store.append("study", [trial(x) for x in range(1500)])) == 1500
        assert _ask(store, "SELECT count(*) FROM autoscout_claims") == 0
        assert store.append("study", [trial(x) for x in range(1500)]) == []


# --- a server that goes away ------------------------------------------------------------------------------------


def test_an_outage_is_sat_out_and_the_trial_not_stored_twice(
    postgres: _postgres.Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SqlStore(postgres_url) as store:
        store.open(record())
        keep = store._keep
        answers: list[bool] = []

        def lose_the_answer(connection: Any, study: str, batch: Any, again: bool) -> Any:
            answers.append(again)
            found = keep(connection, study, batch, again)
            if not again:  # committed, but the connection breaks before we hear of it
                connection.connection.driver_connection.commit()
                postgres.stop()
                postgres.start()
                connection.execute(text("SELECT 1"))
            return found

        monkeypatch.setattr(store, "_keep", lose_the_answer)
        (stored,) = store.append("study", [trial(0)])
        assert answers == [False, True]
        assert (stored.number, stored.config) == (0, proposal(0).config), "ours is returned, not taken for somebody else's"
        assert list(trials_of(store, "study")) == [stored]


def test_patience_begins_when_an_outage_is_known(postgres: _postgres.Server, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut network is silent for longer than a study is patient: the first word of it must not be the last."""
    monkeypatch.setattr(_database, "OUTAGE_S", 5.0)
    with SqlStore(postgres_url) as store:
        store.open(record())
        keep, silences = store._keep, [6.0]

        def say_nothing(connection: Any, study: str, batch: Any, again: bool) -> Any:
            if silences:
                time.sleep(silences.pop())
                connection.connection.driver_connection.close()
            return keep(connection, study, batch, again)

        monkeypatch.setattr(store, "_keep", say_nothing)
        (stored,) = store.append("study", [trial(0)])
        assert list(trials_of(store, "study")) == [stored]


def test_an_outage_that_lasts_is_one_clear_error(
    postgres: _postgres.Server, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "OUTAGE_S", 0.3)
    store = SqlStore(postgres_url, journal=tmp_path / "trials.jsonl")
    store.open(record())
    store.append("study", [trial(0)])
    postgres.stop()
    try:
        with pytest.raises(StoreError, match=r"cannot be reached|shutting down") as caught:
            store.append("study", [trial(1)])
        assert len(caught.value.faults) == 1
        assert "resume" in str(caught.value)
        with pytest.raises(StoreError, match="cannot be reached"):
            SqlStore(postgres_url)
        monkeypatch.setattr(_database, "OUTAGE_S", 1e9)
        store.close()  # would wait forever, had it not learned that the server is gone
    finally:
        postgres.start()
    with SqlStore(postgres_url, journal=tmp_path / "trials.jsonl") as again:
        again.open(record())
        assert [t.config["x"] for t in trials_of(again, "study")] == [0]


def test_a_refused_statement_is_no_outage(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_database, "OUTAGE_S", 1e9)  # an outage would be waited for
    with SqlStore(postgres_url) as store:
        store.open(record())
        with pytest.raises(StoreError, match="refused a statement") as caught:
            store.claim("study", [proposal(0)], "nul \0", 60.0)
        assert "NUL" in str(caught.value)
        assert store.claim("study", [proposal(0)], "b", 60.0) == [proposal(0)]


def test_passwords(postgres: _postgres.Server, postgres_url: str) -> None:
    name = postgres_url.partition("@/")[2].partition("?")[0]
    right = f"postgresql://scout:{_postgres.PASSWORD}@127.0.0.1:{postgres.port}/{name}"
    with SqlStore(right) as store:
        store.open(record())
        assert store.location == f"postgresql+psycopg://scout:***@127.0.0.1:{postgres.port}/{name}"
    with pytest.raises(StoreError, match="refused the user or password") as caught:
        SqlStore(right.replace(_postgres.PASSWORD, "wrong-secret"))
    assert "wrong-secret" not in str(caught.value)
    with pytest.raises(StoreError, match="no such database"):
        SqlStore(right.replace(f"/{name}", "/nowhere"))
    with pytest.raises(StoreError, match="cannot be reached"):
        SqlStore("postgresql://scout@127.0.0.1:1/nowhere")


def test_a_user_who_may_not_create_tables(postgres: _postgres.Server, postgres_url: str) -> None:
    postgres.execute("DROP ROLE IF EXISTS guest")
    postgres.execute("CREATE ROLE guest LOGIN")
    with pytest.raises(StoreError, match="may not do this"):
        SqlStore(postgres_url.replace("scout@", "guest@"))


# --- coming back ------------------------------------------------------------------------------------------------


def test_a_lost_database_is_rebuilt_from_its_journal(tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        batches = [store.append("study", [trial(0), trial(1)]), store.append("study", [trial(2)])]
    (tmp_path / "store.db").unlink()
    with SqlStore(tmp_path / "store.db", journal=journal) as store, pytest.raises(StoreError, match="move it away"):
        store.open(record())
    aside = journal.rename(tmp_path / "old.jsonl")
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        assert bring(store, "study", read_trials(aside)) == 3
        assert list(store.batches("study")) == batches
    assert journal.read_bytes() == aside.read_bytes()


def test_plain_sql_reads_a_store(tmp_path: Path) -> None:
    with SqlStore(tmp_path / "store.db") as store:
        store.open(record())
        store.append("study", [trial(0), replace(trial(1), worker="w")])
    connection = sqlite3.connect(tmp_path / "store.db")
    rows = connection.execute("SELECT number, status, json_extract(data, '$.metrics.time_s') FROM autoscout_trials ORDER BY number")
    assert rows.fetchall() == [(0, "ok", 1.0), (1, "ok", 2.0)]
    connection.close()


@pytest.mark.parametrize(
    ("table", "column", "content", "words"),
    [
        ("autoscout_schema", "version", "x", "schema version"),
    ],
)
def test_damaged_rows_are_named(tmp_path: Path, table: str, column: str, content: object, words: str) -> None:
    place = tmp_path / "store.db"
    with SqlStore(place) as store:
        store.open(record())
        store.append("study", [trial(1), trial(2)])
    with contextlib.closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = ?", (content,))

    def read_all() -> None:
        with SqlStore(place, create=False) as store:
            for known in store.studies():
                list(store.batches(known.name))

    with pytest.raises(StoreError, match=words) as caught:
        read_all()
    assert len(caught.value.faults) == 1


def test_a_damaged_schema_whose_text_is_not_text(tmp_path: Path) -> None:
    place = tmp_path / "store.db"
    with SqlStore(place) as store:
        store.open(record())
    data = bytearray(place.read_bytes())
    spot = data.index(b"CREATE TABLE autoscout_studies")
    data[spot : spot + 12] = b"CREATE \xa8\xff\xfeLE"
    place.write_bytes(data)
    with pytest.raises(StoreError, match="damaged"):
        SqlStore(place, create=False)

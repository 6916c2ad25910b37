"""The world breaks: one clear error with a place and a next step, and nothing that was stored is lost."""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import threading
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import _postgres
from _cli_program import campaign, run
from autoscout.common.processes import descendants
from autoscout.core.errors import StoreError
from autoscout.core.history import trials_of
from autoscout.core.journal import read_trials
from autoscout.store.sql import database as _database
from autoscout.store.sql import engine as _engine
from autoscout.store.sql import journal as _journal
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import ELSEWHERE, LEASE_S, proposal, record, trial
from autoscout.web.library import Library

LONG = b64encode(random.Random(0).randbytes(4500)).decode()  # PostgreSQL would compress simpler text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=777", "tmpfs", folder], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"FULL DISK NOT TESTED ON A REAL ONE: mounting takes rights that are not here ({done.stderr.strip()})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def _fill(store: SqlStore) -> tuple[list[int], StoreError]:
    """Append until it fails; returns what was acknowledged, and the error."""
    done: list[int] = []
    for x in range(10_000):
        try:
            done += [t.number for t in store.append("study", [trial(x, log_tail=LONG)])]
        except StoreError as error:
            return done, error
    raise AssertionError("the disk never got full")


def _check_kept(store: SqlStore, journal: Path, acknowledged: list[int]) -> None:
    """After the disk was mended: all acknowledged trials are there, at most the one under way came through besides."""
    stored = list(trials_of(store, "study"))
    assert [t.number for t in stored] == list(range(len(stored)))
    assert len(acknowledged) <= len(stored) <= len(acknowledged) + 1
    assert read_trials(journal) == stored


def test_a_full_disk(small_disk: Path) -> None:
    journal = small_disk / "trials.jsonl"
    store = SqlStore(small_disk / "store.db", journal=journal)
    store.open(record())
    acknowledged, error = _fill(store)
    assert len(error.faults) == 1
    assert "the disk is full" in str(error)
    assert str(small_disk) in str(error)
    assert "then resume" in str(error)
    assert len(acknowledged) > 5
    journal_lines = read_trials(journal)
    assert [t.number for t in journal_lines] == list(range(len(journal_lines))), "no torn line is left behind"
    with pytest.raises(StoreError, match="the disk is full"):
        store.append("study", [trial(20_000, log_tail=LONG)])
    store.close()
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    with SqlStore(small_disk / "store.db", journal=journal) as again:
        again.open(record())
        _check_kept(again, journal, acknowledged)
        assert len(again.append("study", [trial(30_000, log_tail=LONG)])) == 1


def test_a_full_disk_below_the_journal_only(small_disk: Path, tmp_path: Path) -> None:
    journal = small_disk / "trials.jsonl"
    store = SqlStore(tmp_path / "store.db", journal=journal)
    store.open(record())
    acknowledged, error = _fill(store)
    assert str(journal) in str(error)
    assert "the disk is full" in str(error)
    assert [t.number for t in read_trials(journal)] == acknowledged, "no torn line is left behind"
    assert journal.read_bytes().endswith(b"\n")
    subprocess.run(["mount", "-o", "remount,size=8m", small_disk], check=True)
    (late,) = store.append("study", [trial(20_000)])
    assert late.number == len(acknowledged) + 1
    _check_kept(store, journal, [*acknowledged, late.number])
    store.close()


def test_a_full_disk_at_the_very_beginning(small_disk: Path) -> None:
    (small_disk / "other").write_bytes(b"x" * (1 << 20))
    with pytest.raises(StoreError, match="the disk is full") as caught:
        SqlStore(small_disk / "store.db")
    assert len(caught.value.faults) == 1


def test_a_full_disk_of_the_server(postgres: _postgres.Server, postgres_url: str, small_disk: Path, tmp_path: Path) -> None:
    name = postgres_url.partition("@/")[2].partition("?")[0]
    with tempfile.TemporaryDirectory(prefix="autoscout-ts-") as place:
        Path(place).chmod(0o755)
        subprocess.run(["mount", "--bind", small_disk, place], check=True)
        try:
            os.chown(place, postgres.folder.stat().st_uid, postgres.folder.stat().st_gid)
            postgres.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
            postgres.execute(f"ALTER DATABASE {name} SET default_tablespace = small")
            journal = tmp_path / "trials.jsonl"
            with SqlStore(postgres_url, journal=journal) as store:
                store.open(record())
                acknowledged, error = _fill(store)
                assert "the server's disk is full" in str(error)
                _check_kept(store, journal, acknowledged)
        finally:
            postgres.execute(f"DROP DATABASE {name} WITH (FORCE)")
            postgres.execute("DROP TABLESPACE small")
            subprocess.run(["umount", place], check=True)


def _write_below_a_size_limit(folder: Path, limit: int, answers: Any) -> None:
    with SqlStore(folder / "store.db", journal=folder / "trials.jsonl") as store:
        store.open(record())
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        acknowledged, error = _fill(store)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        _check_kept(store, folder / "trials.jsonl", acknowledged)
        acknowledged += [t.number for t in store.append("study", [trial(20_000)])]  # it goes on in the same process
        answers.put((acknowledged, error))


@pytest.mark.parametrize("limit", [70_001, 150_002, 300_003])
def test_a_file_size_limit(tmp_path: Path, limit: int) -> None:
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    process = fork.Process(target=_write_below_a_size_limit, args=(tmp_path, limit, answers))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    acknowledged, error = answers.get()
    assert isinstance(error, StoreError)
    assert len(error.faults) == 1
    assert "ulimit -f" in str(error)
    assert str(tmp_path) in str(error)
    with SqlStore(tmp_path / "store.db", journal=tmp_path / "trials.jsonl") as store:
        store.open(record())
        _check_kept(store, tmp_path / "trials.jsonl", acknowledged)


# --- places that cannot be used ---------------------------------------------------------------------------------


@contextmanager
def _as_nobody() -> Iterator[None]:
    """Root may write everywhere; try as somebody who may not."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody can reach; pytest's own are private."""
    folder = Path(tempfile.mkdtemp(prefix="autoscout-"))
    folder.chmod(0o777)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o777)
    shutil.rmtree(folder)


def test_a_read_only_folder(open_folder: Path) -> None:
    open_folder.chmod(0o555)
    with _as_nobody():
        for target in (open_folder / "store.db", open_folder / "below" / "store.db"):
            with pytest.raises(StoreError) as caught:
                SqlStore(target)
            assert str(open_folder) in str(caught.value)
            assert len(caught.value.faults) == 1
            assert "writable" in str(caught.value) or "can be read and written" in str(caught.value)
    assert list(open_folder.iterdir()) == []


def test_a_read_only_store(open_folder: Path) -> None:
    path = open_folder / "store.db"
    with SqlStore(path) as store:
        store.open(record())
    path.chmod(0o444)
    open_folder.chmod(0o555)
    with _as_nobody(), pytest.raises(StoreError, match=r"read-only|cannot be opened"):
        SqlStore(path).open(record())


def test_a_store_in_a_folder_that_cannot_be_written_can_be_read(open_folder: Path) -> None:
    (open_folder / "a b%20#?").mkdir()
    path = open_folder / "a b%20#?" / "store.db"
    with SqlStore(path) as store:
        store.open(record())
        store.append("study", [trial(1)])
    path.chmod(0o444)
    path.parent.chmod(0o555)
    with _as_nobody(), SqlStore(path, create=False) as store:
        assert [len(batch) for batch in store.batches("study")] == [1]
        with pytest.raises(StoreError, match="read-only"):
            store.append("study", [trial(2)])


def test_a_read_only_journal(open_folder: Path) -> None:
    journal = open_folder / "trials.jsonl"
    journal.touch()
    journal.chmod(0o444)
    with _as_nobody(), SqlStore(open_folder / "store.db", journal=journal) as store:
        with pytest.raises(StoreError, match="read-only") as caught:
            store.open(record())
        assert str(journal) in str(caught.value)


def test_a_folder_where_the_file_should_be(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="this is a folder"):
        SqlStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        SqlStore(tmp_path / "file" / "store.db")


@pytest.mark.parametrize("content", [b"not a database\n" * 100, b"SQLite format 3\0" + b"\xff" * 4096], ids=["text", "garbage"])
def test_not_a_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(content)
    with pytest.raises(StoreError) as caught:
        SqlStore(path)
    assert "not a SQLite database" in str(caught.value) or "damaged" in str(caught.value)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == content, "somebody's file is left alone"


@pytest.mark.parametrize("damage", ["overwritten", "cut"])
def test_a_damaged_file(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "store.db"
    with SqlStore(path) as store:
        store.open(record())
        for x in range(20):
            store.append("study", [trial(x, log_tail=LONG)])
    raw = path.read_bytes()
    path.write_bytes(raw[:8192] + b"\xa5" * (len(raw) - 8192) if damage == "overwritten" else raw[: len(raw) // 2 // 4096 * 4096])
    with pytest.raises(StoreError) as caught:
        _use(path)
    assert "damaged" in str(caught.value)
    assert "trials.jsonl" in str(caught.value), "says where the trials still are"


def _use(path: Path) -> None:
    with SqlStore(path) as store:
        store.open(record())
        list(trials_of(store, "study"))
        store.append("study", [trial(100)])


DEEP = "[" * 200_000
DAMAGE = ["{", "[]", "3", DEEP, '{"status": 3}', '{"status": "odd", "config": {}}', '{"number": Infinity}', "", b"\xff"]


def sql(store: Path, statement: str, *values: object) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()


@pytest.mark.parametrize("content", DAMAGE, ids=lambda content: str(content)[:12])
def test_a_damaged_trial_is_named_and_left_out(tmp_path: Path, content: object, caplog: pytest.LogCaptureFixture) -> None:
    with SqlStore(tmp_path / "store.db") as store:
        store.open(record())
        store.append("study", [trial(0)])
        store.append("study", [trial(1)])
        store.append("study", [trial(2)])
        sql(tmp_path / "store.db", "UPDATE autoscout_trials SET data = ? WHERE number = 1", content)
        assert [each.number for each in trials_of(store, "study")] == [0, 2]
        assert "a stored trial cannot be read and is left out" in caplog.text
    with SqlStore(tmp_path / "store.db") as store:
        store.open(record())
        assert "trial 1 of study 'study' cannot be read" in caplog.text
        assert "set aside in the table autoscout_damaged" in caplog.text
        assert store.claim("study", [proposal(1)], ELSEWHERE, LEASE_S) == [proposal(1)], "it may be measured again"
        assert [each.number for each in store.append("study", [trial(1)])] == [3]
        assert [each.number for each in trials_of(store, "study")] == [0, 2, 3]
    assert len(sql(tmp_path / "store.db", "SELECT number, data FROM autoscout_damaged")) == 1


@pytest.mark.parametrize("content", DAMAGE, ids=lambda content: str(content)[:12])
def test_a_damaged_trial_comes_back_from_the_journal(tmp_path: Path, content: object, caplog: pytest.LogCaptureFixture) -> None:
    journal = tmp_path / "trials.jsonl"
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        before = store.append("study", [trial(0), trial(1)])
    sql(tmp_path / "store.db", "UPDATE autoscout_trials SET data = ?", content)
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        assert list(trials_of(store, "study")) == before
    assert caplog.text.count("was restored from trials.jsonl") == 2


@pytest.mark.parametrize(
    ("column", "content"), [("task", "[1]"), ("spec", "3"), ("task", "{"), ("spec", DEEP), ("created_s", "soon"), ("space", b"\xff")]
)
def test_a_damaged_study_does_not_block_the_others(tmp_path: Path, column: str, content: object, caplog: pytest.LogCaptureFixture) -> None:
    place = tmp_path / "store.db"
    with SqlStore(place) as store:
        for name in ("study", "other"):
            store.open(record(name=name))
            store.append(name, [trial(0)])
        sql(place, f"UPDATE autoscout_studies SET {column} = ? WHERE name = 'study'", content)
        for _ in range(2):
            assert [each.name for each in store.studies()] == ["other"]
        assert caplog.text.count("study 'study' cannot be read") == 1, "it is named once"
        assert list(store.damage()) == ["study"]
        assert len(list(trials_of(store, "study"))) == 1, "nothing measured is lost"
        store.open(record(name="other"))
        with pytest.raises(StoreError, match="study 'study' cannot be read"):
            store.open(record(name="study"))


def test_a_dry_run_and_the_dashboard_name_a_damaged_study(tmp_path: Path) -> None:
    file = campaign(tmp_path, budget={"trials": 2}, finals={"rounds": 0})
    assert run(tmp_path, "tune", file, "--json").returncode == 0
    home = tmp_path / "autoscout_results" / "numbers"
    sql(home / "store.db", "UPDATE autoscout_studies SET task = '[1]'")
    refused = run(tmp_path, "resume", home, "--dry-run")
    assert refused.returncode == 2
    assert "study 'numbers' cannot be read" in refused.stderr
    with contextlib.closing(Library(str(home.parent))) as library:
        library.look()
        assert library.entries() == []
        assert any("study 'numbers' cannot be read" in problem for problem in library.problems)


def test_pages_of_trials_go_on_after_a_gap(tmp_path: Path) -> None:
    with SqlStore(tmp_path / "store.db") as store:
        store.open(record())
        for x in range(600):
            store.append("study", [trial(x)])
    sql(tmp_path / "store.db", "UPDATE autoscout_trials SET data = '{' WHERE number BETWEEN 3 AND 550")
    with SqlStore(tmp_path / "store.db") as store:
        store.open(record())
        assert [each.number for each in trials_of(store, "study")] == [0, 1, 2, *range(551, 600)]


def test_a_store_that_swallows_trials_says_so(tmp_path: Path) -> None:
    with SqlStore(tmp_path / "store.db") as store:
        store.open(record())
        store.append("study", [trial(0)])
        sql(tmp_path / "store.db", "CREATE TRIGGER swallow BEFORE INSERT ON autoscout_trials BEGIN SELECT RAISE(IGNORE); END")
        with pytest.raises(StoreError, match="takes trials but does not keep them"):
            store.append("study", [trial(1)])


@pytest.mark.skipif(bool(_postgres.missing()), reason=_postgres.missing())
def test_a_server_that_hangs_is_announced(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Frozen, not dead: its connections stay open, and nothing comes back."""
    monkeypatch.setattr(_database, "SILENCE_S", 0.2)
    with _postgres.running() as server, SqlStore(server.database()) as store:
        store.open(record())
        with frozen(server):
            waiting = threading.Thread(target=lambda: store.append("study", [trial(0)]))
            waiting.start()
            while "the database has not answered" not in caplog.text:
                assert waiting.is_alive()
                time.sleep(0.05)
        waiting.join()
        assert [each.number for each in trials_of(store, "study")] == [0]


@contextmanager
def frozen(server: _postgres.Server) -> Iterator[None]:
    """The server with all its processes stopped for a while."""
    assert server._process is not None
    family = [server._process.pid, *descendants(server._process.pid)]
    for pid in family:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in family:
            os.kill(pid, signal.SIGCONT)


# --- locks that somebody keeps ----------------------------------------------------------------------------------


def test_a_database_that_stays_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_engine, "BUSY_S", 0.1)
    with SqlStore(tmp_path / "store.db") as store, SqlStore(tmp_path / "store.db") as other:
        store.open(record())

        def work(_connection: Any, _again: bool) -> StoreError:
            with pytest.raises(StoreError, match="kept the store locked") as caught:
                other.claim("study", [proposal(0)], ELSEWHERE, LEASE_S)
            return caught.value

        assert len(store._database.write(work).faults) == 1
        assert other.claim("study", [proposal(0)], ELSEWHERE, LEASE_S) == [proposal(0)]


def test_a_journal_that_stays_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_journal, "LOCK_S", 0.05)
    journal = tmp_path / "trials.jsonl"
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        with journal.open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            with pytest.raises(StoreError, match="kept this file locked"):
                store.append("study", [trial(0)])
        store.append("study", [trial(1)])
        assert [t.number for t in read_trials(journal)] == [0, 1], "the line that could not be written came along"

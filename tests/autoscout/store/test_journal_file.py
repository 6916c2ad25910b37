"""`trials.jsonl` beside a store: whatever was cut off, when, it agrees with the database after the next look."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from typing import Any

import pytest

from autoscout.core.errors import StoreError
from autoscout.core.history import trials_of
from autoscout.core.journal import encode, read_trials
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import record, trial


def _begin(folder: Path, count: int) -> bytes:
    """A study of `count` trials; returns its journal."""
    with SqlStore(folder / "store.db", journal=folder / "trials.jsonl") as store:
        store.open(record())
        for x in range(count):
            store.append("study", [trial(x, log_tail="tail\nof two lines")])
    return (folder / "trials.jsonl").read_bytes()


def test_one_line_per_trial(tmp_path: Path) -> None:
    raw = _begin(tmp_path, 3)
    with SqlStore(tmp_path / "store.db") as store:
        stored = list(trials_of(store, "study"))
    assert raw.decode("ascii") == "".join(encode(t) + "\n" for t in stored)


def test_a_crash_between_database_and_journal_heals(target: str, tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    with SqlStore(target) as without:
        without.open(record())
        without.append("study", [trial(0), trial(1)])  # as if killed before the lines were written
    with SqlStore(target, journal=journal) as store:
        store.open(record())
        assert [t.number for t in read_trials(journal)] == [0, 1]
        with SqlStore(target) as without:
            without.append("study", [trial(2)])
        store.append("study", [trial(3)])
        assert [t.number for t in read_trials(journal)] == [0, 1, 2, 3], "also while others run"
        with SqlStore(target) as without:
            without.append("study", [trial(4)])
    assert [t.number for t in read_trials(journal)] == [0, 1, 2, 3, 4], "closing takes in what other machines added"


def test_a_journal_cut_anywhere_heals(tmp_path: Path) -> None:
    whole = _begin(tmp_path, 3)
    journal = tmp_path / "trials.jsonl"
    for length in [*range(0, len(whole), 37), len(whole) - 1]:
        journal.write_bytes(whole[:length])
        with SqlStore(tmp_path / "store.db", journal=journal) as store:
            store.open(record())
            assert journal.read_bytes() == whole, f"cut after {length} bytes"


def test_a_torn_line_of_a_killed_neighbour_heals_while_running(tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        store.append("study", [trial(0)])
        with SqlStore(tmp_path / "store.db") as neighbour:
            (stored,) = neighbour.append("study", [trial(1)])
        with journal.open("a") as file:
            file.write(encode(stored)[:40])
        store.append("study", [trial(2)])
        assert [t.number for t in read_trials(journal)] == [0, 1, 2]


@pytest.mark.parametrize("damage", [b"\0" * 300 + b"\n", b"{}\n", b"\n\n", b'{"study": "study", "number": 1'])
def test_bad_lines_in_the_middle_are_replaced(tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    whole = _begin(tmp_path, 4)
    lines = whole.splitlines(keepends=True)
    journal = tmp_path / "trials.jsonl"
    journal.write_bytes(lines[0] + damage + lines[2] + lines[3])
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        assert read_trials(journal) == list(trials_of(store, "study"))
        assert sorted(journal.read_bytes().splitlines()) == sorted(whole.splitlines())
        assert "torn line" in caplog.text
        store.append("study", [trial(9)])
        assert [t.number for t in read_trials(journal)] == [0, 1, 2, 3, 4]


def test_a_journal_that_disappears_comes_back(tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        store.append("study", [trial(0), trial(1)])
        journal.unlink()
        store.append("study", [trial(2)])
        assert [t.number for t in read_trials(journal)] == [0, 1, 2]
        journal.write_text("")
        store.append("study", [trial(3)])
        assert [t.number for t in read_trials(journal)] == [0, 1, 2, 3]


def test_a_journal_of_another_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    foreign = _begin(tmp_path / "other", 2)
    journal = tmp_path / "trials.jsonl"
    for lines in (foreign, foreign.splitlines(keepends=True)[1]):
        journal.write_bytes(lines)
        with SqlStore(tmp_path / "store.db", journal=journal) as store:
            with pytest.raises(StoreError, match="its store does not know") as caught:
                store.open(record())
            assert str(journal) in str(caught.value)
        assert journal.read_bytes() == lines, "and left as it was"


def test_a_journal_with_other_numbers_for_the_same_trials_is_refused(tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    _begin(tmp_path, 2)
    with SqlStore(tmp_path / "other.db") as store:
        store.open(record())
        store.append("study", [trial(7), trial(8)])
    with SqlStore(tmp_path / "other.db", journal=journal) as store, pytest.raises(StoreError, match="2 trials"):
        store.open(record())


def test_several_studies_share_a_journal(target: str, tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    with SqlStore(target, journal=journal) as store:
        for name in ("one", "two", "three"):
            store.open(record(name=name))
        for name in ("one", "two", "one"):
            store.append(name, [trial(len(journal.read_bytes()))])
    assert [(t.study, t.number) for t in read_trials(journal)] == [("one", 0), ("one", 1), ("two", 0)]
    assert [t.number for t in read_trials(journal, "two")] == [0]


def test_studies_that_were_not_opened_here_stay_out(target: str, tmp_path: Path) -> None:
    with SqlStore(target) as store:
        store.open(record(name="of a colleague"))
        store.append("of a colleague", [trial(0)])
    with SqlStore(target, journal=tmp_path / "trials.jsonl") as store:
        store.open(record())
        store.append("study", [trial(1)])
    assert [t.study for t in read_trials(tmp_path)] == ["study"]


def test_reading_while_it_grows(tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    with SqlStore(tmp_path / "store.db", journal=journal) as store:
        store.open(record())
        done = threading.Event()
        seen: list[int] = []

        def read() -> None:
            while not done.is_set():
                seen.append(len(read_trials(journal)))

        reader = threading.Thread(target=read)
        reader.start()
        for x in range(40):
            store.append("study", [trial(x, log_tail="y" * 3000)])
        done.set()
        reader.join()
    assert seen == sorted(seen)
    assert len(read_trials(journal)) == 40


def _append_many(target: str, journal: Path, gate: Any, name: str) -> None:
    with SqlStore(target, journal=journal) as store:
        store.open(record(name=name))
        gate.wait()
        for x in range(25):
            store.append(name, [trial(x), trial(100 + x)])


def test_processes_write_in_turn(target: str, tmp_path: Path) -> None:
    journal = tmp_path / "trials.jsonl"
    fork = multiprocessing.get_context("fork")
    gate = fork.Barrier(4)
    processes = [fork.Process(target=_append_many, args=(target, journal, gate, name)) for name in "abcd"]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(journal.read_bytes().splitlines()) == 200
    assert {name: len(read_trials(journal, name)) for name in "abcd"} == dict.fromkeys("abcd", 50)

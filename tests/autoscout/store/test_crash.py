"""kill -9 at random moments: nothing acknowledged is lost, nothing stands there twice, nothing stays held."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from _writer import spawn

import _postgres
from autoscout.core.history import trials_of
from autoscout.core.journal import read_trials
from autoscout.core.worker import worker_identity
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import proposal, record

KILLS = 50
MANY = 5_000  # more than they get to


def _acknowledged(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


def _await(path: Path, count: int) -> None:
    """Wait until so many trials are acknowledged."""
    deadline = time.monotonic() + 60.0
    while len(_acknowledged(path)) < count:
        assert time.monotonic() < deadline, "the writers do not get on"
        time.sleep(0.002)


def _check(target: str, journal: Path, acknowledged: Path) -> int:
    """Everything that must hold at any moment; returns how many trials are stored."""
    with SqlStore(target, journal=journal) as store:
        store.open(record())
        stored = list(trials_of(store, "study"))
        assert [t.number for t in stored] == list(range(len(stored))), "numbered without gaps"
        assert len({t.identity for t in stored}) == len(stored), "none twice"
        found = {t.number: {"x": t.config["x"], "number": t.number, "worker": t.worker} for t in stored}
        for answer in _acknowledged(acknowledged):
            assert found[int(str(answer["number"]))] == answer, "every acknowledged trial is there, as acknowledged"
        assert read_trials(journal) == stored, "the journal agrees with the database"
        reach = max((int(str(t.config["x"])) for t in stored), default=0) + 10
        free = [proposal(x) for x in range(reach) if x not in {t.config["x"] for t in stored}]
        assert store.claim("study", free, worker_identity("check"), 0.0) == free, "the dead hold nothing"
    return len(stored)


@pytest.mark.slow
def test_kills_at_random_moments(target: str, tmp_path: Path) -> None:
    journal, acknowledged = tmp_path / "trials.jsonl", tmp_path / "acknowledged"
    chance = random.Random(f"kill {target.startswith('postgresql')}")
    writers = [spawn(target, journal, acknowledged, MANY) for _ in range(2)]
    for turn in range(KILLS):
        # Some die while they start or open the store, most in the middle of their work, however slow the machine is.
        _await(acknowledged, len(_acknowledged(acknowledged)) + chance.choice([0, 1, 4, 8]))
        time.sleep(chance.uniform(0.0, 0.03))
        victim = turn % 2
        writers[victim].kill()
        writers[victim].join()
        assert writers[1 - victim].is_alive(), "the other one goes on"
        writers[victim] = spawn(target, journal, acknowledged, MANY)
    for writer in writers:
        writer.kill()
        writer.join()
    assert len(_acknowledged(acknowledged)) > KILLS, "killed while at work, not while starting"
    assert _check(target, journal, acknowledged) >= len(_acknowledged(acknowledged))


def test_two_writers_end_with_all_trials(target: str, tmp_path: Path) -> None:
    journal, acknowledged = tmp_path / "trials.jsonl", tmp_path / "acknowledged"
    writers = [spawn(target, journal, acknowledged, 60) for _ in range(2)]
    writers[0].join(0.1)
    writers[0].kill()
    writers.append(spawn(target, journal, acknowledged, 60))
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers[1:]] == [0, 0]
    assert _check(target, journal, acknowledged) == 60
    assert len(_acknowledged(acknowledged)) >= 60 - 3, "only the batch under way of the killed one may lack its acknowledgement"


@pytest.mark.slow
def test_a_server_that_crashes_and_comes_back(postgres: _postgres.Server, tmp_path: Path) -> None:
    target, journal, acknowledged = postgres.database(), tmp_path / "trials.jsonl", tmp_path / "acknowledged"
    writers = [spawn(target, journal, acknowledged, MANY) for _ in range(2)]
    for _ in range(4):
        _await(acknowledged, len(_acknowledged(acknowledged)) + 10)
        postgres.stop()
        time.sleep(0.2)
        before = len(_acknowledged(acknowledged))
        postgres.start()
        _await(acknowledged, before + 1)
        assert all(writer.is_alive() for writer in writers), "they went on by themselves"
    for writer in writers:
        writer.kill()
        writer.join()
    _check(target, journal, acknowledged)

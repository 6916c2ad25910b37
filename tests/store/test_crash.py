"""kill -9 at random moments: nothing acknowledged is lost, nothing stands there twice, nothing stays held."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest
from _writer import LEASE_S, spawn

import _postgres
from autoscout.core.history import trials_of
from autoscout.core.journal import read_trials
from autoscout.core.worker import worker_identity
from autoscout.store.sql import SqlStore
from autoscout.testing.store import proposal, record

KILLS = 50
MANY = 100_000


def _acknowledged(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


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
        time.sleep(chance.uniform(0.0, 0.15))
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
        time.sleep(0.4)
        before = len(_acknowledged(acknowledged))
        postgres.stop()
        time.sleep(0.2)
        postgres.start()
        deadline = time.monotonic() + 30.0
        while len(_acknowledged(acknowledged)) <= before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(_acknowledged(acknowledged)) > before, "they went on by themselves"
        assert all(writer.is_alive() for writer in writers)
    for writer in writers:
        writer.kill()
        writer.join()
    _check(target, journal, acknowledged)


def test_lease_is_long_here() -> None:
    assert LEASE_S > 600, "or the tests above would not show that dead holders are noticed"

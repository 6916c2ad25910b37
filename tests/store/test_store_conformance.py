"""The shipped suite over every store there is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscout.core import plugins
from autoscout.core.journal import read_trials
from autoscout.store.memory import MemoryStore
from autoscout.store.sql.store import SqlStore
from autoscout.testing.store import StoreSuite


class TestMemory(StoreSuite):
    @pytest.fixture
    def store(self) -> Iterator[MemoryStore]:
        with MemoryStore() as store:
            yield store


class _Durable(StoreSuite):
    def again(self, store: SqlStore) -> SqlStore:
        other = SqlStore(self.target, journal=self.journal)
        self.handles.append(other)
        return other

    def opened(self, target: str | Path, journal: Path | None) -> Iterator[SqlStore]:
        self.target, self.journal, self.handles = target, journal, [SqlStore(target, journal=journal)]
        yield self.handles[0]
        in_order = {record.name: [trial for batch in self.handles[0].batches(record.name) for trial in batch]
                    for record in self.handles[0].studies()}  # fmt: skip
        for handle in self.handles:
            handle.close()
        if journal and any(in_order.values()):
            assert {name: read_trials(journal, name) for name in in_order} == in_order, "the journal agrees with the database"


class TestSqlite(_Durable):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqlStore]:
        yield from self.opened(tmp_path / "store.db", tmp_path / "trials.jsonl")


class TestPostgres(_Durable):
    @pytest.fixture
    def store(self, postgres_url: str, tmp_path: Path) -> Iterator[SqlStore]:
        yield from self.opened(postgres_url, tmp_path / "trials.jsonl")


def test_every_store_runs_through_the_suite() -> None:
    assert plugins.available("store") == ("memory", "sql"), "a new store wants a class above"
    assert [plugins.get("store", name) for name in plugins.available("store")] == [MemoryStore, SqlStore]

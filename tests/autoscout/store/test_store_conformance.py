"""The shipped suite over every store there is, and over the other database of `sql`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscout.core import plugins
from autoscout.core.protocols import Store
from autoscout.testing.store import StoreSuite


class TestEveryStore(StoreSuite):
    @pytest.fixture(params=plugins.available("store"))
    def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
        if plugins.requirements("store", request.param) and not plugins.health("store", request.param).usable:
            pytest.skip(plugins.health("store", request.param).why)
        yield from self.opened(plugins.get("store", request.param), tmp_path)


class TestPostgres(StoreSuite):
    @pytest.fixture
    def store(self, postgres_url: str, tmp_path: Path) -> Iterator[Store]:
        yield from self.opened(plugins.get("store", "sql"), tmp_path, postgres_url)

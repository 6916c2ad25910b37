from __future__ import annotations

from collections.abc import Iterator

import pytest

import _postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[_postgres.Server]:
    reason = _postgres.missing()
    if reason:
        pytest.skip(reason)
    with _postgres.running() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: _postgres.Server) -> str:
    return postgres.database()


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest) -> str:
    """Where a durable store goes: a test that takes this runs on every database."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "store.db")
    return str(request.getfixturevalue("postgres_url"))

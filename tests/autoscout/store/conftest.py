from __future__ import annotations

import pytest


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest) -> str:
    """Where a durable store goes: a test that takes this runs on every database."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("tmp_path") / "store.db")
    return str(request.getfixturevalue("postgres_url"))

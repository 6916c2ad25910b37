from __future__ import annotations

from pathlib import Path

import pytest

from autoscout.campaign import build_campaign
from autoscout.compose import prepare, without_password


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me@host:5432/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("postgresql://:secret@host/db", "postgresql://@host/db"),
        ("postgresql://host/db?password=secret&sslmode=require", "postgresql://host/db?sslmode=require"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db?user=me"),
        ("postgresql+psycopg://me:se%40cret@[::1]:5432/db", "postgresql+psycopg://me@[::1]:5432/db"),
    ],
)
def test_passwords_are_never_written_down(url: str, kept: str) -> None:
    assert without_password(url) == kept


def test_a_backend_may_hint_at_good_configurations() -> None:
    pytest.importorskip("xllamacpp")
    plain = prepare(build_campaign({"system": "llamacpp", "workload": {"concurrency": 4}}, where="test"))
    assert [config["parallel"] for config in plain.first] == [4]
    pinned = prepare(build_campaign({"system": "llamacpp", "workload": {"concurrency": 4}, "set": {"parallel": 2}}, where="test"))
    assert pinned.first == (), "a hint that the pinned knobs rule out is dropped"
    given = prepare(build_campaign({"system": "llamacpp", "workload": {"concurrency": 4}, "first": [{"threads": 1}]}, where="test"))
    assert given.first[0]["threads"] == 1, "the user's own come first"


def test_the_resolved_campaign_stands_for_the_same_task(tmp_path: Path) -> None:
    data = {
        "system": "command",
        "store": "postgresql://me:secret@host/db",
        "workload": {"command": "echo {x}", "metrics": {"x": {"regex": "([0-9]+)"}}},
        "goal": {"metric": "x", "direction": "minimize"},
        "space": {"knobs": {"x": {"range": [0, 3]}}},
    }
    setup = prepare(build_campaign(data, where="test"))
    again = prepare(build_campaign(setup.spec, where="test"))
    assert again.task == setup.task
    assert again.name == setup.name
    assert "secret" not in str(setup.spec)

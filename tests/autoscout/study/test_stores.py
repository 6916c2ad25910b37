"""Stores by the scheme of their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoscout.core import plugins
from autoscout.core.errors import ConfigError
from autoscout.store.memory import MemoryStore
from autoscout.study.stores import open_store, scheme_of, written_place


@pytest.mark.parametrize(
    ("place", "scheme"),
    [
        ("results/store.db", ""),
        ("C:\\results\\store.db", ""),
        ("memory:", "memory"),
        ("jsonl:trials", "jsonl"),
        ("PostgreSQL://me@host/db", "postgresql"),
        ("postgresql+psycopg://me@host/db", "postgresql"),
    ],
)
def test_the_scheme_of_a_place(place: str, scheme: str) -> None:
    assert scheme_of(place) == scheme


def test_a_place_is_written_down_so_that_it_means_the_same_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert written_place("store.db") == str(tmp_path / "store.db")
    assert written_place("jsonl:trials") == f"jsonl:{tmp_path / 'trials'}"
    assert written_place("jsonl:/there/trials") == "jsonl:/there/trials"
    assert written_place("memory:") == "memory:"
    assert written_place("postgresql://me:secret@host/db") == "postgresql://me@host/db"


def test_an_unknown_scheme_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no store knows the scheme 'mysql'; known: memory, postgres, postgresql, sqlite"):
        open_store("mysql://me@host/db")


class Bare(MemoryStore):
    """A store without schemes."""

    schemes = ()


class Shelf:
    schemes = ("shelf",)

    def __init__(self, target: str, *, create: bool, journal: Path | None) -> None:
        self.given = (target, create, journal)


def test_a_store_is_chosen_by_its_scheme_and_told_its_whole_place(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, Any] = {"bare": Bare, "shelf": Shelf}
    monkeypatch.setattr(plugins, "available", lambda kind: tuple(kinds))
    monkeypatch.setattr(plugins, "get", lambda kind, name: kinds[name])
    found: Any = open_store("shelf:top", create=False, journal=Path("trials.jsonl"))
    assert found.given == ("shelf:top", False, Path("trials.jsonl"))

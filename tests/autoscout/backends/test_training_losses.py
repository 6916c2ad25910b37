"""Losses compared with the default's: what is called wrong, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscout.training.steps import Reference, cache_folder, other_work, recall, remember, wrong

DEFAULT = [8.0, 7.0, 6.5, 6.2, 6.0, 5.9]


@pytest.mark.parametrize("losses", [DEFAULT, [loss * 1.01 for loss in DEFAULT], [loss * 0.8 for loss in DEFAULT], DEFAULT[:3], []])
def test_a_run_that_learns_as_the_default_does_is_right(losses: list[float]) -> None:
    assert wrong(losses, DEFAULT, 0.02) == ""


def test_a_run_that_learns_less_is_wrong() -> None:
    told = wrong([8.0, 7.9, 7.8, 7.7, 7.7, 7.6], DEFAULT, 0.02)
    assert "7.667 where the default's is 6.033" in told
    assert wrong([8.0, 7.9, 7.8, 7.7, 7.7, 7.6], [], 0.02) == "", "unknown without the default"


def test_a_loss_that_is_no_number_or_rises_is_wrong_by_itself() -> None:
    assert wrong([8.0, None, 7.0], [], 0.02) == "the loss of step 2 is not a finite number"
    assert "rises from 2 to 9" in wrong([2.0, 2.0, 2.0, 9.0], [], 0.02)


def test_the_default_is_remembered_and_the_last_run_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path))
    assert recall("a") == Reference()
    known = Reference(DEFAULT, [10.0] * 6)
    remember("a", known)
    assert recall("a") == known
    remember("a", Reference([1.0], [10.0]))
    assert recall("a") == Reference([1.0], [10.0]), "a script may have changed since"
    assert recall("b") == Reference()
    for broken in ("{", "[]", json.dumps({"losses": 3, "tokens": []}), json.dumps({"losses": ["x"], "tokens": []})):
        (cache_folder() / "losses-a.json").write_text(broken)
        assert recall("a") == Reference(), "a broken file is no file"


def test_a_run_that_does_less_work_is_wrong() -> None:
    assert other_work([100.0, 102.0, 98.0], [100.0, 100.0]) == ""
    assert "trains on 50 tokens a step where the default trains on 100" in other_work([50.0, 50.0], [100.0, 100.0, 100.0])
    assert other_work([0.0, 0.0], [100.0]) == other_work([100.0], []) == "", "nobody counts"


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "file"))
    remember("a", Reference(DEFAULT, [10.0] * 6))
    assert recall("a") == Reference()

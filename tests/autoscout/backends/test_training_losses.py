"""Losses compared with the default's: what is called wrong, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscout.training.steps import ReferenceRun, cache_folder, loss_fault, recall_reference, remember_reference, work_fault

DEFAULT = [8.0, 7.0, 6.5, 6.2, 6.0, 5.9]


@pytest.mark.parametrize("losses", [DEFAULT, [loss * 1.01 for loss in DEFAULT], [loss * 0.8 for loss in DEFAULT], DEFAULT[:3], []])
def test_a_run_that_learns_as_the_default_does_is_right(losses: list[float]) -> None:
    assert loss_fault(losses, DEFAULT, 0.02) == ""


def test_a_run_that_learns_less_is_wrong() -> None:
    told = loss_fault([8.0, 7.9, 7.8, 7.7, 7.7, 7.6], DEFAULT, 0.02)
    assert "7.667 where the default's is 6.033" in told
    assert loss_fault([8.0, 7.9, 7.8, 7.7, 7.7, 7.6], [], 0.02) == "", "unknown without the default"


def test_a_loss_that_is_no_number_or_rises_is_wrong_by_itself() -> None:
    assert loss_fault([8.0, None, 7.0], [], 0.02) == "the loss of step 2 is not a finite number"
    assert "rises from 2 to 9" in loss_fault([2.0, 2.0, 2.0, 9.0], [], 0.02)


def test_the_default_is_remembered_and_the_last_run_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path))
    assert recall_reference("a") == ReferenceRun()
    known = ReferenceRun(DEFAULT, [10.0] * 6)
    remember_reference("a", known)
    assert recall_reference("a") == known
    remember_reference("a", ReferenceRun([1.0], [10.0]))
    assert recall_reference("a") == ReferenceRun([1.0], [10.0]), "a script may have changed since"
    assert recall_reference("b") == ReferenceRun()
    for broken in ("{", "[]", json.dumps({"losses": 3, "tokens": []}), json.dumps({"losses": ["x"], "tokens": []})):
        (cache_folder() / "losses-a.json").write_text(broken)
        assert recall_reference("a") == ReferenceRun(), "a broken file is no file"


def test_a_run_that_does_less_work_is_wrong() -> None:
    assert work_fault([100.0, 102.0, 98.0], [100.0, 100.0]) == ""
    assert "trains on 50 tokens a step where the default trains on 100" in work_fault([50.0, 50.0], [100.0, 100.0, 100.0])
    assert work_fault([0.0, 0.0], [100.0]) == work_fault([100.0], []) == "", "nobody counts"


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "file"))
    remember_reference("a", ReferenceRun(DEFAULT, [10.0] * 6))
    assert recall_reference("a") == ReferenceRun()

"""What training scripts import: settings in, steps out, and nothing at all outside a trial."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscout import training
from autoscout.training import hook


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_outside_a_trial_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (training.CONFIG, training.STEPS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    assert training.config() == {}
    training.stage("building")
    training.step(loss=object(), tokens=3)  # not even looked at
    assert list(tmp_path.iterdir()) == []


def test_settings_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(training.CONFIG, '{"micro_batch": 4, "recompute": "full"}')
    assert training.config() == {"micro_batch": 4, "recompute": "full"}
    monkeypatch.setenv(training.CONFIG, "[1]")
    with pytest.raises(ValueError, match="must hold a JSON object"):
        training.config()


@pytest.mark.parametrize("name", hook.RANKS)
def test_every_process_reports_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for other in hook.RANKS:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(training.STEPS, str(tmp_path))
    monkeypatch.setenv(name, "3")
    training.stage("training")
    training.step(loss=2.5, tokens=7)
    training.step(loss=float("nan"))
    training.step()
    stage, first, second, third = lines(tmp_path / "rank3.jsonl")
    assert stage["stage"] == "training"
    assert (first["loss"], first["tokens"], first["samples"]) == (2.5, 7.0, 0.0)
    assert second["loss"] is None, "JSON has no NaN"
    assert "loss" not in third, "a process that does not know it"
    assert float(str(first["mem_gib"])) > 0
    assert float(str(first["at_s"])) <= float(str(third["at_s"]))

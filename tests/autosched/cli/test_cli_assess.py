from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from autosched.cli.verbs import app
from autosched.tune.modes import MODES
from autoscout.core.errors import ConfigError

TRACE = ("assess", "--trace", "synthetic:philly:300:3:3", "--cluster", "6x8", "--days", "0.5")


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, mode in MODES.items():
        every = mode.every_s if np.isinf(mode.every_s) else 21_600.0
        predictor = replace(mode.predictor, model="frequency")
        search = replace(mode.search, trials=5)
        monkeypatch.setitem(MODES, name, replace(mode, every_s=every, start_trials=5, search=search, predictor=predictor))


def run(*arguments: str) -> str:
    outcome = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_strategies_are_compared_and_written(tmp_path: Path) -> None:
    found = json.loads(run(*TRACE, "--mode", "fixed-history", "--mode", "paper", "--output", str(tmp_path / "out"), "--json"))
    assert [row["mode"] for row in found["strategies"]] == ["static", "fixed-history", "paper"]
    assert found["strategies"][0]["gain"] == 1.0
    assert found["recommendation"]
    assert found["settings"]["queues"]
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"report.md", "over_time.svg", "causes.svg", "causes.dot"}
    assert found["recommendation"] in (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_a_table_and_a_sentence_for_people() -> None:
    told = run(*TRACE, "--mode", "default")
    assert "strategy" in told
    assert "Settings: " in told
    assert "noise" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--mode", "magic"), "must be among"),
        (("--goal", "fame"), "must be one of time, fair"),
        (("--scheduler", "magic"), "must be one of"),
        (("--days", "2"), "need at least as many before"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        run(*TRACE, *arguments)

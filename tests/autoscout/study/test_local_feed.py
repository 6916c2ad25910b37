"""Every study that measures leaves behind what later estimates can use."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from _studies import tuned
from autoscout.core.trial import Fidelity
from autoscout.report import publish as publishing
from autoscout.study.setup import Setup


def test_measured_trials_feed_a_local_calibration_and_simulated_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = tuned(tmp_path, "mine")
    path = tmp_path / "mine" / "calibration.json"
    publishing.publish(outcome)
    assert not path.exists(), "the virtual cluster is simulated"
    monkeypatch.setattr(Setup, "fidelity", Fidelity.MEASURED)
    measured = [replace(trial, measurement=replace(trial.measurement, fidelity=Fidelity.MEASURED)) for trial in outcome.trials]
    publishing.publish(replace(outcome, trials=tuple(measured)))
    found = json.loads(path.read_text())
    assert (found["simulator"], found["gpu"], found["study"]) == ("training", "A100-80", "mine")
    assert found["trials"] >= 3

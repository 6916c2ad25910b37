from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import autoscout
from autoscout.core.errors import ConfigError, SpaceError
from autoscout.study.final import Finals


def bowl(config: autoscout.Config) -> float:
    return float((config["x"] - 3) ** 2)


def test_minimize_and_maximize_a_function() -> None:
    found = autoscout.minimize(bowl, {"x": range(8)}, trials=8)
    assert found.best == autoscout.Config(x=3)
    assert found.value == 0.0
    assert found.trials[0].config == autoscout.Config(x=0), "the default comes first"
    assert autoscout.maximize(bowl, {"x": range(8)}, trials=8).best == autoscout.Config(x=7)


def test_metrics_limits_and_infeasible_points() -> None:
    def system(config: autoscout.Config) -> dict[str, float]:
        if config["x"] == 7:
            raise autoscout.Infeasible("does not fit")
        return {"value": float(config["x"]), "latency_ms": 10.0 * config["x"]}

    found = autoscout.maximize(system, {"x": range(8)}, trials=8, limits=["latency_ms<=45"])
    assert found.best == autoscout.Config(x=4)
    assert sum(trial.measurement.status is autoscout.Status.INVALID for trial in found.trials) <= 1
    assert any(not trial.ok for trial in found.trials)


def test_a_store_makes_it_resumable(tmp_path: Path) -> None:
    calls: list[object] = []

    def noted(config: autoscout.Config) -> float:
        calls.append(config["x"])
        return bowl(config)

    autoscout.minimize(noted, {"x": range(20)}, trials=5, store=tmp_path / "s.db")
    found = autoscout.minimize(noted, {"x": range(20)}, trials=9, store=tmp_path / "s.db")
    assert len(calls) == 9
    assert len(set(calls)) == 9
    assert len(found.trials) == 9


def test_given_knobs_mixed_kinds_and_workers() -> None:
    space = {"mode": ["a", "b"], "fast": bool, "x": [1, 2, 4]}
    found = autoscout.minimize(lambda c: float(c["x"]) + (c["mode"] == "a"), space, trials=12, given={"fast": True}, workers=3)
    assert len(found.trials) == 6
    assert found.best == autoscout.Config(mode="b", fast=True, x=1)


def test_after_a_final_luck_in_the_search_does_not_win() -> None:
    seen: list[object] = []

    def noisy(config: autoscout.Config) -> float:
        seen.append(config["x"])
        lucky = config["x"] == 2 and seen.count(2) == 1
        return 0.1 if lucky else 10.0 - (config["x"] == 5) * 5 + 0.01 * (len(seen) % 3)

    found = autoscout.minimize(noisy, {"x": range(6)}, trials=6, finals=Finals(finalists=2, rounds=5))
    assert found.best == autoscout.Config(x=5)
    assert found.value == pytest.approx(5.0, abs=0.03)


def test_a_knob_that_lists_no_values_is_refused() -> None:
    with pytest.raises(SpaceError) as caught:
        autoscout.minimize(lambda _: 0.0, {"mode": "fast", "x": 5, "y": {"range": [1, 9], "lgo": True}, "z": [1, 2]}, trials=3)
    assert [(fault.field, fault.value) for fault in caught.value.faults[:2]] == [("mode", "'fast'"), ("x", "5")]
    assert "lgo" in str(caught.value.faults[2])


def test_an_array_lists_values() -> None:
    assert autoscout.minimize(lambda config: config["x"], {"x": np.array([3, 1, 2])}, trials=3).best == autoscout.Config(x=1)


def test_a_function_without_knobs_is_measured_once() -> None:
    assert autoscout.minimize(lambda _: 7.0, {}, trials=3).value == 7.0


@pytest.mark.parametrize("value", [10**400, 10**5000, "7", None, math.nan], ids=["large", "huge", "text", "none", "nan"])
def test_what_is_no_finite_number_is_a_wrong_output(value: object) -> None:
    (trial,) = autoscout.minimize(lambda _: value, {"x": [1]}, trials=1).trials
    assert trial.measurement.status is autoscout.Status.WRONG_OUTPUT
    assert "is not a finite number" in trial.measurement.reason


def test_unknown_given_knobs_are_named_together() -> None:
    with pytest.raises(SpaceError, match="there is no such knob") as caught:
        autoscout.minimize(bowl, {"x": range(8)}, trials=3, given={"z": 1, "x": 99})
    assert len(caught.value.faults) == 2


def test_tune_takes_plain_data(tmp_path: Path) -> None:
    campaign = {
        "system": "command",
        "workload": {"command": "echo score $(({x} + 1))", "metrics": {"score": {"regex": "score ([0-9]+)"}}},
        "goal": {"metric": "score", "direction": "minimize"},
        "space": {"knobs": {"x": {"range": [0, 3], "default": 3}}},
        "budget": {"trials": 4},
        "finals": {"rounds": 0},
    }
    found = autoscout.tune(campaign, tmp_path)
    assert found.best == autoscout.Config(x=0)
    assert found.folder is not None
    assert found.folder.journal.exists()
    assert found.folder.page.exists()
    assert (found.folder.best / "run.sh").exists()
    with pytest.raises(ConfigError, match="unknown key"):
        autoscout.tune({"system": "command", "bugdet": {}}, tmp_path)


def test_public_names_are_importable_and_listed() -> None:
    for name in autoscout.__all__:
        assert getattr(autoscout, name) is not None
    assert set(dir(autoscout)) == set(autoscout.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        autoscout.nonsense  # noqa: B018


def test_importing_autoscout_pulls_in_nothing_heavy() -> None:
    code = "import sys, autoscout; print([m for m in ('numpy','pydantic','sqlalchemy','typer','rich','yaml') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"

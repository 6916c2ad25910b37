"""The verdict against what the user runs today, on functions whose truth is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import autoscout
from autoscout.analysis.verdict import Verdict
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.core.seeds import stream
from autoscout.core.task import Direction, Guard, Objective
from autoscout.study.final import Finals
from autoscout.study.outcome import Outcome

NOISE = 0.01
SPACE = {"x": range(8), "inert": range(3)}
SPEEDS = [100, 110, 120, 130, 145, 125, 115, 90]
"""By `x`: the engine's default is 0, the best is 4."""

Speed = Callable[[Config], float]


def noisy(speed: Speed, p95: Speed = lambda _: 1.0) -> Callable[[Config], dict[str, float]]:
    """The function with 1 % noise, the same in every run of a test."""
    rng = stream(7, "noise")
    return lambda config: {
        "speed": speed(config) * float(rng.lognormal(0.0, NOISE)),
        "p95": p95(config) * float(rng.lognormal(0.0, NOISE)),
    }


def study(
    function: Speed, baseline: dict[str, int] | None, folder: Path | None = None, p95: Speed = lambda _: 1.0, *limits: str
) -> Outcome:
    return autoscout.optimize(
        noisy(function, p95),
        SPACE,
        Objective(metric="speed", direction=Direction.MAXIMIZE),
        16,
        limits=limits,
        finals=Finals(finalists=2, rounds=5),
        baseline=baseline,
        folder=folder,
        seed=3,
    )


def by_x(config: Config) -> float:
    return SPEEDS[config.whole("x")]


def test_a_gain_over_both_is_stated_with_both_intervals(tmp_path: Path) -> None:
    outcome = study(by_x, {"x": 2}, tmp_path / "r")
    summary = outcome.summary
    assert summary.verdict is Verdict.GAIN
    assert outcome.best == Config(x=4, inert=0)
    assert summary.reference_name == "baseline"
    assert summary.over_default is not None
    assert summary.gain.low is not None
    assert summary.gain.ratio == pytest.approx(145 / 120, rel=0.04), "on a busy machine a disturbed call is repeated, with noise of its own"
    assert summary.over_default.low is not None
    assert summary.over_default.ratio == pytest.approx(145 / 100, rel=0.04)
    assert "over yours" in summary.headline
    assert "over the engine's default" in summary.headline


def test_the_files_say_it_against_both(tmp_path: Path) -> None:
    study(by_x, {"x": 2, "inert": 1}, tmp_path / "r")
    best = tmp_path / "r" / "best"
    readme, diff, page = (best / "README.md").read_text(), (best / "diff.txt").read_text(), (tmp_path / "r/report.html").read_text()
    assert "Knobs that differ from the baseline" in page
    for text in (readme, page):
        assert "over yours" in text
        assert "over the engine&#39;s default" in text or "over the engine's default" in text or "over the engine&#x27;s default" in text
    assert "From the baseline, which you run today:\nx  2 -> 4" in diff
    assert "From the default of the engine:" in diff
    facts = json.loads((tmp_path / "r/report.json").read_text())
    assert facts["against"] == "baseline"
    assert facts["gain_over_default"]["low"] > 1.0
    assert facts["baseline"]["config"] == {"x": 2, "inert": 1}
    assert "inert" not in [change["knob"] for change in facts["changes"]]  # the smallest change from what runs today


def test_what_is_better_than_the_default_alone_is_no_gain(tmp_path: Path) -> None:
    outcome = study(by_x, {"x": 4}, tmp_path / "r")
    summary = outcome.summary
    assert summary.verdict is Verdict.NO_GAIN
    assert summary.answer == outcome.setup.baseline == Config(x=4, inert=0)
    assert summary.baseline_gain is not None
    assert summary.baseline_gain.better
    assert summary.headline.startswith("No gain: keep yours")
    assert "handed_over" in (tmp_path / "r/best/gain.json").read_text()
    assert json.loads((tmp_path / "r/best/gain.json").read_text())["handed_over"] == "baseline"


def test_a_default_that_beats_the_baseline_is_the_answer() -> None:
    outcome = study(lambda config: 150.0 if config["x"] == 0 else by_x(config), {"x": 2})
    summary = outcome.summary
    assert summary.verdict is Verdict.GAIN
    assert summary.answer == outcome.setup.default
    assert "it is the engine's default: drop your settings" in summary.reason
    assert summary.over_default is None


def test_one_that_does_not_run_leaves_the_default_as_reference() -> None:
    def speed(config: Config) -> float:
        if config["x"] == 2:
            raise Infeasible("out of memory")
        return by_x(config)

    summary = study(speed, {"x": 2}).summary
    assert summary.verdict is Verdict.GAIN
    assert summary.reference_name == "default"
    assert "the baseline does not run, so everything is compared with the default" in summary.reason
    assert summary.gain.ratio == pytest.approx(1.45, rel=0.04), "on a busy machine a disturbed call is repeated, with noise of its own"


def test_where_the_default_alone_fails_the_baseline_is_the_reference() -> None:
    def speed(config: Config) -> float:
        if config["x"] == 0:
            raise Infeasible("out of memory")
        return by_x(config)

    summary = study(speed, {"x": 2}).summary
    assert summary.verdict is Verdict.GAIN
    assert summary.reference_name == "baseline"
    assert summary.over_default is None or summary.over_default.ratio is None
    assert summary.answer == Config(x=4, inert=0)


def test_one_that_breaks_a_limit_is_left_for_one_that_keeps_it() -> None:
    summary = study(by_x, {"x": 4}, None, lambda config: 0.5 + config.whole("x") / 5, "p95<=1.2").summary
    assert summary.verdict is Verdict.KEEPS
    assert summary.reason.startswith("the baseline breaks p95<=1.2")
    assert summary.answer is not None
    assert summary.answer["x"] == 3
    assert summary.newly_kept_limits


def test_guards_compare_with_the_baseline() -> None:
    objective = Objective(metric="speed", direction=Direction.MAXIMIZE, guards=(Guard.parse("p95<=1.1x"),))
    function = noisy(by_x, lambda config: 0.5 + config.whole("x") / 5)
    outcome = autoscout.optimize(function, SPACE, objective, 16, finals=Finals(finalists=2, rounds=5), baseline={"x": 2}, seed=3)
    assert outcome.summary.verdict is Verdict.NO_GAIN  # against the default even x=2 would break it
    assert outcome.summary.answer == Config(x=2, inert=0)


def test_without_a_baseline_nothing_is_said_of_one() -> None:
    outcome = autoscout.maximize(by_x, {"x": [0, 4, 5]}, 3)
    assert "yours" not in outcome.summary.headline
    assert outcome.summary.to_json()["against"] == "default"

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from autoscout.analysis.screen import Screen
from autoscout.core.config import Config
from autoscout.core.origin import Origin, Phase
from autoscout.core.trial import Measurement, Proposal, Status, Trial

DEFAULT = Config(a=0, b=0, c=0, d=0)
SIZES = {"a": 0.30, "b": 0.05, "c": 0.0, "d": -0.02}
ROWS = ("abcd", "abc", "abd", "acd", "bcd", "ab", "ac", "ad", "bc", "bd", "a", "b")


def config(changed: str) -> Config:
    return DEFAULT.without(*changed).extend(dict.fromkeys(changed, 1))


def seconds(changed: str) -> float:
    return 10.0 * math.exp(-sum(SIZES[knob] for knob in changed))


def pairs(noise: float = 0.0, drift: float = 0.0, seed: int = 0, **replaced: float | None) -> list[Trial]:
    """One with some changes and one with the others; `r3=20.0` replaces the first answer of round 3, None makes it fail."""
    rng, trials = np.random.default_rng(seed), []
    for number, changed in enumerate(ROWS, start=1):
        rest = "".join(knob for knob in "abcd" if knob not in changed)
        for side, knobs in enumerate((changed, rest)):
            value: float | None = seconds(knobs) * math.exp(drift * number + noise * rng.normal())
            value = replaced.get(f"r{number}", value) if side == 0 else value
            metrics: Mapping[str, float] = {} if value is None else {"time_s": value, "score": 5.0 - value}
            measurement = Measurement(status=Status.CRASHED if value is None else Status.OK, metrics=metrics)
            origin = Origin(phase=Phase.SIMPLIFY, round=number, contenders=("x",))
            trials.append(Trial(proposal=Proposal(config=config(knobs), origin=origin, repeat=number), measurement=measurement))
    return trials


def steps(trials: list[Trial], metric: str = "time_s") -> dict[str, float]:
    screen = Screen.of(trials, DEFAULT)
    effects = screen.effects(metric)
    assert effects is not None
    columns = {knob: screen.column(knob, config("abcd")) for knob in "abcd"}
    return {knob: float(effects.steps[column]) for knob, column in columns.items() if column is not None}


def test_every_change_is_told_apart_whatever_drifts() -> None:
    for drift in (0.0, 0.1):
        assert steps(pairs(drift=drift)) == pytest.approx({knob: -size for knob, size in SIZES.items()}, abs=1e-9)


def test_one_pair_that_lies_far_off_weighs_little() -> None:
    quiet, disturbed = (steps(pairs(noise=0.01, **replaced)) for replaced in ({}, {"r4": 40.0}))
    assert disturbed == pytest.approx(quiet, abs=0.03)


def test_a_failed_trial_takes_its_pair_along() -> None:
    assert steps(pairs(r1=None, r5=None)) == pytest.approx({knob: -size for knob, size in SIZES.items()}, abs=1e-9)
    assert Screen.of(pairs(**{f"r{number}": None for number in range(1, 6)}), DEFAULT).effects("time_s") is None, (
        "seven pairs, four changes"
    )


def test_values_that_are_not_positive_are_compared_by_differences() -> None:
    screen = Screen.of(pairs(r1=6.0), DEFAULT)
    effects = screen.effects("score")
    assert effects is not None
    assert not effects.is_log
    gains = {knob: effects.gain(screen.column(knob, config("abcd")) or 0, 1.0).ratio for knob in "ab"}
    assert (gains["a"] or 0.0) > (gains["b"] or 0.0) > 1.0


def test_intervals_hold_the_truth() -> None:
    inside = total = 0
    for seed in range(150):
        screen = Screen.of(pairs(noise=0.03, seed=seed), DEFAULT)
        effects = screen.effects("time_s")
        assert effects is not None
        for knob, size in SIZES.items():
            gain = effects.gain(screen.column(knob, config("abcd")) or 0, -1.0)
            assert gain.low is not None
            assert gain.high is not None
            inside, total = inside + (gain.low <= math.exp(size) <= gain.high), total + 1
    assert 0.92 <= inside / total <= 0.98


def test_changes_that_always_come_together_are_not_told_apart() -> None:
    trials = [trial for trial in pairs() if ("a" in changes(trial)) == ("b" in changes(trial))]
    screen = Screen.of(trials, DEFAULT)
    assert screen.together("a", config("abcd")) == ("a", "b")
    assert screen.together("c", config("abcd")) == ("c",)
    assert screen.column("a", Config({**DEFAULT, "a": 2})) is None, "another value of the knob"


def changes(trial: Trial) -> set[str]:
    return {knob for knob in "abcd" if trial.config[knob] != 0}

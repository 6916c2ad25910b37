"""Ranges of any length: no value of a long one is ever listed."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from autoscout import api
from autoscout.core.config import Config
from autoscout.space import Choice, Grid, Space, encode
from autoscout.space.encode import Encoder
from autoscout.space.neighbours import options

WIDE = Space([Grid("x", 1, 10**9), Grid("share", 0.0, 10**6, step=0.001), Choice("mode", ["a", "b", "c"])])

LONG = Space([Grid("x", 1, 10**7), Grid("share", 0.0, 10**4, step=0.001)])
"""Listed, it would take ten times the memory that a search may, and harm nobody who runs these tests."""


@pytest.mark.parametrize(
    "knob",
    [
        Grid("x", 1, 900),
        Grid("x", 3, 5000, step=7),
        Grid("x", -50, 900),
        Grid("x", 0, 700),
        Grid("x", 500, 900),
        Grid("x", 64, 6400, step=64),
        Grid("x", 0.5, 90.0, step=0.25),
        Grid("x", 1, 900, step=1, log=True),
    ],
    ids=repr,
)
def test_columns_of_a_long_range_are_those_of_a_listed_one(knob: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    space = Space([knob])
    configs = [Config(x=value) for value in knob.values]
    listed = Encoder(space).rows(configs)
    monkeypatch.setattr(encode, "MAX_LISTED_VALUES", 5)
    computed = Encoder(space).rows(configs)
    np.testing.assert_allclose(computed.plain, listed.plain, atol=1e-12)
    np.testing.assert_allclose(computed.effects, listed.effects, atol=1e-12)


@pytest.mark.parametrize("searcher", ["random", "hybrid", "evolution", "coordinate"])
def test_a_search_over_a_long_range_needs_little_memory(searcher: str) -> None:
    tracemalloc.start()
    outcome = api.minimize(lambda config: abs(config["x"] - 4 * 10**6) + config["share"], LONG, trials=12, searcher=searcher)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(outcome.trials) == 12
    assert peak < 60e6


def test_moves_within_a_long_range_are_near_and_far() -> None:
    config = Config(x=5 * 10**8, share=1.0, mode="a")
    values = [other["x"] for other in WIDE.neighbours(config) if other["x"] != config["x"]]
    assert {value - 5 * 10**8 for value in values} >= {-1, 1, -4, 4, -(4**10), 4**10}
    assert len(values) < 60
    assert len(options(WIDE, config, "x", Config())) < 60


def test_moves_within_a_short_range_are_single_steps() -> None:
    space = Space([Grid("x", 1, 1000)])
    assert space.neighbours(Config(x=500)) == [Config(x=499), Config(x=501)]


def test_a_python_range_is_not_listed() -> None:
    space = api.simple_space({"x": range(10**9, 0, -7), "one": range(4, 5)})
    assert space.default() == Config(x=10**9, one=4)
    assert space.knobs["x"].position(10**9 - 7) is not None
    assert space.knobs["x"].position(10**9 - 1) is None

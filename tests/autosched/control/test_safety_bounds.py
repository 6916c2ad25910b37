"""What an operator allows: ranges, steps, quiet hours, changes a day."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from autosched.control.bounds import Bounds
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.space import Choice, Flag, Grid, Space

SPACE = Space([Grid("weight", values=[0, 1, 10, 100, 1000], default=10), Flag("small", when="weight > 0"), Choice("rule", ["a", "b", "c"])])
NOW = Config(weight=50, small=False, rule="a")


def at_s(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_what_is_in_force_is_the_default_even_between_the_values() -> None:
    space = Bounds().narrowed(SPACE, NOW)
    assert space.default() == NOW
    assert list(space.knobs["weight"].values) == [0, 1, 10, 50, 100, 1000]


def test_ranges_steps_and_frozen_knobs_narrow() -> None:
    space = Bounds(ranges={"weight": [1, 100], "rule": ["a", "c"]}, most_steps=1, frozen=["small"]).narrowed(SPACE, NOW)
    assert list(space.knobs["weight"].values) == [10, 50, 100]
    assert list(space.knobs["rule"].values) == ["a", "c"]
    assert list(space.knobs["small"].values) == [False]


def test_a_value_in_force_outside_its_range_stays_possible() -> None:
    space = Bounds(ranges={"weight": [0, 10]}).narrowed(SPACE, NOW)
    assert list(space.knobs["weight"].values) == [0, 1, 10, 50]


def test_changes_outside_are_named() -> None:
    bounds = Bounds(ranges={"weight": [0, 100]}, most_steps=1)
    assert not bounds.outside(SPACE, NOW, NOW.extend(weight=100))
    assert not bounds.outside(SPACE, NOW, NOW.extend(weight=77)), "between the listed values"
    faults = bounds.outside(SPACE, NOW, NOW.extend(weight=1000, rule="b"))
    assert [fault.field for fault in faults] == ["weight"]


@pytest.mark.parametrize(
    ("moment", "quiet"),
    [
        ("2024-05-01T21:59", False),
        ("2024-05-01T22:00", True),
        ("2024-05-02T05:59", True),
        ("2024-05-02T06:00", False),
        ("2024-05-02T12:15", True),
    ],
)
def test_quiet_hours_may_pass_midnight(moment: str, quiet: bool) -> None:
    bounds = Bounds(quiet=["22:00-06:00", "12:00-13:00"])
    assert bool(bounds.quiet_at(at_s(moment))) is quiet


def test_quiet_hours_are_local() -> None:
    bounds = Bounds(quiet=["08:00-09:00"], zone="Asia/Singapore")
    assert bounds.quiet_at(at_s("2024-05-01T00:30"))
    assert not bounds.quiet_at(at_s("2024-05-01T08:30"))


def test_changes_a_day() -> None:
    bounds = Bounds(changes_per_day=2)
    assert not bounds.is_used_up([0.0], 100.0)
    assert bounds.is_used_up([0.0, 50.0], 100.0)
    assert not bounds.is_used_up([0.0, 50.0], 86_400.0 + 10.0)
    assert Bounds(changes_per_day=0).is_used_up([], 0.0)


def test_all_faults_at_once() -> None:
    bounds = Bounds(ranges={"wieght": [0, 1], "weight": [5, 6]}, frozen=["none"], quiet=["late"], zone="Mars/Base")
    with pytest.raises(ConfigError) as caught:
        bounds.check(SPACE)
    assert len(caught.value.faults) == 5


def test_a_range_means_what_it_says_between_the_listed_values() -> None:
    bounds = Bounds(ranges={"weight": [0, 500]})
    assert not bounds.outside(SPACE, NOW, NOW.extend(weight=400)), "100 is the last listed value in the range"
    assert not bounds.outside(SPACE, NOW, NOW.extend(weight=500))
    assert bounds.outside(SPACE, NOW, NOW.extend(weight=501))
    low = Bounds(ranges={"weight": [5, 5000]})
    assert not low.outside(SPACE, NOW, NOW.extend(weight=7)), "10 is the first one"
    assert not low.outside(SPACE, NOW, NOW.extend(weight=4000)), "1000 is the last one at all"
    assert low.outside(SPACE, NOW, NOW.extend(weight=4))


def test_a_value_in_force_outside_its_range_allows_none_between() -> None:
    bounds = Bounds(ranges={"weight": [0, 10]})
    assert bounds.outside(SPACE, NOW, NOW.extend(weight=30))
    assert not bounds.outside(SPACE, NOW, NOW.extend(rule="b")), "what stays is not asked about"


def test_a_range_and_steps_hold_together() -> None:
    bounds = Bounds(ranges={"weight": [0, 77]}, most_steps=1)
    assert not bounds.outside(SPACE, NOW, NOW.extend(weight=77)), "the next listed value, 100, is further away"
    assert bounds.outside(SPACE, NOW.extend(weight=1), NOW.extend(weight=50)), "10 is one step away"
    assert not bounds.outside(SPACE, NOW.extend(weight=1), NOW.extend(weight=9))
    assert bounds.outside(SPACE, NOW, NOW.extend(weight=9)), "10 is one step down"
    frozen = Bounds(frozen=["rule"]).outside(SPACE, NOW, NOW.extend(rule="b"))
    assert [fault.field for fault in frozen] == ["rule"]

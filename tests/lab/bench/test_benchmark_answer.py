"""`benchmarks.answer`: the truth of its functions, and what it counts."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoscout.analysis.verdict import Verdict

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks import answer  # noqa: E402
from benchmarks._answer_families import DEVELOPMENT, REPORTED, Disturbance, Family  # noqa: E402

FAMILY = Family(
    name="toy",
    text="one effect",
    base={"time_s": 10.0, "memory_gib": 8.0},
    effects={"time_s": {"a": (1.0, 0.5, 0.4), "b": (1.0, 0.9)}, "memory_gib": {"a": (1.0, 1.0, 2.0)}},
    gates={"b": ("a", 1)},
    inert=(3,),
    limits=("memory_gib<=10",),
    disturbance=Disturbance(share=0.02),
    trials=12,
)


def test_the_truth_of_a_family() -> None:
    assert FAMILY.levels == {"a": 3, "b": 2, "idle_0": 3}
    assert FAMILY.truth({"a": 0, "b": 1, "idle_0": 2}) == {"time_s": 10.0, "memory_gib": 8.0}, "b does nothing alone"
    assert FAMILY.best() == {"a": 1, "b": 1, "idle_0": 0}, "a=2 breaks the limit"
    assert FAMILY.gain({"a": 1, "b": 1, "idle_0": 1}, {"a": 0, "b": 0, "idle_0": 0}) == pytest.approx(1 / 0.45)


def test_families_kept_aside_are_other_ones() -> None:
    names = [family.name for family in (*DEVELOPMENT, *REPORTED)]
    assert len(set(names)) == len(names)
    assert all(family.reported for family in REPORTED)
    assert not any(family.reported for family in DEVELOPMENT)
    for family in (*DEVELOPMENT, *REPORTED):
        assert family.best() is not None
        assert not any(other.effects == family.effects for other in (*DEVELOPMENT, *REPORTED) if other is not family)


def test_a_study_is_held_against_the_truth() -> None:
    found = answer.row(FAMILY, answer.tuned(FAMILY, 4))
    assert (found.verdict, found.is_false_gain, found.is_false_none, found.inert) == (Verdict.GAIN, False, False, 0)
    assert found.share > 0.8
    assert found.holds
    assert found.extra > 10
    result = answer.figures(FAMILY, [found, replace(found, is_false_gain=True, share=0.5)])
    assert (result["false_gains"]["count"], result["false_gains"]["of"]) == (1, 2)
    assert result["median_share_of_best"] == pytest.approx((found.share + 0.5) / 2)
    assert "| toy | 2% | 50% [9%, 91%] |" in answer.page([result])


def test_shares_have_intervals() -> None:
    none = answer.share_of([0] * 100, bool)
    assert (none["share"], none["low"]) == (0.0, 0.0)
    assert none["high"] == pytest.approx(0.037, abs=0.001)
    assert answer.share_of([], bool)["share"] is None

"""Readable names of configurations."""

from __future__ import annotations

from autoscout.core.config import Config
from autoscout.report.labels import namer
from autoscout.space import Choice


def test_knobs_with_one_value_are_not_named_unless_a_trial_had_another() -> None:
    knobs = [Choice("tp", [1, 2]), Choice("pp", [1])]
    name_of = namer([Config(tp=1, pp=1)], knobs)
    assert name_of(Config(tp=2, pp=1)) == "tp2"
    assert name_of(Config(tp=2, pp=4)) == "tp2_pp4"
    assert namer([], [Choice("pp", [1])])(Config(pp=1)) == "pp1", "something has to be said"

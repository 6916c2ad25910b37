"""Knobs that become other fields of a scheduler."""

from __future__ import annotations

from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autoscout.core.config import Config

SPACE = Tiresias.space(Cluster.parse("8x8"))


def test_thresholds_follow_the_number_of_queues() -> None:
    assert "threshold" not in SPACE.undecided(Config(queues=1))
    config = SPACE.project(SPACE.default(), Config(queues=4, threshold=240.0, ratio_3=2.0, ratio_4=8.0))
    assert Tiresias.of(config).thresholds == (240.0, 480.0, 3_840.0)


def test_one_starvation_rule_at_a_time() -> None:
    limited = Tiresias.of(SPACE.project(SPACE.default(), Config(starvation="limit")))
    assert limited.starve_limit_s == 86_400
    assert limited.promote == 0

"""Knobs that become other fields of a scheduler."""

from __future__ import annotations

from autosched.kernel.attained import THRESHOLDS
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.trace import Trace
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


def test_params_are_the_settings_then_thresholds_and_past_services() -> None:
    scheduler = Tiresias(priority="gittins", queues=3, thresholds=(100.0, 400.0), history=(7.0, 2.0, 5.0))
    params = scheduler.plan(Trace.of([0.0], [10.0], [1.0]), Cluster.parse("1x8")).params
    head = [1.0, 3.0, scheduler.starve_limit_s, scheduler.promote, 1.0, scheduler.quantum, float(THRESHOLDS + 2)]
    assert params.tolist() == [*head, 100.0, 400.0, 3.0, 2.0, 5.0, 7.0, 0.0, 2.0, 7.0, 14.0]
    plain = Tiresias(thresholds=(100.0,)).plan(Trace.of([0.0], [10.0], [1.0]), Cluster.parse("1x8")).params
    assert plain.tolist()[5:] == [scheduler.quantum, 0.0, 100.0]

from __future__ import annotations

import numpy as np
import pytest
from test_ensemble import CONFIGS, TASK, Formula

from autoscout.core.clock import VirtualClock
from autoscout.core.errors import ConfigError
from autoscout.core.trial import Fidelity, Proposal, Status
from autoscout.evaluate.virtual import VirtualEvaluator, VirtualOptions

PROPOSALS = [Proposal(config=config) for config in CONFIGS]


def test_it_says_that_it_is_virtual() -> None:
    answers = VirtualEvaluator(Formula(lambda x: x), TASK).evaluate(PROPOSALS)
    assert all(answer.fidelity is Fidelity.SIMULATED and answer.conditions["virtual"] == 1.0 for answer in answers)


def test_time_passes_on_the_clock_it_is_given() -> None:
    clock = VirtualClock()
    options = VirtualOptions(surprise=0.0, noise=0.0, start_s=100.0, steps=10)
    answers = VirtualEvaluator(Formula(lambda x: x), TASK, options, clock).evaluate(PROPOSALS[:3])
    assert [answer.cost_s for answer in answers] == pytest.approx([110.0, 120.0, 130.0])
    assert clock.now_s() == pytest.approx(360.0)


def test_the_same_seed_is_the_same_cluster_and_repeats_differ_a_little() -> None:
    one, other = (VirtualEvaluator(Formula(lambda x: x), TASK, VirtualOptions(seed=3)) for _ in range(2))
    assert one.evaluate(PROPOSALS) == other.evaluate(PROPOSALS)
    again = one.evaluate([Proposal(config=config, repeat=1) for config in CONFIGS])
    first = one.evaluate(PROPOSALS)
    ratios = np.array([b.metrics["time_s"] / a.metrics["time_s"] for a, b in zip(first, again, strict=True)])
    assert 0.0 < np.std(ratios) < 0.1
    elsewhere = VirtualEvaluator(Formula(lambda x: x), TASK, VirtualOptions(seed=4)).evaluate(PROPOSALS)
    assert elsewhere != first


def test_what_does_not_fit_fails_every_time() -> None:
    cluster = VirtualEvaluator(Formula(lambda x: x, feasible=0.5), TASK)
    first, again = cluster.evaluate(PROPOSALS), cluster.evaluate([Proposal(config=config, repeat=1) for config in CONFIGS])
    kinds = [answer.status for answer in first]
    assert kinds == [answer.status for answer in again]
    assert {Status.OK, Status.OOM_START} == set(kinds)


def test_crashes_come_by_chance() -> None:
    cluster = VirtualEvaluator(Formula(lambda x: x), TASK, VirtualOptions(crash_rate=0.5))
    asked = [Proposal(config=CONFIGS[0], repeat=repeat) for repeat in range(60)]
    crashed = sum(answer.status is Status.CRASHED for answer in cluster.evaluate(asked))
    assert 15 < crashed < 45


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError) as caught:
        VirtualOptions(noise=-1, crash_rate=1.0, workers=0)
    assert len(caught.value.faults) == 3

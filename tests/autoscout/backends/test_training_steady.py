"""Steady state of training steps: what is dropped, and when enough was seen."""

from __future__ import annotations

import numpy as np
import pytest

from autoscout.training.steps import StepPlan, half_width, has_enough_steps, warm_up_steps

PLAN = StepPlan(warm_up=2, least=4, most=20, settled=0.02, enough_s=1000.0)


def test_slow_first_steps_are_dropped() -> None:
    assert warm_up_steps([30.0, 8.0, 3.0, 2.0, *[1.0] * 12], least=2) == 4
    assert warm_up_steps([1.0] * 10, least=2) == 2, "nothing to drop beyond what is always dropped"


def test_never_more_than_half_is_dropped() -> None:
    falling = list(np.linspace(10.0, 1.0, 20))
    assert warm_up_steps(falling, least=2) <= 10


def test_some_step_is_left() -> None:
    assert warm_up_steps([5.0, 1.0], least=2) == 1
    assert warm_up_steps([5.0], least=2) == 0
    assert warm_up_steps([], least=2) == 0


def test_the_mean_of_the_rest_is_that_of_the_steady_part() -> None:
    random = np.random.default_rng(3)
    for late in range(2, 8):
        taken = [*(5.0 + random.random(late)), *(1.0 + 0.01 * random.standard_normal(24))]
        rest = taken[warm_up_steps(taken, least=2) :]
        assert np.mean(rest) == pytest.approx(1.0, rel=0.02)


def test_settled_steps_are_enough_and_noisy_ones_are_not() -> None:
    assert has_enough_steps([9.0, 1.0, *[1.0] * 4], PLAN)
    assert not has_enough_steps([9.0, 1.0, 1.0, 3.0, 1.0, 3.0, 1.0, 3.0], PLAN)
    assert not has_enough_steps([9.0, 1.0, 1.0], PLAN), "too few to tell"


def test_measuring_ends_in_any_case() -> None:
    noisy = [9.0, 1.0, *[1.0, 3.0] * 10]
    assert has_enough_steps(noisy, PLAN), "as many steps as there may be"
    hurried = StepPlan(warm_up=2, least=4, most=20, settled=0.02, enough_s=5.0)
    assert has_enough_steps([9.0, 1.0, 1.0, 3.0, 1.0, 3.0], hurried)


def test_width_of_few_values_is_unknown() -> None:
    assert half_width([1.0, 1.0]) == float("inf")
    assert half_width([1.0, 1.0, 1.0]) == 0.0

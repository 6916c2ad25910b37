from __future__ import annotations

import math

import pytest

from autoscout.core.config import Config
from autoscout.evaluate.agreement import Check, Predicted, complete, cost_slope, error_of, pairs_of, scale_of


def check(predicted: float | None, measured: float | None) -> Check:
    return Check(config=Config(x=1), predicted=predicted, measured=measured)


def test_the_cost_of_a_profile_grows_with_its_loss_as_measured() -> None:
    assert cost_slope([(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)]) == pytest.approx(1.0)
    assert cost_slope([(1.0, 10.0), (2.0, 10.0), (4.0, 10.0)]) == 0.0, "of a fixed length"
    assert cost_slope([(1.0, 10.0), (4.0, 20.0)]) == pytest.approx(0.5), "half of it is start-up"
    assert cost_slope([(-1.0, 40.0), (-4.0, 10.0)]) == 0.0, "faster is never taken for more expensive"
    assert cost_slope([(1.0, 0.0)]) == 0.0


def test_a_constant_factor_is_no_error() -> None:
    checks = [check(1.0, 3.0), check(2.0, 6.0), check(None, 5.0), check(4.0, None)]
    assert scale_of(checks) == pytest.approx(3.0)
    assert complete(checks) == [(1.0, 3.0), (2.0, 6.0)]
    assert error_of(complete(checks)) == pytest.approx(0.0)
    assert scale_of([]) == 1.0
    assert error_of([(1.0, 3.0)]) == 0.0


def test_the_error_is_that_around_the_median() -> None:
    assert error_of([(1.0, 1.0), (1.0, 0.8), (1.0, 1.25)]) == pytest.approx((0.25 + 0.2) / 2)
    assert error_of([(-1.0, -1.0), (-1.0, -0.8), (-1.0, -1.25)]) == pytest.approx((0.25 + 0.2) / 2)  # maximised


def test_only_pairs_that_differ_in_both_are_counted() -> None:
    assert pairs_of([(1.0, 1.0), (2.0, 2.0), (3.0, 1.5)], 0.1) == [True, True, False]
    assert pairs_of([(1.0, 1.0), (1.05, 2.0)], 0.1) == []
    assert pairs_of([(1.0, 1.0), (2.0, 1.05)], 0.1) == []


def test_expected_improvement_grows_with_lead_and_chance_and_shrinks_to_nothing() -> None:
    ahead, level, behind = (Predicted(loss=loss, chance=1.0, runs=True) for loss in (0.8, 1.0, 1.4))
    gains = [one.improvement(1.0, 1.0, 0.1) for one in (ahead, level, behind)]
    assert gains[0] == pytest.approx(0.2, abs=0.01)
    assert gains[0] > gains[1] > gains[2] >= 0.0
    assert level.improvement(1.0, 1.0, 0.1) == pytest.approx(0.1 / math.sqrt(2 * math.pi))
    assert Predicted(loss=0.8, chance=0.25, runs=False).improvement(1.0, 1.0, 0.1) == pytest.approx(gains[0] / 4)
    assert Predicted(loss=math.inf, chance=1.0, runs=False).improvement(1.0, 1.0, 0.1) == 0.0
    assert ahead.improvement(math.inf, 1.0, 0.1) == 0.0  # nothing to compare with
    assert Predicted(loss=-12.0, chance=1.0, runs=True).improvement(-10.0, 1.0, 0.01) == pytest.approx(0.2)  # maximised


def test_the_chance_to_win() -> None:
    assert Predicted(loss=1.0, chance=0.5, runs=True).chance_to_win(1.0, 1.0, 0.1) == pytest.approx(0.25)
    assert Predicted(loss=0.5, chance=1.0, runs=True).chance_to_win(1.0, 2.0, 0.1) == pytest.approx(0.5)  # scaled to 1
    assert Predicted(loss=math.inf, chance=1.0, runs=False).chance_to_win(1.0, 1.0, 0.1) == 0.0

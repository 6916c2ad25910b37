from __future__ import annotations

import math

import pytest

from autoscout.core.config import Config
from autoscout.evaluate.agreement import Check, Foretold, complete, error_of, pairs_of, scale_of


def check(predicted: float | None, measured: float | None) -> Check:
    return Check(config=Config(x=1), predicted=predicted, measured=measured)


def test_a_constant_factor_is_no_error() -> None:
    checks = [check(1.0, 3.0), check(2.0, 6.0), check(None, 5.0), check(4.0, None)]
    assert scale_of(checks) == pytest.approx(3.0)
    assert complete(checks) == [(1.0, 3.0), (2.0, 6.0)]
    assert error_of(complete(checks)) == pytest.approx(0.0)
    assert scale_of([]) == 1.0
    assert error_of([(1.0, 3.0)]) == 0.0


def test_the_error_is_that_beside_the_middle() -> None:
    assert error_of([(1.0, 1.0), (1.0, 0.8), (1.0, 1.25)]) == pytest.approx((0.25 + 0.2) / 2)
    assert error_of([(-1.0, -1.0), (-1.0, -0.8), (-1.0, -1.25)]) == pytest.approx((0.25 + 0.2) / 2)  # maximised


def test_only_pairs_that_differ_in_both_are_counted() -> None:
    assert pairs_of([(1.0, 1.0), (2.0, 2.0), (3.0, 1.5)], 0.1) == [True, True, False]
    assert pairs_of([(1.0, 1.0), (1.05, 2.0)], 0.1) == []
    assert pairs_of([(1.0, 1.0), (2.0, 1.05)], 0.1) == []


def test_promise_grows_with_lead_and_chance_and_shrinks_to_nothing() -> None:
    ahead, level, behind = (Foretold(loss=loss, chance=1.0, runs=True) for loss in (0.8, 1.0, 1.4))
    promises = [one.promise(1.0, 1.0, 0.1) for one in (ahead, level, behind)]
    assert promises[0] == pytest.approx(0.2, abs=0.01)
    assert promises[0] > promises[1] > promises[2] >= 0.0
    assert level.promise(1.0, 1.0, 0.1) == pytest.approx(0.1 / math.sqrt(2 * math.pi))
    assert Foretold(loss=0.8, chance=0.25, runs=False).promise(1.0, 1.0, 0.1) == pytest.approx(promises[0] / 4)
    assert Foretold(loss=math.inf, chance=1.0, runs=False).promise(1.0, 1.0, 0.1) == 0.0
    assert ahead.promise(math.inf, 1.0, 0.1) == 0.0  # nothing to compare with
    assert Foretold(loss=-12.0, chance=1.0, runs=True).promise(-10.0, 1.0, 0.01) == pytest.approx(0.2)  # maximised


def test_hope_is_the_chance_to_win() -> None:
    assert Foretold(loss=1.0, chance=0.5, runs=True).hope(1.0, 1.0, 0.1) == pytest.approx(0.25)
    assert Foretold(loss=0.5, chance=1.0, runs=True).hope(1.0, 2.0, 0.1) == pytest.approx(0.5)  # scaled to 1
    assert Foretold(loss=math.inf, chance=1.0, runs=False).hope(1.0, 1.0, 0.1) == 0.0

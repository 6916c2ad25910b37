"""The interval of a predicted gain, and the futures it rests on in words."""

from __future__ import annotations

import math

import pytest

from autosched.control.decide import MODEL_ERROR, interval
from autosched.tune.tuner import in_one


def test_the_spread_of_futures_alone() -> None:
    low, high = interval((1.0, 1.1, 1.21), error=0.0)
    reach = 2.919986 * math.log(1.1) * math.sqrt(4 / 3)  # Student's t with two degrees of freedom, one more draw
    assert (math.log(low), math.log(high)) == pytest.approx((math.log(1.1) - reach, math.log(1.1) + reach), rel=1e-5)


def test_futures_that_agree_leave_the_error_of_the_model() -> None:
    low, high = interval((1.2,) * 6)
    assert math.log(high / 1.2) == pytest.approx(2.015048 * MODEL_ERROR * math.log(1.2), rel=1e-5)
    assert low * high == pytest.approx(1.2**2)
    wide = interval((1.1, 1.2, 1.3, 1.2, 1.1, 1.3))
    assert wide[1] / wide[0] > high / low


def test_settings_that_stay_gain_nothing_for_certain() -> None:
    assert interval((1.0,)) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["9 jobs, replayed from 1.0 h ago", "9 jobs, replayed from 24.0 h ago"] * 2, "9 jobs, replayed from 1.0, 24.0 h ago"),
        (["9 jobs, replayed from 1.0 h ago", "9 jobs, no arrivals"], "9 jobs, replayed from 1.0 h ago; no arrivals"),
        (["a b", "c d"], "a b; c d"),
        (["the same"] * 3, "the same"),
        ([], ""),
    ],
)
def test_what_futures_have_in_common_is_said_once(words: list[str], said: str) -> None:
    assert in_one(words) == said

"""Scores against values worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autoscout.common.stats import (
    expected_improvement,
    folds,
    grouped,
    kendall,
    mape,
    normal_cdf,
    standard_error,
    student_quantile,
    variation,
)


def test_mape_is_a_share() -> None:
    assert mape(np.array([1.1, 1.8]), np.array([1.0, 2.0])) == pytest.approx(0.1)


def test_perfect_and_reversed_order() -> None:
    one = np.array([1.0, 2.0, 3.0, 4.0])
    assert kendall(one, -one) == pytest.approx(-1.0)
    assert kendall(one, np.ones(4)) == 0.0


def test_kendall_counts_pairs() -> None:
    # of six pairs one is out of order
    assert kendall(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 4.0, 3.0])) == pytest.approx(4 / 6)


def test_no_group_is_on_both_sides_of_a_fold() -> None:
    groups = ["a", "b", "a", "c", "d", "b"]
    masks = folds(groups, 3)
    assert sum(mask.astype(int) for mask in masks).tolist() == [1] * 6
    for mask in masks:
        inside = {group for group, held in zip(groups, mask, strict=True) if held}
        outside = {group for group, held in zip(groups, mask, strict=True) if not held}
        assert not inside & outside
    assert [rows.tolist() for rows in grouped(groups)] == [[0, 2], [1, 5], [3], [4]]


# Tables of Student's t, two-sided 95 % and 99 %, as printed in any textbook.
TEXTBOOK = [
    (0.975, 1, 12.706),
    (0.975, 2, 4.303),
    (0.975, 4, 2.776),
    (0.975, 9, 2.262),
    (0.975, 30, 2.042),
    (0.975, 120, 1.980),
    (0.995, 1, 63.657),
    (0.995, 4, 4.604),
    (0.995, 10, 3.169),
    (0.9, 5, 1.476),
]


@pytest.mark.parametrize(("probability", "freedom", "expected"), TEXTBOOK)
def test_quantiles_are_those_of_the_tables(probability: float, freedom: int, expected: float) -> None:
    assert student_quantile(probability, freedom) == pytest.approx(expected, abs=5e-4)
    assert student_quantile(1 - probability, freedom) == pytest.approx(-expected, abs=5e-4)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert student_quantile(0.975, 10**6) == pytest.approx(1.959964, abs=1e-5)


def test_quantiles_refuse_nonsense() -> None:
    for probability, freedom in ((0.0, 3), (1.0, 3), (0.5, 0)):
        with pytest.raises(ValueError, match="quantile"):
            student_quantile(probability, freedom)


def test_small_helpers() -> None:
    assert variation([10.0]) is None
    assert variation([0.0, 0.0]) is None
    assert variation([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)
    assert standard_error([1.0]) == math.inf


def test_expected_improvement_by_hand() -> None:
    gains = expected_improvement(np.array([0.0, -1.0, 3.0]), np.array([1.0, 1e-6, 1e-6]), 0.0)
    assert gains[0] == pytest.approx(1.0 / math.sqrt(2.0 * math.pi))  # level with the best: the density at zero
    assert gains[1] == pytest.approx(1.0)  # surely one better
    assert gains[2] == pytest.approx(0.0, abs=1e-50)


def test_where_no_improvement_is_expected_the_better_mean_still_decides() -> None:
    near, far = expected_improvement(np.array([50.0, 60.0]), np.array([0.1, 0.1]), 0.0)
    assert near > far > 0.0


def test_normal_distribution_is_that_of_the_tables() -> None:
    assert normal_cdf(np.array([-1.959964, 0.0, 1.0])) == pytest.approx([0.025, 0.5, 0.841345], abs=1e-6)

from __future__ import annotations

import math

import numpy as np
import pytest

from autoscout.report.statistics import mean_interval, paired_gain, standard_error, student_distribution, student_quantile, variation

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


def test_one_degree_of_freedom_is_the_cauchy_distribution() -> None:
    for value in (-30.0, -1.0, 0.0, 0.3, 5.0, 1e6):
        assert student_distribution(value, 1) == pytest.approx(0.5 + math.atan(value) / math.pi, abs=1e-12)


def test_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert student_quantile(0.975, 10**6) == pytest.approx(1.959964, abs=1e-5)


def test_quantiles_refuse_nonsense() -> None:
    for probability, freedom in ((0.0, 3), (1.0, 3), (0.5, 0)):
        with pytest.raises(ValueError, match="quantile"):
            student_quantile(probability, freedom)


def test_interval_worked_by_hand() -> None:
    # Log ratios 0.1, 0.2, 0.3: mean 0.2, standard deviation 0.1, standard error 0.1 / sqrt 3, t(2) = 4.3027.
    baseline = [100.0, 100.0, 100.0]
    value = [100.0 * math.exp(step) for step in (0.1, 0.2, 0.3)]
    gain = paired_gain(baseline, value, minimize=False)
    reach = 4.302653 * 0.1 / math.sqrt(3)
    assert gain.ratio == pytest.approx(math.exp(0.2))
    assert gain.low == pytest.approx(math.exp(0.2 - reach), rel=1e-6)
    assert gain.high == pytest.approx(math.exp(0.2 + reach), rel=1e-6)
    assert gain.pairs == 3
    assert not gain.better  # 0.2 < 0.248: three noisy pairs are not proof


def test_one_disturbed_round_widens_the_interval_but_does_not_move_the_estimate() -> None:
    quiet = paired_gain([10.0, 10.1, 9.9, 10.0, 10.0], [5.0, 5.0, 5.0, 5.05, 4.95], minimize=True)
    hit = paired_gain([10.0, 10.1, 9.9, 10.0, 60.0], [5.0, 5.0, 5.0, 5.05, 4.95], minimize=True)
    assert quiet.ratio == pytest.approx(2.0, rel=0.02)
    assert hit.ratio == pytest.approx(2.0, rel=0.02)
    assert hit.low is not None
    assert quiet.low is not None
    assert hit.low < 1.1 < quiet.low


def test_the_estimate_lies_inside_its_interval() -> None:
    steps = [0.0] * 8 + [5.0] * 9  # half the rounds say nothing, half say a lot: the median falls outside the t interval
    gain = paired_gain([1.0] * 17, [math.exp(step) for step in steps], minimize=False)
    assert gain.low is not None
    assert gain.ratio == gain.high


def test_direction_turns_the_ratio_round() -> None:
    slow, fast = [2.0, 2.2, 2.1], [1.0, 1.1, 1.04]
    less = paired_gain(slow, fast, minimize=True)
    more = paired_gain(slow, fast, minimize=False)
    assert less.ratio is not None
    assert more.ratio == pytest.approx(1 / less.ratio)
    assert less.better
    assert more.worse


def test_drift_that_hits_both_members_of_a_pair_cancels() -> None:
    drift = np.array([1.0, 3.0, 0.2, 7.0])
    gain = paired_gain(10 * drift, 12 * drift, minimize=False)
    assert gain.ratio == pytest.approx(1.2)
    assert gain.low == pytest.approx(1.2)
    assert gain.high == pytest.approx(1.2)
    assert gain.better


@pytest.mark.parametrize("pairs", [0, 1, 2])
def test_no_interval_below_three_pairs(pairs: int) -> None:
    gain = paired_gain([10.0, 11.0][:pairs], [20.0, 21.0][:pairs], minimize=False)
    assert not gain.enough
    assert not gain.better
    assert (gain.ratio is None) == (pairs == 0)
    if pairs:
        assert "not enough repeats" in str(gain)


def test_more_finalists_widen_the_interval_as_bonferroni_says() -> None:
    baseline, value = [10.0, 10.5, 9.8, 10.1], [11.0, 11.2, 10.9, 11.4]
    alone, third = paired_gain(baseline, value, minimize=False), paired_gain(baseline, value, minimize=False, compared=3)
    assert alone.low is not None
    assert alone.high is not None
    assert third.low is not None
    assert third.high is not None
    reach_alone, reach_third = math.log(alone.high / alone.low), math.log(third.high / third.low)
    assert reach_third / reach_alone == pytest.approx(student_quantile(1 - 0.025 / 3, 3) / student_quantile(0.975, 3))
    assert "3 finalists" in third.method


def test_values_that_are_not_positive_are_compared_by_differences() -> None:
    gain = paired_gain([-10.0, -10.0, -10.0], [-8.0, -8.5, -7.5], minimize=False)
    assert gain.ratio == pytest.approx(1.2)  # two better on a scale of ten
    assert gain.better
    assert "differences" in gain.method
    assert paired_gain([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], minimize=False).ratio is None


def test_lists_of_different_length_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="pairs"):
        paired_gain([1.0], [1.0, 2.0], minimize=True)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    truth, covered, runs = 1.1, 0, 2000
    for _ in range(runs):
        drift = np.exp(0.2 * rng.normal(size=4))
        one = 10 * drift * np.exp(0.03 * rng.normal(size=4))
        other = 10 * truth * drift * np.exp(0.03 * rng.normal(size=4))
        gain = paired_gain(one, other, minimize=False)
        assert gain.low is not None
        assert gain.high is not None
        covered += gain.low <= truth <= gain.high
    assert covered / runs == pytest.approx(0.95, abs=0.015)


def test_small_helpers() -> None:
    assert variation([10.0]) is None
    assert variation([0.0, 0.0]) is None
    assert variation([9.0, 11.0]) == pytest.approx(math.sqrt(2) / 10)
    assert standard_error([1.0]) == math.inf
    assert mean_interval([1.0, 2.0]) is None
    low, high = mean_interval([1.0, 2.0, 3.0]) or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(2.0)
    assert high - 2.0 == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)

from __future__ import annotations

import math

import numpy as np
import pytest

from autoscout.analysis.gain import paired_gain, pooled_noise
from autoscout.common.stats import student_quantile


def test_interval_worked_by_hand() -> None:
    # Log ratios 0.1, 0.2, 0.3: mean 0.2, standard deviation 0.1, standard error 0.1 / sqrt 3, t(2) = 4.3027.
    reference = [100.0, 100.0, 100.0]
    value = [100.0 * math.exp(step) for step in (0.1, 0.2, 0.3)]
    gain = paired_gain(reference, value, minimize=False)
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
    reference, value = [10.0, 10.5, 9.8, 10.1], [11.0, 11.2, 10.9, 11.4]
    alone, third = paired_gain(reference, value, minimize=False), paired_gain(reference, value, minimize=False, compared=3)
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


def test_noise_pooled_over_a_round_narrows_the_interval() -> None:
    rows = [[10.0, 11.0, 10.5], [20.0, 22.4, 20.6], [5.0, 5.4, 5.3], [7.0, 7.7, 7.35]]
    noise = pooled_noise(rows)
    assert noise is not None
    assert noise.freedom == 6
    alone = paired_gain(rows[0], rows[1], minimize=False)
    pooled = paired_gain(rows[0], rows[1], minimize=False, noise=noise)
    assert pooled.high - pooled.low < alone.high - alone.low
    assert "pooled" in pooled.method
    two = pooled_noise(rows[:2])
    same = paired_gain(rows[0], rows[1], minimize=False, noise=two)
    assert (same.low, same.high) == (pytest.approx(alone.low), pytest.approx(alone.high)), "of two alone it is the paired interval"


@pytest.mark.parametrize("rows", [[[1.0, 2.0]], [[1.0], [2.0]], [[1.0, 0.0], [1.0, 1.0]], []])
def test_no_noise_from_too_little(rows: list[list[float]]) -> None:
    assert pooled_noise(rows) is None

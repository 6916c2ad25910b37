from __future__ import annotations

import numpy as np
import pytest

from autosched.arrivals.counts import DISTANCES, Series, periodic
from autoscout.core.errors import ConfigError


def test_counts_are_of_whole_steps_that_end_now() -> None:
    series = Series.of(np.asarray([10.0, 299.0, 300.0, 650.0, 899.0]), 0.0, 900.0)
    assert series.counts.tolist() == [2.0, 1.0, 2.0]
    assert (series.start_s, series.end_s) == (0.0, 900.0)
    cut = Series.of(np.asarray([10.0, 299.0, 300.0, 650.0, 899.0]), 0.0, 800.0)
    assert (cut.start_s, cut.counts.tolist()) == (200.0, [2.0, 1.0])


def test_a_series_has_a_bound() -> None:
    with pytest.raises(ConfigError, match="steps"):
        Series.of(np.zeros(1), 0.0, 1e12)


def test_the_periodic_part_of_a_wave_is_the_wave() -> None:
    hours = np.arange(14 * 288)
    wave = 10 + 5 * np.sin(2 * np.pi * hours / 288)
    noise = np.random.default_rng(0).normal(0, 1, len(wave))
    found = periodic(wave + noise)
    assert np.abs(found - wave).max() < 0.3


def test_short_and_constant_series_keep_their_counts() -> None:
    assert periodic(np.asarray([3.0, 1.0])).tolist() == [3.0, 1.0]
    assert np.allclose(periodic(np.full(20, 4.0)), 4.0)


@pytest.mark.parametrize("metric", DISTANCES)
def test_a_stretch_is_nearest_to_itself(metric: str) -> None:
    windows = np.asarray([[1.0, 5.0, 2.0], [4.0, 4.0, 9.0], [9.0, 1.0, 1.0]])
    for number, row in enumerate(windows):
        assert int(np.argmin(DISTANCES[metric](windows, row))) == number


def test_distances_by_hand() -> None:
    windows, reference = np.asarray([[2.0, 0.0], [0.0, 0.0]]), np.asarray([1.0, 4.0])
    assert DISTANCES["manhattan"](windows, reference).tolist() == [5.0, 5.0]
    assert DISTANCES["euclidean"](windows, reference) == pytest.approx([np.sqrt(17), np.sqrt(17)])
    assert DISTANCES["relative"](windows, reference) == pytest.approx([1.0, 1.0])
    assert DISTANCES["cosine"](windows, reference) == pytest.approx([1 - 1 / np.sqrt(17), 1.0])

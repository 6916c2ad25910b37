"""Scores against values worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from autoscout.common.stats import folds, grouped, kendall, mape, ranks, regret, spearman


def test_mape_is_a_share() -> None:
    assert mape(np.array([1.1, 1.8]), np.array([1.0, 2.0])) == pytest.approx(0.1)


def test_ties_share_their_mean_rank() -> None:
    assert ranks(np.array([5.0, 1.0, 5.0])).tolist() == [1.5, 0.0, 1.5]


def test_perfect_and_reversed_order() -> None:
    one = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(one, one**2) == pytest.approx(1.0)
    assert kendall(one, -one) == pytest.approx(-1.0)
    assert kendall(one, np.ones(4)) == 0.0
    assert spearman(one, np.ones(4)) == 0.0


def test_kendall_counts_pairs() -> None:
    # of six pairs one is out of order
    assert kendall(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 2.0, 4.0, 3.0])) == pytest.approx(4 / 6)


def test_regret_of_first_and_of_three() -> None:
    predicted, measured = np.array([1.0, 2.0, 3.0, 4.0]), np.array([3.0, 2.5, 2.0, 1.0])
    assert regret(predicted, measured) == pytest.approx(2.0)
    assert regret(predicted, measured, top=3) == pytest.approx(1.0)
    assert regret(predicted, measured, top=4) == 0.0


def test_no_group_is_on_both_sides_of_a_fold() -> None:
    groups = ["a", "b", "a", "c", "d", "b"]
    masks = folds(groups, 3)
    assert sum(mask.astype(int) for mask in masks).tolist() == [1] * 6
    for mask in masks:
        inside = {group for group, held in zip(groups, mask, strict=True) if held}
        outside = {group for group, held in zip(groups, mask, strict=True) if not held}
        assert not inside & outside
    assert [rows.tolist() for rows in grouped(groups)] == [[0, 2], [1, 5], [3], [4]]

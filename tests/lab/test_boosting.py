"""Gradient-boosted trees: what their bins bound."""

from __future__ import annotations

import numpy as np
import pytest

from autoscout_lab.boosting import BoostedTrees, TreeOptions


@pytest.mark.parametrize("values", [3, 4, 5, 100])
def test_a_column_is_cut_into_at_most_as_many_parts_as_there_are_bins(values: int) -> None:
    inputs = np.arange(float(values))[:, None]
    target = np.random.default_rng(0).normal(size=values)
    trees = BoostedTrees(TreeOptions(bins=4, min_leaf=1)).fit(inputs, target)
    cuts = np.unique(trees._threshold[np.isfinite(trees._threshold)])
    assert len(cuts) == min(values, 4) - 1
    if values <= 4:
        assert cuts.tolist() == [place + 0.5 for place in range(values - 1)], "between the values where there are few"

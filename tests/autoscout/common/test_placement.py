"""Layers and micro-batches on GPUs of two kinds, by hand: eight fast ones and four slow ones."""

from __future__ import annotations

import numpy as np

from autoscout.catalog.placement import Placement, place, split
from autoscout.core.seeds import stream


def placed(
    *, tp: int = 1, pp: int = 1, dp: int = 1, inner: bool = False, share: float = 1.0, layers: int = 28, batches: int = 96
) -> Placement:
    layout = {"tp": tp, "pp": pp, "dp": dp, "cp": 1, "virtual_stages": 1, "stages_inner": float(inner)}
    return place(layout, np.array([8.0, 4.0]), np.array([1.0, share]), layers, batches)


def test_whole_parts_follow_the_weights() -> None:
    rng = stream(3, "split")
    for _ in range(300):
        weights = rng.uniform(0.01, 1.0, size=int(rng.integers(1, 14)))
        total = int(rng.integers(len(weights), 200))
        parts = split(total, weights)
        assert parts.sum() == total
        assert parts.min() >= 1
        assert np.all(parts == np.round(parts))
        exact = total * weights / weights.sum()
        if exact.min() >= 1:
            assert np.abs(parts - exact).max() < 1


def test_layers_go_to_stages_by_the_share_of_their_gpus() -> None:
    stages = placed(pp=3, dp=4, share=0.5)
    assert stages.kinds[:, 0].tolist() == [0, 0, 1]
    assert stages.layers.tolist() == [11, 11, 6]
    assert stages.micro_batches.tolist() == [24]
    assert stages.has_mixed_neighbours
    assert stages.together == np.inf


def test_micro_batches_go_to_replicas_by_the_share_of_their_gpus() -> None:
    replicas = placed(dp=12, share=0.5)
    assert replicas.kinds.tolist() == [[0, 1]]
    assert replicas.replicas.tolist() == [8, 4]
    assert replicas.micro_batches.tolist() == [10, 5]  # 9.6 and 4.8 on average
    assert replicas.together == 4
    assert not replicas.has_mixed_neighbours


def test_stages_next_to_each_other_keep_a_replica_on_one_kind() -> None:
    inner = placed(pp=2, dp=6, inner=True, share=0.25)
    assert inner.kinds.tolist() == [[0, 1], [0, 1]]
    assert inner.replicas.tolist() == [4, 2]
    assert inner.layers.tolist() == [14, 14]
    assert inner.micro_batches.tolist() == [22, 5]  # 21.3 and 5.3 on average
    assert not inner.has_mixed_neighbours


def test_a_stage_with_both_kinds_gets_what_their_mean_deserves() -> None:
    both = placed(pp=2, dp=6, share=0.5, layers=30)
    assert both.kinds.tolist() == [[0, 0], [0, 1]]
    assert both.replicas.tolist() == [2, 4]
    assert both.layers.tolist() == [18, 12]  # 1 and (2 + 4 x 0.5) / 6
    assert both.micro_batches.tolist() == [19, 15]  # paces min(1/18, 1/12) and min(1/18, 0.5/12): 19.2 and 14.4


def test_groups_of_two_kinds_are_not_whole() -> None:
    assert placed(tp=4, pp=3).whole
    assert not placed(tp=6, pp=2).whole

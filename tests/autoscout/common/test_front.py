from __future__ import annotations

import numpy as np
import pytest

from autoscout.common.front import chebyshev, choose, comparable, hypervolume, on_front

INF = float("inf")


def test_the_front_is_what_nothing_beats_in_every_goal() -> None:
    losses = np.array([[1.0, 9.0], [2.0, 2.0], [2.0, 2.0], [3.0, 2.0], [9.0, 1.0], [INF, INF]])
    assert on_front(losses).tolist() == [True, True, False, False, True, False]


def test_the_area_of_a_staircase() -> None:
    losses = np.array([[1.0, 3.0], [2.0, 1.0], [2.5, 2.5], [9.0, 0.0]])
    assert hypervolume(losses, np.array([4.0, 4.0])) == pytest.approx(3.0 * 1.0 + 2.0 * 2.0)
    assert hypervolume(losses[:0], np.array([4.0, 4.0])) == 0.0


@pytest.mark.parametrize("goals", [1, 2, 3, 4])
def test_the_volume_is_the_share_of_random_points_that_something_dominates(goals: int) -> None:
    rng = np.random.default_rng(goals)
    losses = rng.random((7, goals))
    drawn = rng.random((40_000, goals))
    covered = (losses[None, :, :] <= drawn[:, None, :]).all(axis=2).any(axis=1).mean()
    assert hypervolume(losses, np.ones(goals)) == pytest.approx(covered, abs=0.015)


def test_ratios_count_where_signs_allow() -> None:
    shares = comparable(np.array([[1.0, -1.0], [10.0, 0.0], [100.0, 1.0], [INF, INF]]))
    assert shares[:3, 0] == pytest.approx([0.0, 0.5, 1.0])
    assert shares[:3, 1] == pytest.approx([0.0, 0.5, 1.0])
    assert np.isinf(shares[3]).all()


def test_few_points_stand_for_a_front() -> None:
    losses = np.array([[1.0, 9.0], [1.01, 8.9], [3.0, 3.0], [8.9, 1.01], [9.0, 1.0], [9.0, 9.0]])
    first, *others = choose(losses, 3)
    assert first == 0, "the best in the first goal always is among them"
    assert set(others) & {3, 4}
    assert 2 in others
    assert sorted(choose(losses, 10)) == [0, 1, 2, 3, 4]


def test_weights_lead_to_different_points_of_a_front() -> None:
    losses = np.array([[1.0, 9.0], [2.0, 2.0], [9.0, 1.0], [INF, INF]])
    best = [int(np.argmin(chebyshev(losses, np.array(weights)))) for weights in ([0.99, 0.01], [0.5, 0.5], [0.01, 0.99])]
    assert best == [0, 1, 2]
    assert chebyshev(losses, np.array([0.5, 0.5]))[3] == INF

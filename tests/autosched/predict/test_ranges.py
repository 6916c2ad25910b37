from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.predict.ranges import EDGES_S, RANGES, draw_duration_s, possible, range_of


def test_a_range_begins_with_its_edge() -> None:
    assert range_of(np.asarray([0.0, 299.9, 300.0, 1_800.0, 3_600.0, 7_200.0, 14_400.0, 1e9])).tolist() == [0, 0, 1, 2, 3, 4, 5, 5]


def test_outlived_ranges_are_not_possible() -> None:
    assert possible(np.asarray([0.0, 4_000.0, 1e6])).tolist() == [[True] * 6, [False] * 3 + [True] * 3, [False] * 5 + [True]]


@settings(max_examples=200, deadline=None)
@given(
    past=st.lists(st.floats(0, 1e6), max_size=30),
    jobs=st.lists(st.tuples(st.integers(0, RANGES - 1), st.floats(0, 1e6)), min_size=1, max_size=20),
    seed=st.integers(0, 9),
)
def test_a_drawn_duration_is_longer_than_what_has_run(past: list[float], jobs: list[tuple[int, float]], seed: int) -> None:
    executed = np.asarray([ran for _, ran in jobs])
    which = np.maximum(np.asarray([kind for kind, _ in jobs]), range_of(executed))
    drawn = draw_duration_s(np.sort(np.asarray(past, np.float64)), which, executed, np.random.default_rng(seed))
    assert (drawn >= executed).all()
    assert (drawn > executed).mean() > 0.99 or np.isin(drawn[drawn == executed], np.asarray(past)).all()
    edges = np.asarray((0.0, *EDGES_S, np.inf))
    for value, kind, ran in zip(drawn, which, executed, strict=True):
        fitting = [one for one in past if edges[kind] <= one < edges[kind + 1] and one > ran]
        if fitting:
            assert value in fitting


def test_draws_follow_the_past() -> None:
    past = np.sort(np.concatenate([np.full(300, 400.0), np.full(100, 900.0)]))
    drawn = draw_duration_s(past, np.ones(4_000, np.int64), np.zeros(4_000), np.random.default_rng(1))
    assert abs((drawn == 400.0).mean() - 0.75) < 0.03
    later = draw_duration_s(past, np.ones(10, np.int64), np.full(10, 500.0), np.random.default_rng(1))
    assert (later == 900.0).all()

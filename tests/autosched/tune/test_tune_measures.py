from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.schedulers.fifo import FIFO
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.trace import Trace
from autosched.tune.measures import Before, ideal_s, measures

ONE = Cluster.parse("1x1")


def test_time_in_the_system_by_hand() -> None:
    """Two jobs of 100 s on one GPU: 100 and 200 - 10."""
    result = simulate(Trace.of([0, 10], [100, 100], [1, 1]), ONE, FIFO())
    found = measures(result, Before.nothing(result, 0.0), fair=True)
    assert found["time_s"] == pytest.approx((100 + 190) / 2)
    assert found["queue_s"] == pytest.approx(90 / 2)
    assert found["jobs"] == 2


def test_jobs_that_are_left_are_charged_their_work() -> None:
    """Stopped at 50: the first has 50 s of work left, the second all of it."""
    result = simulate(Trace.of([0, 10], [100, 100], [1, 1]), ONE, FIFO(), Run(until_s=50.0))
    found = measures(result, Before.nothing(result, 0.0))
    assert found["time_s"] == pytest.approx(((50 + 50) + (40 + 100)) / 2)


def test_only_the_window_counts() -> None:
    result = simulate(Trace.of([0, 10, 500], [100, 100, 5], [1, 1, 1]), ONE, FIFO())
    before = Before(
        at_s=150.0, executed_s=np.asarray([100.0, 50.0, 0.0]), remaining_s=np.asarray([0.0, 50.0, 5.0]), preemptions=np.zeros(3)
    )
    assert measures(result, before)["time_s"] == pytest.approx((50 + 5) / 2)
    assert measures(result, before, np.asarray([1.0, 3.0, 1.0]))["time_s"] == pytest.approx((3 * 50 + 5) / 4)


def test_the_ideal_by_hand() -> None:
    """Two jobs on one GPU share it: the short one runs at half speed from 0 to 20, the long one then alone."""
    assert ideal_s(np.asarray([0.0, 0.0]), np.asarray([10.0, 30.0]), np.ones(2), 1.0) == pytest.approx([20.0, 40.0])
    assert ideal_s(np.asarray([0.0, 100.0]), np.asarray([10.0, 30.0]), np.ones(2), 1.0) == pytest.approx([10.0, 30.0])
    assert ideal_s(np.asarray([5.0]), np.asarray([0.0]), np.ones(1), 8.0) == pytest.approx([0.0])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50), st.integers(1, 8)), min_size=1, max_size=25), st.integers(1, 12))
def test_the_ideal_is_no_faster_than_the_work_and_keeps_the_gpus(jobs: list[tuple[int, int, int]], capacity: int) -> None:
    submit, work, gpus = (np.asarray(column, np.float64) for column in zip(*jobs, strict=True))
    ideal = ideal_s(submit, work, gpus, float(capacity))
    assert (ideal >= work - 1e-6).all()
    total = float((work * gpus).sum())
    assert (submit + ideal).max() >= submit.min() + total / max(capacity, gpus.sum()) - 1e-6
    if gpus.sum() <= capacity:
        assert np.allclose(ideal, work)
    alike = {}
    for one, other, wanted, took in zip(submit, work, gpus, ideal, strict=True):
        assert alike.setdefault((one, other), took) == pytest.approx(took), wanted  # size does not matter, arrival and work do


def test_fairness_does_not_reward_contention() -> None:
    """Head-of-line blocking treats the short job behind the long one badly."""
    long_first = simulate(Trace.of([0, 1], [1_000, 10], [1, 1]), ONE, FIFO())
    assert measures(long_first, Before.nothing(long_first, 0.0), fair=True)["fair_share"] == 0.5
    apart = simulate(Trace.of([0, 2_000], [1_000, 10], [1, 1]), ONE, FIFO())
    assert measures(apart, Before.nothing(apart, 0.0), fair=True)["fair_share"] == 1.0


def test_nobody_there() -> None:
    result = simulate(Trace.of([0], [1], [1]), ONE, FIFO())
    before = Before(at_s=10.0, executed_s=np.ones(1), remaining_s=np.zeros(1), preemptions=np.zeros(1))
    assert measures(result, before)["jobs"] == 0

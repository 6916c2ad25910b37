from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.arrivals.arrivals import METHODS, Generator, replay
from autosched.arrivals.counts import Series
from autosched.arrivals.errors import errors, table
from autosched.arrivals.synthetic import Recipe, generate
from autosched.sim.trace import Trace
from autosched.traces.read import read
from autoscout.core.errors import ConfigError

HOUR_S, DAY_S = 3_600.0, 86_400.0


def daily(days: int = 8) -> Trace:
    """The same jobs every day: 9 to 17 o'clock six an hour, else one."""
    moments = [
        day * DAY_S + hour * HOUR_S + 60.0 * number
        for day in range(days)
        for hour in range(24)
        for number in range(6 if 9 <= hour < 17 else 1)
    ]
    return Trace.of(moments, np.arange(len(moments)) % 7 + 1.0, np.ones(len(moments)))


def test_what_repeats_every_day_is_generated_exactly() -> None:
    trace = daily()
    at = 7 * DAY_S + 9 * HOUR_S
    true = trace.between(at, at + HOUR_S)
    for method in ("yesterday", "similar", "nearest"):
        found = Generator(method=method, metric="manhattan").future(trace, at, HOUR_S, np.random.default_rng(0))
        assert found.submit_s.tolist() == true.submit_s.tolist(), method
    again = Generator(method="last-hour").future(trace, at, 2 * HOUR_S, np.random.default_rng(0))
    assert again.submit_s.tolist() == [at, at + HOUR_S]  # one job in the hour before, twice
    assert "1.0 h ago" in again.filters[0]


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(METHODS),
    seed=st.integers(0, 20),
    at=st.floats(0, 3 * DAY_S),
    horizon=st.sampled_from([HOUR_S, 5 * HOUR_S, 30 * HOUR_S]),
    smooth=st.booleans(),
)
def test_generated_jobs_are_past_jobs_in_the_time_to_come(method: str, seed: int, at: float, horizon: float, smooth: bool) -> None:
    trace = generate(Recipe(profile="venus", jobs=150, days=2, start_s=0.0, seed=seed))
    found = Generator(method=method, smooth=smooth).future(trace, at, horizon, np.random.default_rng(seed))
    assert ((found.submit_s >= at) & (found.submit_s < at + horizon)).all()
    assert (np.diff(found.submit_s) >= 0).all()
    assert len(set(found.job_id.tolist())) == len(found)
    before = trace.submit_s < at
    past = {(d, g) for d, g in zip(trace.duration_s[before], trace.gpus[before], strict=True)}
    assert {(d, g) for d, g in zip(found.duration_s, found.gpus, strict=True)} <= past


def test_nothing_from_nothing() -> None:
    trace = daily(1)
    found = Generator().future(trace, 0.0, HOUR_S, np.random.default_rng(0))
    assert len(found) == 0
    assert "no past" in found.filters[0]


def test_a_horizon_longer_than_the_past_repeats_it() -> None:
    rows, moved = replay(np.asarray([0.0, 5.0]), 0.0, 10.0, 25.0)
    assert rows.tolist() == [0, 1, 0, 1, 0]
    assert moved.tolist() == [10.0, 15.0, 20.0, 25.0, 30.0]


def test_a_mixture_has_the_mean_number_of_jobs() -> None:
    trace = generate(Recipe(profile="philly", jobs=20_000, days=10, start_s=0.0, seed=2))
    at = 9 * DAY_S
    series = Series.of(trace.submit_s[trace.submit_s < at], float(trace.submit_s[0]), at)
    mixture = Generator(method="mixture")
    expected = np.mean([len(replay(trace.submit_s[trace.submit_s < at], source, at, DAY_S)[0]) for source in mixture.sources(series)])
    found = len(mixture.future(trace, at, DAY_S, np.random.default_rng(0)))
    assert abs(found - expected) < 5 * np.sqrt(expected)


def test_wrong_options_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Generator(method="magic", metric="taste", nearest=0)
    assert len(caught.value.faults) == 3


def test_errors_are_zero_where_the_past_repeats_and_not_elsewhere() -> None:
    trace = daily(12)
    assert errors(trace, Generator(method="yesterday"), warm_s=2 * DAY_S).raw_mean == pytest.approx(0.0, abs=0.01)
    assert errors(trace, Generator(method="last-hour"), warm_s=2 * DAY_S).raw_mean > 0.05
    rows = table(trace)
    assert {"last-hour", "yesterday", "last-week", "similar, pearson", "mixture"} <= set(rows)
    assert all(row.hours > 24 for row in rows.values())


@pytest.mark.external
def test_errors_on_a_real_trace_are_the_published_ones() -> None:
    """Venus, September 2020: an independent count of the same errors gave 0.99 for the last hour and 1.02 for the most similar one."""
    path = Path(__file__).resolve().parents[3].parent / "shared" / "traces" / "helios_venus_2020-09.csv.gz"
    if not path.is_file():
        pytest.skip("the reference traces are not in ../shared/traces")
    trace = read(path)
    assert errors(trace, Generator(method="last-hour")).raw_mean == pytest.approx(0.99, abs=0.1)
    assert errors(trace, Generator(metric="relative")).raw_mean == pytest.approx(1.02, abs=0.15)
    assert errors(trace, Generator(method="yesterday")).raw_mean == pytest.approx(2.01, abs=0.2)

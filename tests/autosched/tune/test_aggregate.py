from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.arrivals.synthetic import Recipe, generate
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Labels, Trace
from autosched.traces.read import read
from autosched.tune.aggregate import Aggregator
from autosched.tune.futures import Future, outcome
from autoscout.core.errors import ConfigError

SIZES = [0.25, 0.5, 1, 2, 4, 8, 16, 24]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3_000), st.floats(0, 1e5), st.sampled_from(SIZES)), min_size=1, max_size=60),
    st.lists(st.tuples(st.floats(1, 1e5), st.floats(0, 1e4), st.sampled_from(SIZES), st.booleans()), max_size=40),
)
def test_service_and_jobs_are_conserved(coming: list[tuple[int, float, float]], present: list[tuple[float, float, float, bool]]) -> None:
    arrivals = Trace.of(*(list(column) for column in zip(*coming, strict=True)))
    kept = None
    if present:
        remaining, executed, gpus, running = (np.asarray(column) for column in zip(*present, strict=True))
        jobs = Trace.of(np.full(len(gpus), -1e6), remaining + executed, gpus, job_id=[f"old-{number}" for number in range(len(gpus))])
        kept = Snapshot(at_s=0.0, jobs=jobs, remaining_s=remaining, executed_s=executed, running=running)
    made = Aggregator()(Future(at_s=0.0, arrivals=arrivals, snapshot=kept))
    assert made.weights is not None
    assert made.weights.sum() == len(arrivals) + len(present)
    assert len(made.weights) == made.jobs
    assert made.arrivals.gpu_seconds == pytest.approx(arrivals.gpu_seconds, rel=1e-9)
    assert (np.diff(made.arrivals.submit_s) >= 0).all()
    assert (made.arrivals.gpus <= max(8, arrivals.gpus.max())).all()
    assert ((made.arrivals.gpus <= 1) | (made.arrivals.gpus == np.round(made.arrivals.gpus))).all()
    if kept is not None and made.snapshot is not None:
        new = made.snapshot
        assert float(new.jobs.gpus @ new.remaining_s) == pytest.approx(float(kept.jobs.gpus @ kept.remaining_s), rel=1e-9)
        assert float(new.jobs.gpus.sum()) == pytest.approx(float(kept.jobs.gpus.sum()))
        assert float(new.jobs.gpus @ new.executed_s) >= 0


def test_attained_service_is_the_sum_of_equal_ones() -> None:
    jobs = Trace.of([0.0, 0.0, 0.0], [100.0, 100.0, 900_000.0], [2, 2, 2])
    kept = Snapshot(
        at_s=50.0,
        jobs=jobs,
        remaining_s=np.asarray([60.0, 60.0, 899_960.0]),
        executed_s=np.full(3, 40.0),
        running=np.asarray([True, True, True]),
    )
    made = Aggregator()(Future(at_s=50.0, arrivals=Trace.of([60.0], [1.0], [1]), snapshot=kept)).snapshot
    assert made is not None
    assert sorted(made.jobs.gpus.tolist()) == [2.0, 4.0]
    large = int(np.argmax(made.jobs.gpus))
    assert (made.executed_s[large] * made.jobs.gpus[large], made.remaining_s[large]) == (160.0, 60.0)


def test_groups_of_small_jobs_fit_on_a_node() -> None:
    arrivals = Trace.of(np.zeros(20), np.full(20, 50.0), np.ones(20))
    made = Aggregator()(Future(at_s=0.0, arrivals=arrivals))
    assert sorted(made.arrivals.gpus.tolist()) == [4.0, 8.0, 8.0]
    assert made.weights is not None
    assert made.weights.tolist() == made.arrivals.gpus.tolist()


def test_the_mean_time_in_the_system_stays_near() -> None:
    """At a load of 0.8 the aggregated future costs within 5 % of the whole, with fewer jobs."""
    cluster = Cluster.parse("32x8")
    trace = generate(Recipe(profile="philly", jobs=6_000, days=2, load=0.8, cluster_gpus=256, start_s=0.0, seed=4))
    future = Future(at_s=0.0, arrivals=trace)
    made = Aggregator()(future)
    assert made.jobs < 0.8 * future.jobs
    whole, merged = (outcome(each, cluster, Tiresias())["time_s"] for each in (future, made))
    assert merged == pytest.approx(whole, rel=0.05)


def test_wrong_options_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Aggregator(arrival_s=0.0, decades=-1.0, node_gpus=0)
    assert len(caught.value.faults) == 3


TRACES = Path(__file__).resolve().parents[3].parent / "shared" / "traces"


@pytest.mark.external
@pytest.mark.parametrize(("name", "cluster", "begin", "days"), [("philly_2017", "100x8", 18, 14), ("helios_venus_2020-09", "135x8", 0, 30)])
def test_real_traces_at_a_moderate_load_stay_near(name: str, cluster: str, begin: int, days: int) -> None:
    path = TRACES / f"{name}.csv.gz"
    if not path.is_file():
        pytest.skip("the reference traces are not in ../shared/traces")
    jobs = read(path)
    first = np.floor(jobs.submit_s[0] / 86_400) * 86_400 + begin * 86_400
    jobs = jobs.between(first, first + days * 86_400)
    future = Future(at_s=first, arrivals=replace(jobs, vc=Labels.constant("", len(jobs))))
    made = Aggregator()(future)
    assert made.arrivals.gpu_seconds == pytest.approx(jobs.gpu_seconds, rel=1e-9)
    whole, merged = (outcome(each, Cluster.parse(cluster), Tiresias())["time_s"] for each in (future, made))
    assert merged == pytest.approx(whole, rel=0.05)

"""Metrics of warm and stopped runs, over windows and per interval."""

from __future__ import annotations

import numpy as np
import pytest
from test_session import CLUSTERS, SCHEDULERS, draw_trace

from autosched.schedulers.fifo import FIFO
from autosched.schedulers.srtf import SRTF
from autosched.schedulers.themis import Themis
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.metrics import percentile, summary, window
from autosched.sim.series import series, timeline
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autoscout.core.errors import ConfigError

ONE = Cluster.parse("1x1")
JOBS = Trace.of([0, 10], [100, 100], [1, 1])


def test_a_stopped_run_is_measured_up_to_its_end() -> None:
    found = summary(simulate(JOBS, ONE, FIFO(), Run(until_s=50.0)))
    assert found["utilisation"] == 1
    assert found["makespan_s"] == 50
    assert found["mean_jct_s"] == (50 + 40) / 2
    assert found["charged_jct_s"] == (50 + 50 + 40 + 100) / 2
    assert found["mean_queue_s"] == 20


def test_a_warm_run_is_measured_from_its_beginning() -> None:
    first = simulate(JOBS, ONE, FIFO(), Run(until_s=50.0))
    later = simulate(JOBS.take(np.empty(0, np.int64)), ONE, FIFO(), Run(snapshot=Snapshot.of(first), log=True))
    found = summary(later)
    assert found["utilisation"] == 1, "what ran before does not count"
    assert found["makespan_s"] == 150
    line = timeline(later, points=16)
    assert line["time_s"][0] == 50
    assert line["jobs"].tolist() == [2] * 5 + [1] * 10 + [0]
    assert line["waiting"].tolist() == [1] * 5 + [0] * 11
    assert line["gpus_used"].tolist() == [1] * 15 + [0]


def test_a_window_by_hand() -> None:
    """One GPU; the first job runs to 100, the second from then to 200; from 20 to 120 is looked at."""
    result = simulate(JOBS, ONE, FIFO(), Run(log=True))
    found = window(result, 20.0, 120.0)
    assert found["jobs"] == 2
    assert found["arrivals"] == 0
    assert found["ended"] == 1
    assert found["mean_jct_s"] == 100
    assert found["mean_waiting_jobs"] == pytest.approx(0.8)
    assert found["most_waiting_jobs"] == 1
    assert found["utilisation"] == 1
    assert found["load"] == pytest.approx((80 * 2 + 20) / 100)
    assert found["charged_jct_s"] == (100 + 110) / 2
    assert window(result, 150.0, 300.0)["ended"] == 1
    with pytest.raises(ConfigError, match="must be a span of the run, which goes from 0 to 50"):
        window(simulate(JOBS, ONE, FIFO(), Run(until_s=50.0)), 20.0, 60.0)


@pytest.mark.parametrize("name", ["fifo", "srtf", "tiresias", "themis", "slurm", "lucid without profiler"])
def test_windows_add_up_and_do_not_depend_on_how_the_run_was_cut(name: str) -> None:
    trace, cluster, scheduler = draw_trace(31), CLUSTERS[0], SCHEDULERS[name]
    whole = simulate(trace, cluster, scheduler, Run(log=True))
    at = 2_500.0
    first = simulate(trace, cluster, scheduler, Run(log=True, until_s=at))
    later = simulate(trace.between(at, np.inf), cluster, scheduler, Run(log=True, snapshot=Snapshot.of(first)))
    begin, end = whole.begin_s, float(whole.end_s.max()) + 1.0
    assert window(first, begin, at) == pytest.approx(window(whole, begin, at))
    assert window(later, at, end) == pytest.approx(window(whole, at, end))
    whole_summary, parts = summary(whole), [window(whole, begin, at), window(whole, at, end)]
    assert sum(part["ended"] for part in parts) == len(trace)
    assert sum(part["preemptions"] for part in parts) == whole_summary["preemptions"]
    length = whole_summary["makespan_s"]
    used = sum(part["utilisation"] * span for part, span in zip(parts, (at - begin, end - at), strict=True))
    if "lucid" not in name:  # two jobs of a pair use the same GPUs
        assert used == pytest.approx(whole_summary["utilisation"] * length)
    idle = sum(part["fragmentation"] * span for part, span in zip(parts, (at - begin, end - at), strict=True))
    if name in ("fifo", "srtf"):  # the others decide in rounds, and count from the first decision
        assert idle == pytest.approx(whole_summary["fragmentation"] * length, rel=1e-6)


def test_series_per_hour() -> None:
    result = simulate(JOBS, ONE, SRTF(), Run(log=True))
    found = series(result, 50.0)
    assert found["from_s"].tolist() == [0, 50, 100, 150]
    assert found["arrivals"].tolist() == [2, 0, 0, 0]
    assert found["ended"].tolist() == [0, 0, 1, 1]
    assert found["mean_jobs"].tolist() == [1.8, 2, 1, 1]
    assert found["mean_gpus_used"].tolist() == [1, 1, 1, 1]
    assert found["most_waiting_jobs"].tolist() == [1, 1, 1, 0]
    assert np.isnan(found["mean_jct_s"][0])
    with pytest.raises(ConfigError, match="interval above zero"):
        series(result, 0.0)


def test_a_job_that_stands_for_several() -> None:
    """Three equal jobs, or one of weight three: the same means."""
    three = Trace.of([0, 0, 0, 5], [10, 10, 10, 40], [1, 1, 1, 1])
    one = Trace.of([0, 5], [10, 40], [1, 1], extra={"weight": [3, 1]})
    cluster = Cluster.parse("1x8")
    ours, theirs = summary(simulate(one, cluster, FIFO())), summary(simulate(three, cluster, FIFO()))
    for name in ("jobs", "ended", "mean_jct_s", "median_jct_s", "p90_jct_s", "mean_slowdown", "utilisation", "load", "fair_share"):
        assert ours[name] == pytest.approx(theirs[name]), name


def test_weighted_percentiles_are_those_of_the_repeated_values() -> None:
    draw = np.random.default_rng(1)
    values, weight = draw.random(50), draw.integers(1, 5, 50).astype(float)
    for q in (0, 10, 50, 99, 100):
        assert percentile(values, q, weight) == pytest.approx(np.percentile(np.repeat(values, weight.astype(int)), q))


def test_counts_of_what_policies_do() -> None:
    stream = Trace.of([0.0, *(10.0 + 5 * np.arange(40))], [20.0, *([5.0] * 40)], np.ones(41))
    starving = summary(simulate(stream, ONE, Tiresias(thresholds=(10.0,), round_s=0.0, starve_limit_s=40.0)))
    assert starving["promotions"] >= 1
    leased = summary(simulate(Trace.of([0, 60], [1_000, 60], [1, 1]), ONE, Themis(lease_s=300.0, fairness=0.0)))
    assert leased["lease_expiries"] >= 1
    assert leased["promotions"] == 0

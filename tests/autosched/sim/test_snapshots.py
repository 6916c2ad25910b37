from __future__ import annotations

import numpy as np
import pytest

from autosched.arrivals.synthetic import Recipe, generate
from autosched.schedulers.fifo import FIFO
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autoscout.core.errors import ConfigError


def test_stopping_and_resuming_changes_nothing_where_nodes_do_not_matter() -> None:
    trace = generate(Recipe(profile="philly", jobs=400, days=1, load=1.1, cluster_gpus=32, seed=5))
    cluster, policy = Cluster.parse("4x8"), FIFO(placement="count")
    whole = simulate(trace, cluster, policy)
    middle = float(np.floor(np.median(trace.submit_s))) + 0.5
    first = simulate(trace.between(0, middle), cluster, policy, Run(until_s=middle))
    snapshot = Snapshot.of(first)
    assert snapshot.running.any()
    assert not snapshot.running.all()
    rest = simulate(trace.between(middle, np.inf), cluster, policy, Run(snapshot=snapshot))
    later = dict(zip(rest.trace.job_id, rest.end_s, strict=True))
    before = dict(zip(first.trace.job_id, first.end_s, strict=True))
    ends = np.asarray([later.get(job, before.get(job)) for job in trace.job_id])
    assert np.allclose(ends, whole.end_s)


def test_jobs_stay_where_they_were_seen() -> None:
    """Two jobs run on half a node each; where they run decides whether a third finds room."""
    jobs = Trace.of([0, 1], [1_000, 1_000], [2, 2], job_id=["a", "b"])
    seen = {"at_s": 100.0, "jobs": jobs, "remaining_s": np.full(2, 900.0), "executed_s": np.full(2, 100.0), "running": np.ones(2, bool)}
    third = Trace.of([110], [10], [4], job_id=["c"])

    def start(where: list[tuple[int, int, int]]) -> float:
        snapshot = Snapshot(**seen, where=np.asarray(where, np.float64).reshape(-1, 3))  # type: ignore[arg-type]
        return float(simulate(third, Cluster.parse("2x4"), FIFO(), Run(snapshot=snapshot)).start_s[2])

    assert start([]) == 110, "placed anew, they share a node"
    assert start([(0, 1, 2), (1, 1, 2)]) == 110
    assert start([(0, 0, 2), (1, 1, 2)]) == 1_000


def test_several_nodes_of_a_job_that_was_seen() -> None:
    jobs = Trace.of([0], [1_000], [6], job_id=["a"])
    snapshot = Snapshot(
        at_s=100.0,
        jobs=jobs,
        remaining_s=np.full(1, 900.0),
        executed_s=np.full(1, 100.0),
        running=np.ones(1, bool),
        where=np.asarray([(0, 0, 2), (0, 2, 4)], np.float64),
    )
    later = Trace.of([110, 111], [10, 10], [4, 2], job_id=["b", "c"])
    result = simulate(later, Cluster.parse("3x4"), FIFO(), Run(snapshot=snapshot, log=True))
    assert result.end_s[0] == 1_000
    assert [float(node) for node in result.log[result.log[:, 3] > 0, 2]] == [2, 0, 1, 0], "the whole node and the half that are left"


def test_service_attained_before_counts() -> None:
    """A job that has used up its first queue before the snapshot yields to a newcomer at once."""
    jobs = Trace.of([0], [1_000], [1], job_id=["old"])
    snapshot = Snapshot(at_s=500.0, jobs=jobs, remaining_s=np.asarray([500.0]), executed_s=np.asarray([500.0]), running=np.asarray([True]))
    result = simulate(
        Trace.of([510], [10], [1], job_id=["new"]), Cluster.parse("1x1"), Tiresias(thresholds=(100.0,), round_s=0.0), Run(snapshot=snapshot)
    )
    assert list(result.end_s) == [510 + 10 + 490 + 18, 520]


def test_what_makes_no_snapshot() -> None:
    done = simulate(Trace.of([0], [1], [1]), Cluster.parse("1x1"), FIFO())
    with pytest.raises(ConfigError, match="stopped at a moment"):
        Snapshot.of(done)
    with pytest.raises(ConfigError) as caught:
        Snapshot(
            at_s=0.0,
            jobs=Trace.of([0, 0], [1, 1], [1, 1]),
            remaining_s=np.asarray([1.0, np.nan]),
            executed_s=np.asarray([-1.0, 0.0]),
            running=np.zeros(1, bool),
            where=np.asarray([(7.0, 0.0, 1.0)]),
        )
    assert [fault.field for fault in caught.value.faults] == ["remaining_s", "executed_s", "running", "where"]
    with pytest.raises(ConfigError, match="arrive after"):
        Snapshot(at_s=0.0, jobs=Trace.of([5], [1], [1]), remaining_s=np.ones(1), executed_s=np.zeros(1), running=np.zeros(1, bool))


@pytest.mark.parametrize("speed", [1.0, 0.7, 0.35])
def test_a_snapshot_takes_a_job_that_ends_at_an_odd_rate(speed: float) -> None:
    """A job over two nodes, or on slower GPUs, runs at an odd rate: what is left at its end must not be a little below nothing."""
    cluster, policy = Cluster.parse("2x8" if speed == 1.0 else f"2x8@slow*{speed}"), Tiresias(placement="relaxed")
    for duration_s in range(1_000, 1_100):
        trace = Trace.of([0, 0, 60], [50_000, 50_000, duration_s], [5, 5, 6])
        end_s = float(simulate(trace, cluster, policy).end_s[2])
        for stop_s in (end_s, np.nextafter(end_s, np.inf), np.ceil(end_s / 60.0) * 60.0):  # its GPUs are given back at the next round
            stopped = simulate(trace, cluster, policy, Run(until_s=float(stop_s)))
            assert stopped.remaining_s.min() >= 0, (duration_s, stop_s)
            assert Snapshot.of(stopped).running[:2].all()

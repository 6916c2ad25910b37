from __future__ import annotations

import numpy as np
import pytest

from autoscout.core.errors import ConfigError
from autoscout.sched.cluster import Cluster
from autoscout.sched.engine import Run, simulate
from autoscout.sched.schedulers.fifo import FIFO
from autoscout.sched.schedulers.tiresias import Tiresias
from autoscout.sched.snapshot import Snapshot
from autoscout.sched.trace import Trace
from autoscout.sched.workload.synthetic import Recipe, generate


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


@pytest.mark.parametrize("policy", [FIFO(), FIFO(overtake=True)])
def test_with_a_log_jobs_stay_where_they_are(policy: FIFO) -> None:
    """Then stopping and resuming changes nothing under consolidated placement either."""
    trace = generate(Recipe(profile="venus", jobs=600, days=1, load=4.2, cluster_gpus=8, seed=6))
    cluster = Cluster.parse("4x8")
    whole = simulate(trace, cluster, policy)
    middle = float(np.floor(np.median(trace.submit_s))) + 0.5
    first = simulate(trace.between(0, middle), cluster, policy, Run(until_s=middle, log=True))
    snapshot = Snapshot.of(first)
    assert snapshot.home is not None
    assert (snapshot.home[snapshot.running] >= 0).all()
    rest = simulate(trace.between(middle, np.inf), cluster, policy, Run(snapshot=snapshot))
    later = dict(zip(rest.trace.job_id, rest.end_s, strict=True))
    before = dict(zip(first.trace.job_id, first.end_s, strict=True))
    ends = np.asarray([later.get(job, before.get(job)) for job in trace.job_id])
    assert np.allclose(ends, whole.end_s)


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
    with pytest.raises(ConfigError, match="arrive after"):
        Snapshot(at_s=0.0, jobs=Trace.of([5], [1], [1]), remaining_s=np.ones(1), executed_s=np.zeros(1), running=np.zeros(1, bool))

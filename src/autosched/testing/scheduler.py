"""What every cluster scheduler must do. Subclass `SchedulerSuite` in a test module and give it the fixture `kind`, the class:

    class TestMyScheduler(SchedulerSuite):
        @pytest.fixture
        def kind(self):
            return MyScheduler

Needs no pytest itself; the methods are plain functions of the class. They run the scheduler with the default configuration of its
space, and with some others, on small traces that are drawn at random but always the same.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from autosched.kernel.records import LOG_GPUS, LOG_JOB, LOG_NODE, LOG_TIME
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.result import Result
from autosched.sim.scheduler import Admitting, Scheduler
from autosched.sim.session import Session
from autosched.sim.snapshot import Snapshot
from autosched.sim.trace import Trace
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.seeds import stream
from autoscout.space import Space

CLUSTER = Cluster.parse("8x8")
LARGE = Cluster.parse("64x8")
SAMPLES = 6  # configurations drawn from the space
_SIZES = (1.0, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0)


def busy_trace(jobs: int = 80, seed: int = 0, vcs: tuple[str, ...] = ("",)) -> Trace:
    """Jobs that ask for about twice the GPUs of `CLUSTER`, so that somebody always waits."""
    draw = stream(seed, "busy trace")
    return Trace.of(
        np.sort(draw.integers(0, 4_000, jobs)),
        draw.integers(0, 3_000, jobs),
        draw.choice(_SIZES, jobs),
        user=[f"user-{number}" for number in draw.integers(0, 4, jobs)],
        vc=[vcs[number] for number in draw.integers(0, len(vcs), jobs)],
    )


def default(kind: Any, cluster: Cluster = CLUSTER) -> Scheduler:
    """The scheduler with the default configuration of its space."""
    scheduler: Scheduler = kind.of(kind.space(cluster).default())
    return scheduler


def never_too_many(result: Result) -> None:
    """No node gives more GPUs than it has, and all are given back.

    Raises:
        AssertionError: some node does.
    """
    sizes = np.concatenate([result.cluster.nodes_of(vc).table()["gpus"] for vc in result.cluster.vcs])
    used = np.zeros(len(sizes))
    for row in result.log:
        node = int(row[LOG_NODE])
        used[node] += row[LOG_GPUS]
        assert -1e-6 <= used[node] <= sizes[node] + 1e-6, f"node {node} of {sizes[node]:g} GPUs gives {used[node]:g} at {row[LOG_TIME]:g}"
    assert np.allclose(used, 0), "GPUs that were never given back"


class SchedulerSuite:
    """The contract, as tests."""

    def test_the_class(self, kind: Any) -> None:
        """A frozen dataclass that describes itself, and without arguments is the default of its space on a large cluster."""
        assert isinstance(kind(), Scheduler)
        assert isinstance(kind.summary, str)
        assert kind.summary
        assert default(kind, LARGE) == kind()

    def test_the_space(self, kind: Any) -> None:
        """The same for equal clusters, and its default is legal."""
        space = kind.space(CLUSTER)
        assert isinstance(space, Space)
        assert list(space.knobs) == list(kind.space(CLUSTER).knobs)
        assert space.check(space.default()) == []
        assert space.default() == kind.space(CLUSTER).default()

    def test_every_configuration_makes_a_scheduler(self, kind: Any) -> None:
        """Equal configurations make equal schedulers, also from JSON."""
        space = kind.space(CLUSTER)
        draw = stream(1, kind.__name__)
        for config in (space.default(), *(space.sample(draw) for _ in range(SAMPLES))):
            assert kind.of(config) == kind.of(Config(config.to_json()))

    def test_all_jobs_end_under_every_configuration(self, kind: Any) -> None:
        trace = busy_trace()
        space = kind.space(CLUSTER)
        draw = stream(2, kind.__name__)
        for config in (space.default(), *(space.sample(draw) for _ in range(SAMPLES))):
            result = simulate(trace, CLUSTER, kind.of(config))
            assert result.ended.all() or result.endless, f"jobs are left, and nobody says so: {config}"
            if config == space.default():
                assert result.ended.all()

    def test_no_job_starts_before_it_arrives_or_ends_before_its_work_is_done(self, kind: Any) -> None:
        trace = busy_trace()
        result = simulate(trace, CLUSTER, default(kind))
        assert (result.start_s >= trace.submit_s).all()
        assert (result.jct_s >= trace.duration_s - 1e-6).all()

    def test_capacity_is_never_exceeded(self, kind: Any) -> None:
        never_too_many(simulate(busy_trace(), CLUSTER, default(kind), Run(log=True)))

    def test_equal_runs_are_equal(self, kind: Any) -> None:
        one, other = (simulate(busy_trace(), CLUSTER, default(kind), Run(log=True)) for _ in range(2))
        assert np.array_equal(one.end_s, other.end_s)
        assert np.array_equal(one.log, other.log)

    def test_work_is_conserved(self, kind: Any) -> None:
        """What the log says each job held is what it executed: its work, and the price of its preemptions."""
        trace, scheduler = busy_trace(), default(kind)
        result = simulate(trace, CLUSTER, scheduler, Run(log=True))
        number = result.log[:, LOG_JOB].astype(int)
        held = np.zeros(len(trace))
        np.subtract.at(held, number, result.log[:, LOG_TIME] * result.log[:, LOG_GPUS])
        logged = np.isin(np.arange(len(trace)), number)
        assert logged.all() or isinstance(scheduler, Admitting), "only jobs that end during admission are not in the log"
        assert np.allclose(held[logged], (result.executed_s * trace.gpus)[logged], atol=1e-5)
        plan = scheduler.plan(trace, CLUSTER)
        owed = trace.duration_s + result.preemptions * plan.workload.cost_s(trace.gpus)
        if plan.placement.rule in ("consolidated", "count") and plan.workload.checkpoint_s == 0:
            assert np.allclose(result.executed_s, owed)
        else:  # spread jobs are slower, and work since the last checkpoint is done again
            assert (result.executed_s >= owed - 1e-6).all()

    def test_virtual_clusters_do_not_share(self, kind: Any) -> None:
        cluster = Cluster.of_vcs({"a": 4, "b": 4})
        trace = busy_trace(60, vcs=("a", "b"))
        result = simulate(trace, cluster, default(kind, cluster), Run(log=True))
        assert result.ended.all()
        for name, nodes in (("a", (0, 4)), ("b", (4, 8))):
            mine = np.isin(result.log[:, LOG_JOB], np.flatnonzero(trace.vc.codes == trace.vc.code(name)))
            used = result.log[mine, LOG_NODE]
            assert ((used >= nodes[0]) & (used < nodes[1])).all()

    def test_a_plan_changes_nothing(self, kind: Any) -> None:
        trace = busy_trace()
        default(kind).plan(trace, CLUSTER)
        fresh = busy_trace()
        assert np.array_equal(trace.submit_s, fresh.submit_s)
        assert np.array_equal(trace.duration_s, fresh.duration_s)
        assert np.array_equal(trace.gpus, fresh.gpus)

    def test_no_jobs(self, kind: Any) -> None:
        assert len(simulate(Trace.of([], [], []), CLUSTER, default(kind)).end_s) == 0

    def test_one_job(self, kind: Any) -> None:
        """Alone it waits for at most a round and a profile."""
        result = simulate(Trace.of([100.0], [3_000.0], [1.0]), CLUSTER, default(kind))
        assert result.ended.all()
        assert result.preemptions[0] == 0
        assert 3_000 <= result.jct_s[0] <= 6_000

    def test_jobs_that_can_never_run_are_refused(self, kind: Any) -> None:
        refusal = ""
        try:
            simulate(Trace.of([0.0], [10.0], [CLUSTER.gpus + 1.0]), CLUSTER, default(kind))
        except ConfigError as error:
            refusal = str(error)
        assert "larger than the cluster" in refusal

    def test_stopping_and_resuming_changes_nothing(self, kind: Any) -> None:
        """Every job ends when it would have ended, in one run or from a snapshot in the middle of it."""
        trace = busy_trace()
        middle = 2_000.5
        whole = simulate(trace, CLUSTER, default(kind))
        first = simulate(trace.between(0, middle), CLUSTER, default(kind), Run(until_s=middle))
        later = simulate(trace.between(middle, np.inf), CLUSTER, default(kind), Run(snapshot=Snapshot.of(first)))
        ends = {job: end for result in (first, later) for job, end in zip(result.trace.job_id, result.end_s, strict=True) if end == end}
        assert [ends[job] for job in trace.job_id] == whole.end_s.tolist()

    def test_it_takes_over_in_flight(self, kind: Any) -> None:
        """From another configuration of its space, whatever that is."""
        space = kind.space(CLUSTER)
        session = Session(busy_trace(), CLUSTER, kind.of(space.sample(stream(3, kind.__name__))), log=True)
        session.step(1_500.0)
        session.reconfigure(default(kind))
        session.step()
        assert session.result().ended.all()
        never_too_many(session.result())

    def test_it_travels(self, kind: Any) -> None:
        """Schedulers are sent to other processes."""
        scheduler = default(kind)
        again = pickle.loads(pickle.dumps(scheduler))
        assert again == scheduler
        trace = busy_trace(30)
        assert np.array_equal(simulate(trace, CLUSTER, again).end_s, simulate(trace, CLUSTER, scheduler).end_s)

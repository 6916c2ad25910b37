"""Laws that hold for every scheduler on every trace."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.schedulers.fifo import FIFO
from autosched.schedulers.sjf import SJF
from autosched.schedulers.srtf import SRTF
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.result import Result
from autosched.sim.scheduler import Scheduler
from autosched.sim.trace import Trace
from autoscout.core import plugins

CLUSTERS = ("1x4", "3x4", "2x8+3x4")
SCHEDULERS = plugins.available("scheduler")

jobs = st.lists(
    st.tuples(
        st.integers(0, 500),
        st.integers(0, 400),
        st.sampled_from([0.25, 0.5, 1.0, 1.0, 2.0, 3.0, 4.0]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=30,
)
quick = settings(max_examples=20, deadline=None)


def trace_of(rows: list[tuple[int, int, float, int, int]], whole: bool = False) -> Trace:
    submit, duration, gpus, score, user = (np.asarray(column, np.float64) for column in zip(*rows, strict=True))
    return Trace.of(
        submit,
        duration,
        np.ceil(gpus) if whole else gpus,
        user=[f"u{number:.0f}" for number in user],
        extra={"sharing": score, "memory_mb": score * 1_000, "gpu_util": 20 + score * 30},
    )


def scheduler(name: str) -> Scheduler:
    built: Scheduler = plugins.get("scheduler", name)(**({"profiler_nodes": 0} if name == "lucid" else {}))
    return built


def never_oversubscribed(result: Result) -> None:
    sizes = np.concatenate([result.cluster.nodes_of(vc).table()["gpus"] for vc in result.cluster.vcs])
    used = np.zeros(len(sizes))
    for time, _, node, gpus in result.log:
        used[int(node)] += gpus
        assert used[int(node)] <= sizes[int(node)] + 1e-6, f"node {node} holds {used[int(node)]} GPUs at {time}"
        assert used[int(node)] >= -1e-6
    assert np.allclose(used, 0)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(rows=jobs, cluster=st.sampled_from(CLUSTERS))
@quick
def test_laws(name: str, rows: list[tuple[int, int, float, int, int]], cluster: str) -> None:
    trace, nodes = trace_of(rows), Cluster.parse(cluster)
    result = simulate(trace, nodes, scheduler(name), Run(log=True))
    assert result.ended.all()
    never_oversubscribed(result)
    assert (result.start_s >= trace.submit_s).all()
    assert (result.jct_s >= trace.duration_s - 1e-6).all()
    again = simulate(trace, nodes, scheduler(name), Run(log=True))
    assert np.array_equal(result.end_s, again.end_s)
    assert np.array_equal(result.log, again.log)


@pytest.mark.parametrize("name", [name for name in SCHEDULERS if name != "lucid"])
@given(rows=jobs, cluster=st.sampled_from(CLUSTERS))
@quick
def test_service_is_conserved(name: str, rows: list[tuple[int, int, float, int, int]], cluster: str) -> None:
    """What the log says each job held over time is what it executed, and that is its work plus the price of its preemptions."""
    trace, nodes = trace_of(rows), Cluster.parse(cluster)
    result = simulate(trace, nodes, scheduler(name), Run(log=True))
    held = np.zeros(len(trace))
    np.subtract.at(held, result.log[:, 1].astype(int), result.log[:, 0] * result.log[:, 3])
    assert np.allclose(held, result.executed_s * trace.gpus, atol=1e-5)
    cost = np.where(trace.gpus <= 1, 18.0, np.where(trace.gpus <= 2, 22.0, 29.0))
    assert np.allclose(result.executed_s, trace.duration_s + result.preemptions * cost)


@given(rows=jobs, cluster=st.sampled_from(CLUSTERS))
@quick
def test_nobody_waits_beside_a_place(rows: list[tuple[int, int, float, int, int]], cluster: str) -> None:
    """A scheduler that lets jobs overtake never leaves one waiting that some node could hold."""
    trace, nodes = trace_of(rows, whole=True), Cluster.parse(cluster)
    for policy in (FIFO(overtake=True), SRTF()):
        result = simulate(trace, nodes, policy, Run(log=True))
        free = nodes.table()["gpus"].copy()
        running: set[int] = set()
        log = result.log
        moments = np.unique(np.concatenate([log[:, 0], trace.submit_s]))
        at = 0
        for moment in moments:
            while at < len(log) and log[at, 0] <= moment:
                _, job, node, gpus = log[at]
                free[int(node)] -= gpus
                (running.add if gpus > 0 else running.discard)(int(job))
                at += 1
            waiting = [
                j
                for j in range(len(trace))
                if trace.submit_s[j] <= moment < result.end_s[j] and j not in running and trace.duration_s[j] > 0
            ]
            if isinstance(policy, FIFO):
                assert not [j for j in waiting if trace.gpus[j] <= free.max()], f"at {moment}"
            else:  # it reserves GPUs for the shortest, so the first in its order must not find a place
                assert not (waiting and not running)


@pytest.mark.parametrize("name", SCHEDULERS)
@given(rows=jobs, seed=st.integers(0, 1_000))
@quick
def test_equal_jobs_can_be_swapped(name: str, rows: list[tuple[int, int, float, int, int]], seed: int) -> None:
    """Jobs that are equal in all but their names may trade places without changing anybody's completion times as a whole."""
    trace = trace_of(rows + rows[:3])
    shuffled = trace.job_id.copy()
    np.random.default_rng(seed).shuffle(shuffled)
    renamed = Trace.of(trace.submit_s, trace.duration_s, trace.gpus, job_id=shuffled, user=trace.user.texts(), extra=dict(trace.extra))
    nodes = Cluster.parse("3x4")
    one, other = simulate(trace, nodes, scheduler(name)), simulate(renamed, nodes, scheduler(name))
    assert np.array_equal(np.sort(one.jct_s), np.sort(other.jct_s))


@given(rows=jobs, cluster=st.sampled_from(CLUSTERS))
@quick
def test_both_loops_agree(rows: list[tuple[int, int, float, int, int]], cluster: str) -> None:
    """The fast loop for fixed orders and the general one give the same schedule."""
    from dataclasses import replace

    from autosched.kernel.policies import by_fixed_key, never
    from autosched.sim.scheduler import Ranking

    def generally(kind: type) -> type:
        class General(kind):  # type: ignore[misc]
            def plan(self, trace, cluster):  # type: ignore[no-untyped-def]
                return replace(super().plan(trace, cluster), scheduling=Ranking(rank=by_fixed_key, wake=never, strict=True))

        return General

    trace, nodes = trace_of(rows, whole=True), Cluster.parse(cluster)
    for policy in (FIFO, SJF):
        fast, general = simulate(trace, nodes, policy()), simulate(trace, nodes, generally(policy)())
        assert np.array_equal(fast.start_s, general.start_s)
        assert np.array_equal(fast.end_s, general.end_s)


@given(seed=st.integers(0, 10_000), count=st.integers(1, 120), cluster=st.sampled_from((*CLUSTERS, "12x4")))
@settings(max_examples=40, deadline=None)
def test_the_loop_for_the_shortest_first_decides_as_the_general_one(seed: int, count: int, cluster: str) -> None:
    draw = np.random.default_rng(seed)
    trace = Trace.of(
        np.sort(draw.uniform(0, 4_000, count)),
        draw.lognormal(5.0, 1.5, count),  # no two alike: among equals the loops have orders of their own
        draw.choice([0.25, 0.5, 1, 1, 2, 3, 4], count),
    )
    nodes = Cluster.parse(cluster)

    class General(SRTF):
        def plan(self, trace, cluster):  # type: ignore[no-untyped-def]
            return self.ranked()

    fast, general = simulate(trace, nodes, SRTF(), Run(log=True)), simulate(trace, nodes, General(), Run(log=True))
    assert np.allclose(fast.end_s, general.end_s, atol=1e-6)
    assert np.array_equal(fast.preemptions, general.preemptions)
    assert fast.counters["idle_while_waiting_gpu_s"] == pytest.approx(general.counters["idle_while_waiting_gpu_s"], abs=1e-3)
    never_oversubscribed(fast)


@given(rows=jobs, threshold=st.sampled_from([50.0, 200.0, 1_000.0]))
@quick
def test_skipped_rounds_do_not_matter(rows: list[tuple[int, int, float, int, int]], threshold: float) -> None:
    """Leaving out rounds in which nothing can change alters no result: the same rounds with every event looked at."""
    from dataclasses import replace

    class Awake(Tiresias):
        def plan(self, trace, cluster):  # type: ignore[no-untyped-def]
            plan = super().plan(trace, cluster)
            return replace(plan, scheduling=replace(plan.scheduling, every_event=True))

    trace, nodes = trace_of(rows), Cluster.parse("3x4")
    lazy = simulate(trace, nodes, Tiresias(thresholds=(threshold,), round_s=30.0))
    awake = simulate(trace, nodes, Awake(thresholds=(threshold,), round_s=30.0))
    assert np.array_equal(lazy.end_s, awake.end_s)


_INTERPRETED = """
import numpy as np
from autosched.kernel.jit import COMPILED
from autoscout.core import plugins
from autosched.sim.cluster import Cluster
from autosched.sim.engine import simulate
from autosched.arrivals.synthetic import Recipe, generate
assert COMPILED is {compiled}
trace = generate(Recipe(profile="venus", jobs=60, days=0.2, load=2.4, cluster_gpus=16, seed=3))
for name in plugins.available("scheduler"):
    print(name, simulate(trace, Cluster.parse("4x8"), plugins.get("scheduler", name)()).end_s.tobytes().hex()[:4000])
"""


def test_without_compiler_the_same_results() -> None:
    """The kernels run as plain Python where Numba is missing or switched off, and agree bit for bit."""
    answers = [
        subprocess.run(
            [sys.executable, "-c", _INTERPRETED.format(compiled=not off)],
            env={**os.environ, "NUMBA_DISABLE_JIT": "1" if off else "0"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for off in (False, True)
    ]
    assert answers[0] == answers[1]
    assert len(answers[0].splitlines()) == len(SCHEDULERS)

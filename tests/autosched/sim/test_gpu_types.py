"""GPU types and nodes of several sizes, against a reference that looks at everything by brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.schedulers.fifo import FIFO
from autosched.schedulers.slurm import Slurm
from autosched.schedulers.srtf import SRTF
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.trace import Trace
from autosched.testing.scheduler import never_too_many
from autoscout.core import plugins


def placeable(free: list[float], sizes: list[int], kinds: list[str], gpus: float, kind: str) -> bool:
    """Whether a job finds a consolidated place: on one node, or on the fewest nodes that could ever hold it, all but one of them whole."""
    mine = [node for node in range(len(free)) if kind in ("", kinds[node])]
    if any(free[node] >= gpus for node in mine):
        return True
    fewest = next(
        (
            count
            for count in range(1, len(mine) + 1)
            if any(sum(sizes[node] for node in some) >= gpus for some in combinations(mine, count))
        ),
        0,
    )
    if fewest < 2:
        return False
    for some in combinations(mine, fewest):
        for last in some:
            whole = [node for node in some if node != last]
            if all(free[node] == sizes[node] for node in whole) and 0 < gpus - sum(sizes[node] for node in whole) <= free[last]:
                return True
    return False


CLUSTERS = ("1x8+3x4", "2x8@a+3x4@b", "1x8@a+2x4@b+2x2@a")
jobs = st.lists(
    st.tuples(st.integers(0, 60), st.integers(1, 50), st.sampled_from([1, 2, 4, 8, 12, 16]), st.integers(0, 2)), min_size=1, max_size=14
)


@given(rows=jobs, text=st.sampled_from(CLUSTERS))
@settings(max_examples=25, deadline=None)
def test_nobody_waits_who_could_be_placed(rows: list[tuple[int, int, int, int]], text: str) -> None:
    """With overtaking, whenever something happened, no waiting job finds a place; and all end, since each fits an empty cluster."""
    cluster = Cluster.parse(text)
    sizes = [group.gpus for group in cluster.groups for _ in range(group.nodes)]
    kinds = [group.kind for group in cluster.groups for _ in range(group.nodes)]
    names = ("", "a", "b")
    room = {name: sum(size for size, kind in zip(sizes, kinds, strict=True) if name in ("", kind)) for name in names}
    fitting = [row for row in rows if row[2] <= room[names[row[3]]]]
    if not fitting:
        return
    submit, duration, gpus, wish = (list(column) for column in zip(*fitting, strict=True))
    trace = Trace.of(submit, duration, gpus, kind=[names[number] for number in wish])
    result = simulate(trace, cluster, FIFO(overtake=True), Run(log=True))
    assert result.ended.all()
    never_too_many(result)
    wishes = trace.kind.texts()
    for _, job, node, taken in result.log:
        assert taken < 0 or wishes[int(job)] in ("", kinds[int(node)])
    free = [float(size) for size in sizes]
    at = 0
    for moment in np.unique(np.concatenate([result.log[:, 0], trace.submit_s])):
        while at < len(result.log) and result.log[at, 0] <= moment:
            free[int(result.log[at, 2])] -= result.log[at, 3]
            at += 1
        for j in np.flatnonzero((trace.submit_s <= moment) & (result.start_s > moment)):
            assert not placeable(free, sizes, kinds, float(trace.gpus[j]), str(wishes[j])), f"job {j} at {moment}"


@pytest.mark.parametrize("name", plugins.available("scheduler"))
def test_a_job_on_nodes_of_several_sizes_is_placed(name: str) -> None:
    """Sixteen GPUs on one node of eight and ten of four: three nodes."""
    policy = plugins.get("scheduler", name)(**({"profiler_nodes": 0} if name == "lucid" else {}))
    result = simulate(Trace.of([0, 5], [100, 10], [4, 16]), Cluster.parse("1x8+10x4"), policy)
    assert result.ended.all()
    assert result.nodes[1] == 3


def test_idle_gpus_of_another_type_are_no_quota() -> None:
    """A short job preempts a long one of its own type, although GPUs of the other type are idle."""
    trace = Trace.of([0, 40], [1_000, 20], [1, 1], kind=["a", "a"])
    for policy in (SRTF(), Tiresias(thresholds=(25.0,), round_s=0.0)):
        result = simulate(trace, Cluster.parse("1x1@a+4x1@b"), policy)
        assert result.start_s.tolist() == [0, 40]
        assert result.preemptions.tolist() == [1, 0]
    anywhere = Trace.of([0, 10], [1_000, 20], [1, 1], kind=["", "a"])
    result = simulate(anywhere, Cluster.parse("1x1@a+4x1@b"), SRTF())
    assert result.start_s.tolist() == [0, 10], "who may run anywhere makes room for who may not"


def test_backfill_by_type() -> None:
    """Two jobs of type a: the second waits. Behind it a long job of type b starts at once, a long one of type a must not."""
    trace = Trace.of([0, 1, 2, 2], [100, 100, 500, 500], [2, 3, 1, 1], kind=["a", "a", "b", "a"])
    result = simulate(trace, Cluster.parse("1x3@a+1x2@b"), Slurm(bf_interval_s=0.0))
    assert result.start_s.tolist() == [0, 100, 2, 200]

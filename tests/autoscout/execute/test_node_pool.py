"""Who gets which machine: nothing that can run waits for ever, nothing that cannot run waits at all."""

from __future__ import annotations

import heapq
import random

import pytest

from autoscout.core.launch import Completed, Launch, Resources
from autoscout.execute._shared.allocation import Share
from autoscout.execute._shared.queue import JobQueue, Requeue
from autoscout.execute._shared.remote.nodes import ClusterNode, NodePool, choose_kind, node_faults


def pool(count: int = 2, gpus: int = 8, slots: int = 300) -> NodePool:
    return NodePool(slots, [ClusterNode(name=f"m{number}", cores=16, gpus=gpus, slots=8) for number in range(count)], "the test")


def gpus(count: int, nodes: int = 1) -> Resources:
    return Resources(gpus=count, nodes=nodes)


def test_small_ones_fill_a_machine_before_the_next_is_begun() -> None:
    there = pool()
    taken = [there.take(gpus(1)) for _ in range(8)]
    assert {share.parts[0].machine for share in taken if share} == {"m0"}
    assert {share.parts[0].gpus for share in taken if share} == {(str(number),) for number in range(8)}
    assert there.take(gpus(8)) is not None, "the other one is whole"


def test_a_launch_on_several_machines_takes_all_or_nothing() -> None:
    there = pool(3)
    both = there.take(gpus(8, nodes=2))
    assert both is not None
    assert len({part.machine for part in both.parts}) == 2
    assert there.take(gpus(8, nodes=2)) is None
    assert there.take(gpus(8)) is not None, "the third machine was not kept by the one that did not fit"
    there.give(both)
    assert there.take(gpus(8, nodes=2)) is not None


def test_a_drained_machine_gets_nothing_until_it_is_back() -> None:
    there = pool()
    there.drain("m0", "silent")
    first = there.take(gpus(4))
    assert first is not None
    assert first.parts[0].machine == "m1"
    assert there.take(gpus(8)) is None
    there.add(there.nodes[0])
    assert there.take(gpus(8)) is not None


@pytest.mark.parametrize(
    ("resources", "field", "says"),
    [
        (Resources(gpus=9), "resources.gpus", "no machine of the test has more than 8"),
        (Resources(cpus=17, gpus=99), "resources.cpus", "more than 16"),
        (Resources(nodes=3), "resources.nodes", "2 machines"),
        (Resources(nodes=0), "resources.nodes", "at least 1"),
        (Resources(gpus=-1), "resources.gpus", "negative"),
    ],
)
def test_the_impossible_is_refused_with_the_reason(resources: Resources, field: str, says: str) -> None:
    faults = pool().faults(resources, "launch x")
    assert faults[0].field == field
    assert says in faults[0].rule


def test_resources_of_two_machines_do_not_add_up() -> None:
    nodes = [ClusterNode(name="a", cores=16, gpus=0), ClusterNode(name="b", cores=1, gpus=1)]
    faults = node_faults(nodes, Resources(cpus=4, gpus=1), "launch x", "the cluster")
    assert [fault.rule for fault in faults] == ["no machine of the cluster has all of it together"]


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        ({"a": ("A100", 8), "b": ("T4", 4), "c": ("T4", 2), "d": ("", 0)}, ("A100", ["T4"])),
        ({"a": ("A100", 1), "b": ("T4", 4)}, ("T4", ["A100"])),
        ({"a": ("A100", 8), "b": ("A100", 8), "d": ("", 0)}, None),
        ({"a": ("A100,T4", 16), "b": ("T4", 4)}, None),
        ({"a": ("", 8), "b": ("T4", 4)}, None),
    ],
)
def test_of_several_kinds_the_one_with_most_that_fits_is_used(kinds: dict[str, tuple[str, int]], chosen: object) -> None:
    nodes = [ClusterNode(name=name, cores=4, gpus=count, kind=kind) for name, (kind, count) in kinds.items()]
    assert choose_kind(nodes, gpus(2)) == chosen


class Bench:
    """The queue's own dispatch, in virtual time: what it starts ends after its duration."""

    def __init__(self, there: NodePool) -> None:
        self.pool = there
        self.now_s = 0.0
        self.started_s: dict[str, float] = {}
        self.durations_s: dict[str, float] = {}
        self._ends: list[tuple[float, str, Share]] = []
        self.queue = JobQueue(there, "bench")
        self.queue._begin = self._begin  # type: ignore[method-assign]

    def _begin(self, job: object, share: Share) -> None:
        name = job.launch.name  # type: ignore[attr-defined]
        self.started_s[name] = self.now_s
        heapq.heappush(self._ends, (self.now_s + self.durations_s[name], name, share))

    def run(self) -> None:
        while self._ends:
            self.now_s, _, share = heapq.heappop(self._ends)
            self.pool.give(share)
            self.queue.dispatch()


def test_200_launches_of_mixed_sizes_keep_16_gpus_busy() -> None:
    for seed in range(5):
        rng = random.Random(seed)
        there = pool()
        bench = Bench(there)
        sizes = rng.choices((1, 2, 4, 8), (4, 3, 2, 1), k=200)
        for number, size in enumerate(sizes):
            bench.durations_s[str(number)] = rng.uniform(10, 30)
            bench.queue.submit(Launch(argv=("true",), name=str(number), resources=gpus(size)), lambda _: None)  # type: ignore[arg-type, return-value]
        bench.run()
        assert len(bench.started_s) == 200
        busy = sum(size * bench.durations_s[str(number)] for number, size in enumerate(sizes)) / (16 * bench.now_s)
        assert busy > 0.9, f"seed {seed}"


def test_a_large_launch_is_not_starved_by_small_ones_that_keep_coming() -> None:
    bench = Bench(pool())
    for number in range(400):
        bench.durations_s[f"s{number}"] = 10.0 + number % 7
    for number in range(100):
        bench.queue.submit(Launch(argv=("true",), name=f"s{number}", resources=gpus(1)), lambda _: None)  # type: ignore[arg-type, return-value]
    bench.durations_s["large"] = 10.0
    bench.queue.submit(Launch(argv=("true",), name="large", resources=gpus(8)), lambda _: None)  # type: ignore[arg-type, return-value]
    for number in range(100, 400):
        bench.queue.submit(Launch(argv=("true",), name=f"s{number}", resources=gpus(1)), lambda _: None)  # type: ignore[arg-type, return-value]
    bench.run()
    before = sum(start_s < bench.started_s["large"] for start_s in bench.started_s.values())
    assert before < 150, "a hundred came before it; few that came later started first"
    assert len(bench.started_s) == 401


def test_a_launch_whose_machine_was_lost_runs_before_those_that_came_later() -> None:
    order: list[str] = []
    lost = iter([True, False, False])

    class Run:
        def __init__(self, name: str) -> None:
            self._name = name

        def run(self) -> Completed:
            order.append(self._name)
            if self._name == "first" and next(lost):
                raise Requeue
            return Completed(returncode=0)

        def stop(self) -> None: ...

    queue = JobQueue(NodePool(1, [ClusterNode(name="m", cores=1, gpus=0)], "the test"), "test")
    jobs = [queue.submit(Launch(argv=("true",), name=name), lambda _, name=name: Run(name)) for name in ("first", "second")]
    assert [job.result(30).returncode for job in jobs] == [0, 0]
    assert order == ["first", "first", "second"]

"""Pool and queue: who gets what, and in which order."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from autoscout.common import machine
from autoscout.core.errors import LaunchError
from autoscout.core.launch import Completed, Launch, Resources
from autoscout.execute._shared.allocation import Pool, Share
from autoscout.execute._shared.queue import JobQueue, QueuedJob
from autoscout.execute._shared.supervisor import cgroup

OVERTAKEN = Pool.overtaken


def test_a_launch_gets_an_even_share_or_what_it_asks_for() -> None:
    pool = Pool(2, cores=range(8))
    small = pool.take(Resources(cpus=1))
    assert small is not None
    assert small.cores == (0, 1, 2, 3)
    assert pool.take(Resources(cpus=6)) is None, "only four are left"
    pool.give(small)
    large = pool.take(Resources(cpus=6))
    assert large is not None
    assert large.cores == (0, 1, 2, 3, 4, 5)
    assert pool.take(Resources(cpus=1)) is None, "never fewer than the share it would get alone"


def test_shares_never_overlap_and_come_back_whole() -> None:
    pool = Pool(3, cores=(4, 0, 5, 1, 6, 2), gpus=("a", "b"), memory_gb=10.0)
    shares = [pool.take(Resources(cpus=2, gpus=gpus, memory_gb=memory)) for gpus, memory in ((1, 4.0), (0, None), (1, 6.0))]
    taken = [share for share in shares if share is not None]
    assert len(taken) == 3
    assert sorted(core for share in taken for core in share.cores) == [0, 1, 2, 4, 5, 6]
    assert [share.gpus for share in taken] == [("a",), (), ("b",)]
    assert pool.take(Resources(cpus=0)) is None, "no slot"
    for share in reversed(taken):
        pool.give(share)
    everything = pool.take(Resources(cpus=6, gpus=2, memory_gb=10.0))
    assert everything == Share(cores=(4, 0, 5, 1, 6, 2), gpus=("a", "b"), memory_gb=10.0), "in the given order again"


def test_memory_limits_add_up_to_no_more_than_the_machine_has() -> None:
    pool = Pool(4, memory_gb=10.0)
    assert pool.take(Resources(memory_gb=7.0)) is not None
    assert pool.take(Resources(memory_gb=4.0)) is None
    assert pool.take(Resources()) is not None, "a launch without a limit waits for nobody"


def test_all_that_is_impossible_is_said_at_once() -> None:
    faults = Pool(1, cores=range(2), gpus=(), memory_gb=4.0).faults(Resources(cpus=3, gpus=1, memory_gb=5.0), "launch x")
    assert [fault.field for fault in faults] == ["resources.cpus", "resources.gpus", "resources.memory_gb"]
    assert "this executor has 2 cores" in str(faults[0])
    assert Pool(1).faults(Resources(cpus=-1), "x")[0].rule == "must not be negative"


class Held:
    """A run that lasts until told to end."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.stopped = False

    def run(self) -> Completed:
        self.end.wait(60)
        return Completed(returncode=None if self.stopped else 0, cancelled=self.stopped)

    def stop(self) -> None:
        self.stopped = True
        self.end.set()


class Bench:
    """A queue over two GPUs whose runs are ended by hand."""

    def __init__(self) -> None:
        self.queue = JobQueue(Pool(10, gpus=("a", "b")), "bench")
        self.runs: dict[str, Held] = {}
        self.jobs: dict[str, QueuedJob] = {}
        self.started: list[str] = []

    def submit(self, name: str, gpus: int) -> None:
        run = self.runs[name] = Held()

        def prepare(_share: Share) -> Held:
            self.started.append(name)
            return run

        self.jobs[name] = self.queue.submit(Launch(argv=("x",), name=name, resources=Resources(gpus=gpus)), prepare)

    def end(self, name: str) -> None:
        self.runs[name].end.set()
        self.jobs[name].result(60)


def test_small_launches_overtake_a_large_one_but_not_for_ever() -> None:
    bench = Bench()
    bench.submit("first", 1)
    bench.submit("large", 2)
    for number in range(OVERTAKEN + 2):
        bench.submit(f"small{number}", 1)
    for number in range(OVERTAKEN):
        bench.end(f"small{number}")
    assert f"small{OVERTAKEN - 1}" in bench.started
    assert f"small{OVERTAKEN}" not in bench.started, "now everybody waits for the large one"
    bench.end("first")
    bench.end("large")
    bench.end(f"small{OVERTAKEN}")
    bench.queue.close()


def test_cancelling_a_blocker_lets_the_others_run() -> None:
    bench = Bench()
    bench.submit("first", 1)
    bench.submit("large", 2)
    for number in range(OVERTAKEN + 1):
        bench.submit(f"small{number}", 1)
    for number in range(OVERTAKEN):
        bench.end(f"small{number}")
    bench.jobs["large"].cancel()
    bench.end(f"small{OVERTAKEN}")
    bench.queue.close()
    assert bench.jobs["first"].result(60).cancelled


def test_a_run_that_breaks_gives_its_share_back_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    queue = JobQueue(Pool(1), "bench")

    def broken(_share: Share) -> Held:
        raise OSError(28, "No space left on device", "/trials/x")

    completed = queue.submit(Launch(argv=("x",)), broken).result(60)
    assert completed.returncode is None
    assert completed.error == "No space left on device: /trials/x"
    run = Held()
    run.end.set()
    assert queue.submit(Launch(argv=("x",)), lambda _: run).result(60).returncode == 0
    queue.close()
    with pytest.raises(LaunchError, match="closed"):
        queue.submit(Launch(argv=("x",)), lambda _: run)


# --- what the machine has --------------------------------------------------------------------------------------------


def test_cores_are_those_of_this_process() -> None:
    assert sorted(machine.machine_cores()) == sorted(os.sched_getaffinity(0))
    assert machine.machine_memory_gb() > 0.1


def test_quota_of_a_container(tmp_path: Path) -> None:
    assert machine.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cpu_quota(tmp_path) is None
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("200000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert machine.cpu_quota(tmp_path) == 2.0


def test_where_a_memory_group_may_be_made(tmp_path: Path) -> None:
    # The kernel fills new folders with files; on a plain disk there are none to write, so none may be claimed to work.
    listing = tmp_path / "self"
    mount = tmp_path / "cgroup"
    own = mount / "user" / "app"
    own.mkdir(parents=True)
    listing.write_text("1:name=systemd:/\n0::/user/app\n")
    assert cgroup._parents(mount, listing) == [], "not a version 2 mount"
    (mount / "cgroup.controllers").write_text("cpu memory\n")
    (own / "cgroup.subtree_control").write_text("\n")
    (own / "memory.max").write_text("max\n")
    (own.parent / "cgroup.subtree_control").write_text("cpu memory\n")
    assert cgroup._parents(mount, listing) == [own.parent], "beside our own group, since ours holds processes"
    (own / "memory.max").write_text("1000000\n")
    assert cgroup._parents(mount, listing) == [], "a trial must not escape our own limit"
    (own / "cgroup.subtree_control").write_text("memory\n")
    assert cgroup._parents(mount, listing) == [own]
    assert cgroup.memory_group("x", 1 << 20, mount, listing) is None
    assert not (own / "autoscout-x").exists(), "what did not work is removed"

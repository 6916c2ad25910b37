"""Trees of processes and their memory, by every way of looking."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autoscout.common import processes
from autoscout.testing.executor import wait_for

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

FAMILY = """
import os, sys, time
from pathlib import Path
pids = [os.getpid()]
if os.fork() == 0:
    os.fork()
    Path(sys.argv[1], str(os.getpid())).write_text("")
    time.sleep(3600)
Path(sys.argv[1], str(os.getpid())).write_text("")
time.sleep(3600)
"""


@pytest.fixture
def family(tmp_path: Path):  # type: ignore[no-untyped-def]
    process = subprocess.Popen([sys.executable, "-c", FAMILY, str(tmp_path)], start_new_session=True)
    wait_for(lambda: len(list(tmp_path.iterdir())) == 3, "three processes run")
    yield process.pid, {int(path.name) for path in tmp_path.iterdir()}
    os.killpg(process.pid, 9)
    process.wait()


@linux_only
def test_descendants_are_found_by_every_way_of_looking(family: tuple[int, set[int]]) -> None:
    root, everybody = family
    below = everybody - {root}
    assert set(processes.descendants(root)) == below
    assert set(processes._below(root, processes._children_by_task(root))) == below
    assert set(processes._below(root, processes._children_by_ps(root, None))) == below
    assert everybody <= set(processes._below(os.getpid(), processes._children_by_ps(os.getpid(), root)))


@linux_only
def test_descendants_without_the_kernels_lists(family: tuple[int, set[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    root, everybody = family
    exists = Path.exists
    monkeypatch.setattr(Path, "exists", lambda path: not str(path).endswith("/children") and exists(path))
    assert set(processes.descendants(root)) == everybody - {root}


@linux_only
def test_memory_counts_shared_pages_once_when_it_matters() -> None:
    code = "import os, time\nhold = bytearray(os.urandom(1 << 20) * 64)\nos.fork()\nos.write(1, b'x\\n')\ntime.sleep(3600)"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() + process.stdout.readline() == b"x\nx\n"
            pids = [process.pid, *processes.descendants(process.pid)]
            bound, exact = processes.usage(pids).own, processes.own_exactly(pids)
        finally:
            os.killpg(process.pid, 9)
    assert bound > 128 << 20, "the cheap bound counts the forked pages twice"
    assert 64 << 20 < exact < 100 << 20


def test_a_zombie_does_not_run() -> None:
    process = subprocess.Popen(["true"])
    wait_for(lambda: processes.running([process.pid, os.getpid()]) == [os.getpid()], "only this process runs")
    process.wait()
    assert processes.running([process.pid]) == []


def test_memory_of_the_dead_is_nothing() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert processes.usage([process.pid]).resident == 0
    assert processes.own_exactly([process.pid]) == 0
    assert processes.descendants(process.pid) == []


def test_ps_tells_memory_too() -> None:
    assert sum(processes._resident_by_ps([os.getpid()])) > 1 << 20


@linux_only
def test_the_kernels_count_of_memory_kills_can_be_read() -> None:
    assert (processes.oom_kills() or 0) >= 0
    assert dict(processes.marked("PATH")).get(os.getpid()) is not None or "PATH" not in os.environ

"""Logs, contention, kills: what the supervisor is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autoscout.execute._shared.supervisor import client
from autoscout.execute._shared.supervisor.contention import MachineCounters, conditions
from autoscout.execute._shared.supervisor.logs import BoundedLog, tail
from autoscout.execute._shared.supervisor.program import is_memory_kill

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


@pytest.mark.parametrize(
    ("code", "strange", "before", "after", "answer"),
    [
        (-9, 1, 3, 4, True),
        (-9, 1, 3, 3, False),  # somebody else's kill
        (1, 0, 3, 4, True),  # a worker was the victim, the command noticed
        (0, 0, 3, 4, False),  # the victim was somebody else's process
        (-9, 1, None, None, False),
    ],
)
def test_when_the_kernel_killed_for_memory(code: int, strange: int, before: int | None, after: int | None, answer: bool) -> None:
    assert is_memory_kill(code, strange, before, after) is answer


def test_a_log_within_its_bounds_is_kept_as_it_is(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", 100, 10)
    log.write(b"abc")
    assert (tmp_path / "log").read_bytes() == b"abc", "readable while it grows"
    log.write(b"def")
    log.close()
    log.close()
    assert (tmp_path / "log").read_bytes() == b"abcdef"
    assert tail(tmp_path / "log", 4) == "cdef"
    assert tail(tmp_path / "none", 4) == ""


@pytest.mark.parametrize("chunk", [1, 3, 7, 1000])
def test_a_log_over_its_bounds_loses_its_middle(tmp_path: Path, chunk: int) -> None:
    data = bytes(ord("a") + number % 26 for number in range(500))
    log = BoundedLog(tmp_path / "log", 100, 10)
    for start in range(0, len(data), chunk):
        log.write(data[start : start + chunk])
    log.close()
    assert (tmp_path / "log").read_bytes() == data[:100] + b"\n[... 390 bytes left out ...]\n" + data[-10:]


def test_a_log_just_over_its_bounds_loses_nothing(tmp_path: Path) -> None:
    log = BoundedLog(tmp_path / "log", 5, 10)
    log.write(b"0123456789")
    log.close()
    assert (tmp_path / "log").read_bytes() == b"0123456789"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_does_not_stop_the_process() -> None:
    log = BoundedLog(Path("/dev/full"), 100, 10)
    log.write(b"abc")
    log.write(b"def")
    log.close()
    assert "No space left" in log.error


def test_conditions_are_shares() -> None:
    before = MachineCounters(cores=(0, 1), stall_us={"cpu": 1e6, "memory": 0.0}, busy_ticks=1000, load_1min=0.5)
    ticks = os.sysconf("SC_CLK_TCK")
    after = replace(before, stall_us={"cpu": 3e6, "memory": 0.0}, busy_ticks=1000 + 6 * ticks, load_1min=1.5)
    seen = conditions(before, after, wall_s=4.0, cpu_s=2.0)
    assert seen == {
        "cores": 2.0,
        "cpu_pressure": 0.5,
        "memory_pressure": 0.0,
        "cpu_share": 0.25,
        "other_cpu_share": 0.5,
        "load_1min": 1.5,
    }


def test_what_a_system_does_not_tell_is_left_out() -> None:
    before = MachineCounters(cores=(0,), stall_us={}, busy_ticks=None, load_1min=None)
    assert conditions(before, before, wall_s=1.0, cpu_s=0.5) == {"cores": 1.0, "cpu_share": 0.5}


@linux_only
def test_counters_are_read_from_this_machine() -> None:
    counters = MachineCounters.read(None)
    assert counters.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert counters.busy_ticks is not None
    assert MachineCounters.read([99999]).busy_ticks is None


def test_the_supervisor_needs_nothing_but_the_standard_library() -> None:
    probe = client._BOOT.replace("program.main()", "print('numpy' in sys.modules, 'autoscout.core' in sys.modules)")
    command = [sys.executable, "-I", "-S", "-c", probe, str(client.PACKAGE), "child"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False False\n"

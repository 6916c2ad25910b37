"""Leases among processes: one holder, in order, free when the holder is gone."""

from __future__ import annotations

import fcntl
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from autoscout.common.leases import PLACE, Holder, Lease, Ticket, holder, lease_folder
from autoscout.testing.executor import wait_for

HOLD = """
import sys, time
from pathlib import Path
from autoscout.common.leases import Ticket
with Ticket(1, {"0": "GPU-a"}, "study other", Path(sys.argv[1])) as ticket:
    lease = ticket.take(lambda free: free[:1])
    while len(sys.argv) > 2 and lease is None:
        time.sleep(0.01)
        lease = ticket.take(lambda free: free[:1])
    print("held", flush=True)
    time.sleep(3600)
"""


def ticket(folder: Path, count: int = 1, gpus: str = "0") -> Ticket:
    return Ticket(count, {gpu: f"GPU-{gpu}" for gpu in gpus}, "me", folder)


def take(one: Ticket, count: int = 1) -> Lease | None:
    return one.take(lambda free: free[:count] if len(free) >= count else ())


def test_another_process_has_it_until_it_is_killed(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        with Ticket(1, {"0": "GPU-a"}, "me", tmp_path) as mine:
            assert take(mine) is None
            assert str(mine.holders()["0"]) == f"pid {other.pid} (study other)"
            other.kill()
            other.wait()
            lease = take(mine)
            assert lease is not None
            assert lease.gpus == ("0",)
            lease.release()
        assert holder(tmp_path, "GPU-a") is None
    finally:
        other.kill()
        other.communicate()


def test_who_waits_longest_is_next(tmp_path: Path) -> None:
    running = take(ticket(tmp_path))
    assert running
    with ticket(tmp_path) as first, ticket(tmp_path) as second:
        assert take(first) is None
        assert take(second) is None
        running.release()
        assert take(ticket(tmp_path)) is None, "who comes last does not overtake, not even the one who had it"
        assert take(second) is None
        lease = take(first)
        assert lease is not None
        first.__exit__()
        lease.release()
        last = take(second)
        assert last is not None
        last.release()


def test_a_large_launch_is_not_starved_and_others_are_not_held_up(tmp_path: Path) -> None:
    running = take(ticket(tmp_path, gpus="0"))
    assert running
    with ticket(tmp_path, 2, "01") as large:
        assert take(large, 2) is None
        assert take(ticket(tmp_path, gpus="01")) is None, "GPU 1 is kept for the large one"
        other = take(ticket(tmp_path, gpus="2"))
        assert other is not None, "nobody waits for GPU 2"
        other.release()
        running.release()
        both = take(large, 2)
        assert both is not None
        assert both.gpus == ("0", "1")
        both.release()


def test_a_free_gpu_is_taken_instead_of_a_leased_one(tmp_path: Path) -> None:
    first, second = take(ticket(tmp_path, gpus="01")), take(ticket(tmp_path, gpus="01"))
    assert first
    assert second
    assert (first.gpus, second.gpus) == (("0",), ("1",))


def test_who_was_killed_while_it_waited_holds_nobody_up(tmp_path: Path) -> None:
    running = Ticket(1, {"0": "GPU-a"}, "me", tmp_path)
    lease = take(running)
    assert lease
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path), "wait"], stdout=subprocess.PIPE)
    try:
        wait_for(lambda: list(tmp_path.glob("wait-*")), "the other process waits")
        lease.release()
        other.kill()
        other.wait()
        wait_for(lambda: take(running), "its place is given to the next")
        assert not list(tmp_path.glob("wait-*"))
    finally:
        other.kill()
        other.communicate()


def test_all_users_may_share_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLACE, str(tmp_path / "leases"))
    folder = lease_folder()
    assert folder == tmp_path / "leases"
    assert take(ticket(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o666}


def test_without_a_folder_nothing_is_leased_and_everything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(PLACE, str(tmp_path / "file"))
    assert lease_folder() is None
    lease = take(Ticket(1, {"0": "GPU-a"}, "me", None))
    assert lease is not None
    assert lease.gpus == ("0",)
    lease.release()


def test_damaged_files_are_no_obstacle(tmp_path: Path) -> None:
    for name, text in (("gpu-GPU-0", "{"), ("wait-0", '{"gpus": 3, "count": "x"}'), ("mutex", "[]")):
        (tmp_path / name).write_text(text)
    with (tmp_path / "wait-0").open() as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        lease = take(ticket(tmp_path))
    assert lease
    (tmp_path / "gpu-GPU-0").write_text('{"pid": "x"}')
    assert holder(tmp_path, "GPU-0") == Holder(pid=0, what="")

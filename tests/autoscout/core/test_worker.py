from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from autoscout.core import worker
from autoscout.core.worker import is_gone, worker_identity

PRINT = "from autoscout.core.worker import worker_identity; print(worker_identity(), flush=True); input()"


@pytest.fixture
def other() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", PRINT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def _name(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _changed(name: str, **fields: Any) -> str:
    order = ("host", "pid", "started", "boot", "namespace", "machine")
    return ":".join(str(fields.get(field, part)) for field, part in zip(order, name.split(":"), strict=True))


def test_a_process_has_one_name_and_lives() -> None:
    assert worker_identity() == worker_identity()
    assert worker_identity().split(":")[1] == str(os.getpid())
    assert not is_gone(worker_identity())
    assert not is_gone(worker_identity("with:label"))
    assert worker_identity("a") != worker_identity("b")


def test_a_child_has_a_name_of_its_own() -> None:
    fork = multiprocessing.get_context("fork")
    names = fork.SimpleQueue()
    child = fork.Process(target=lambda: names.put(worker_identity()))
    child.start()
    child.join(30)
    name = names.get()
    assert name != worker_identity()
    assert is_gone(name)


def test_a_process_is_gone_when_it_is(other: subprocess.Popen[str]) -> None:
    name = _name(other)
    assert not is_gone(name)
    other.kill()
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(name), "a zombie works no more"
    other.wait()
    assert is_gone(name)


def test_a_number_used_again_is_another_process(other: subprocess.Popen[str]) -> None:
    assert is_gone(_changed(_name(other), started=1))


def test_a_restart_ends_all(other: subprocess.Popen[str]) -> None:
    name = _name(other)
    if not name.split(":")[5] or not name.split(":")[3]:
        pytest.skip("this machine has no machine id or boot id")
    assert is_gone(_changed(name, boot="00000000"))


@pytest.mark.parametrize("field", ["host", "machine", "namespace"])
def test_elsewhere_is_not_gone(field: str) -> None:
    dead = _changed(worker_identity(), pid=2**22 + 1, started=1)
    assert is_gone(dead), "here it is"
    assert not is_gone(_changed(dead, **{field: "other"})), "but who knows about there"


@pytest.mark.parametrize("name", ["", "worker-1", "a:b:c:d:e:f", "host:-1:0:::", "host:12"])
def test_names_of_others_are_not_gone(name: str) -> None:
    assert not is_gone(name)


def test_processes_that_proc_hides_are_not_gone(monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen[str]) -> None:
    name = _name(other)
    real = worker.Path.read_text

    def hidden(path: Any, *args: Any, **more: Any) -> str:
        if str(path) == f"/proc/{other.pid}/stat":
            raise FileNotFoundError
        return real(path, *args, **more)

    monkeypatch.setattr(worker.Path, "read_text", hidden)
    monkeypatch.setattr(worker, "_started_by_ps", lambda pid: "?")
    assert not is_gone(name)
    other.kill()
    other.wait()
    assert is_gone(name)


def test_without_proc_ps_tells(monkeypatch: pytest.MonkeyPatch, other: subprocess.Popen[str]) -> None:
    """As on macOS."""
    _name(other)

    def absent(path: Any, *args: Any, **more: Any) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(worker.Path, "read_text", absent)
    monkeypatch.setattr(worker.Path, "readlink", absent)
    here = worker._Worker.here()
    if here.started == "?":
        pytest.skip("no ps here")
    name = str(worker._Worker(host=here.host, pid=other.pid, started=worker._started(other.pid) or "", boot="", namespace="", machine=""))
    assert not is_gone(name)
    other.kill()
    other.wait()
    assert is_gone(name)

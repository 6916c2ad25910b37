"""The `command` backend on the real local executor: what misbehaves is told apart, and nothing outlives its trial."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_launching import BENCH, SERVER, assert_gone

from autoscout.backends.command.backend import CommandBackend
from autoscout.core.config import Config
from autoscout.core.trial import Status
from autoscout.execute.local import LocalExecutor, LocalOptions
from autoscout.space import Choice, Space

PYTHON = sys.executable
SPACE = Space([Choice("batch", [1, 2])])
CONFIG = Config(batch=2)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[LocalExecutor]:
    with LocalExecutor(LocalOptions(folder=str(tmp_path), grace_s=1.0)) as executor:
        yield executor


def task_and_backend(**workload: Any) -> tuple[CommandBackend, Any]:
    backend = CommandBackend(SPACE)
    return backend, backend.task({"workload": workload})


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("echo 'tps: 5'", Status.OK),
        ("exit 3", Status.CRASHED),
        ("kill -ABRT $$", Status.CRASHED),
        ("head -c 100000 /dev/urandom", Status.WRONG_OUTPUT),
        ("echo 'tps: 5'; echo FAILED", Status.WRONG_OUTPUT),
        ("sleep 1000", Status.TIMEOUT),
        ("trap '' TERM; sleep 1000 & sleep 1000", Status.TIMEOUT),
    ],
)
def test_engines_that_misbehave(line: str, status: Status, executor: LocalExecutor) -> None:
    backend, task = task_and_backend(
        command=f": {{batch}}; {line}",
        metrics={"tps": r"regex:tps: (\d+)"},
        check={"regex": "FAILED", "absent": True},
        limit_s=2 if status is Status.TIMEOUT else 60,
    )
    done = executor.submit(backend.render(CONFIG, task, 0)).result()
    assert backend.parse(done, task).status is status


def test_children_that_leave_the_session_are_ended(executor: LocalExecutor, tmp_path: Path) -> None:
    backend, task = task_and_backend(command=f"setsid sleep 1000 & echo $! > {tmp_path}/pid; : {{batch}}")
    done = executor.submit(backend.render(CONFIG, task, 0)).result()
    assert backend.parse(done, task).ok
    stat = Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def serving(bench: str) -> tuple[CommandBackend, Any]:
    return task_and_backend(
        serve=[PYTHON, "server.py", "{port}", "fine"],
        bench=bench,
        files={"server.py": SERVER, "bench.py": BENCH},
        metrics={"tps": r"regex:tps: (\d+)"},
        health="server is up",
        cwd="{folder}",
    )


def test_a_server_and_its_benchmark(executor: LocalExecutor) -> None:
    backend, task = serving(f"{PYTHON} bench.py {{port}} '' {{batch}}")
    done = executor.submit(backend.render(CONFIG, task, 0)).result()
    assert backend.parse(done, task).metrics["tps"] == 10
    assert_gone(Path(done.folder))


def test_a_cancelled_trial_takes_its_server_along(executor: LocalExecutor, tmp_path: Path) -> None:
    backend, task = serving("echo {batch}; touch benching; sleep 1000")
    job = executor.submit(backend.render(CONFIG, task, 0))
    while not list(tmp_path.rglob("benching")):
        assert not job.done()
        time.sleep(0.05)
    job.cancel()
    done = job.result()
    assert backend.parse(done, task).status is Status.ABORTED
    assert_gone(next(tmp_path.rglob("server.log")).parent)

"""The driver: a real server is started, waited for, benchmarked and stopped with everything it left behind."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_launching import BENCH, SERVER, assert_gone, execute

from autoscout.backends.command.backend import PLAN, CommandBackend
from autoscout.core.config import Config
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status
from autoscout.space import Choice, Space

PYTHON = sys.executable
SPACE = Space([Choice("batch", [1, 2])])


def run(folder: Path, mode: str = "fine", path: str = "", health: Any = "http://127.0.0.1:{port}/health", **more: Any) -> Measurement:
    workload = {
        "serve": [PYTHON, "server.py", "{port}", mode],
        "bench": f"{PYTHON} bench.py {{port}} '{path}' {{batch}}",
        "files": {"server.py": SERVER, "bench.py": BENCH},
        "metrics": {"tps": r"regex:tps: (\d+)"},
        "cwd": "{folder}",
        "health": health,
        **more,
    }
    backend = CommandBackend(SPACE)
    task = backend.task({"workload": {name: value for name, value in workload.items() if value is not None}})
    assert backend.task(task.to_json()) == task
    launch = backend.render(Config(batch=2), task, 3)
    plan = json.loads(launch.files[PLAN])
    launch = replace(launch, files={**launch.files, PLAN: json.dumps({**plan, "grace_s": 1.0})})
    return backend.parse(execute(launch, folder), task)


@pytest.mark.parametrize("health", ["http://127.0.0.1:{port}/health", "server is up", None])
def test_a_server_is_measured_and_stopped(health: str | None, tmp_path: Path) -> None:
    done = run(tmp_path, health=health, repeats=3, warmups=1)
    assert done.status is Status.OK, done
    assert done.metrics["tps"] == 10
    assert done.samples["tps"] == (10.0, 10.0, 10.0)
    assert len(done.samples["wall_s"]) == 3
    assert_gone(tmp_path)


def test_a_server_that_will_not_stop_is_killed(tmp_path: Path) -> None:
    assert run(tmp_path, mode="deaf").ok
    assert_gone(tmp_path)


@pytest.mark.parametrize(
    ("mode", "path", "status", "reason"),
    [
        ("oom", "", Status.OOM_START, "CUDA out of memory"),
        ("flag", "", Status.INVALID, "unrecognized arguments"),
        ("crash", "", Status.CRASHED, "bad weights"),
        ("slow", "", Status.TIMEOUT, "not up after 1 s"),
        ("fine", "die", Status.OOM_RUN, "CUDA out of memory"),
    ],
)
def test_every_way_a_server_fails(mode: str, path: str, status: Status, reason: str, tmp_path: Path) -> None:
    done = run(tmp_path, mode, path, start_limit_s=1 if mode == "slow" else 60)
    assert done.status is status, done
    assert reason in done.reason
    assert done.log_tail
    assert_gone(tmp_path)


def test_a_benchmark_that_waits_for_a_dead_server_is_ended(tmp_path: Path) -> None:
    bench = f"{PYTHON} bench.py {{port}} die {{batch}}; sleep 1000"
    done = run(tmp_path, bench=bench)
    assert done.status is Status.OOM_RUN


@pytest.mark.parametrize(
    ("bench", "status"),
    [
        ("echo {batch}; exit 4", Status.CRASHED),
        ("echo {batch}", Status.WRONG_OUTPUT),
        ("no-such-bench {batch}", Status.CRASHED),
        (["no-such-bench", "{batch}"], Status.CRASHED),
    ],
)
def test_a_benchmark_that_fails(bench: Any, status: Status, tmp_path: Path) -> None:
    done = run(tmp_path, bench=bench, find_program=False)
    assert done.status is status, done
    assert_gone(tmp_path)


def test_repeats_without_a_server_never_read_an_old_result(tmp_path: Path) -> None:
    line = "n=$(cat {folder}/count 2>/dev/null || echo 0); echo $((n + 1)) > {folder}/count; "
    line += '[ $n -ge 2 ] || echo "{\\"tps\\": $((n * 11))}" > {folder}/r.json; : {batch} {port}'
    backend = CommandBackend(SPACE)
    workload = {"command": line, "metrics": {"tps": "json:r.json#tps"}, "cwd": "{folder}"}
    for repeats, status in ((2, Status.OK), (3, Status.WRONG_OUTPUT)):
        task = backend.task({"workload": {**workload, "repeats": repeats}})
        done = backend.parse(execute(backend.render(Config(batch=1), task, 0), tmp_path / str(repeats)), task)
        assert done.status is status, done
    task = backend.task({"workload": {**workload, "repeats": 2}})
    done = backend.parse(execute(backend.render(Config(batch=1), task, 0), tmp_path / "again"), task)
    assert done.samples["tps"] == (0.0, 11.0)
    assert done.metrics["tps"] == 5.5


def test_a_port_variable_and_the_first_failure_ends_the_repeats(tmp_path: Path) -> None:
    backend = CommandBackend(SPACE)
    workload = {"command": "echo x >> {folder}/runs; echo $MASTER_PORT; exit {batch}", "env": {"MASTER_PORT": "{port}"}, "repeats": 3}
    task = backend.task({"workload": workload})
    completed = execute(backend.render(Config(batch=1), task, 0), tmp_path)
    assert completed.stdout.strip().isdigit()
    assert (tmp_path / "runs").read_text() == "x\n"
    assert backend.parse(completed, task).status is Status.CRASHED


def test_children_left_by_a_repeated_command_are_ended(tmp_path: Path) -> None:
    backend = CommandBackend(SPACE)
    task = backend.task({"workload": {"command": "setsid sleep 1000 & echo $! >> {folder}/pids; : {batch}", "repeats": 2}})
    assert backend.parse(execute(backend.render(Config(batch=1), task, 0), tmp_path), task).ok
    for line in (tmp_path / "pids").read_text().split():
        stat = Path(f"/proc/{line}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_driver_that_never_reported_is_judged_by_its_own_end() -> None:
    backend = CommandBackend(SPACE)
    task = backend.task({"workload": {"command": "true {batch}", "repeats": 2}})
    assert backend.parse(Completed(returncode=1, stderr="Traceback\nboom"), task).status is Status.CRASHED
    assert backend.parse(Completed(returncode=None, timed_out=True), task).status is Status.TIMEOUT
    assert backend.parse(Completed(returncode=-9, out_of_memory=True), task).status is Status.OOM_START
    assert backend.parse(Completed(returncode=0), task).status is Status.CRASHED


def test_the_hand_over_starts_the_server_and_the_benchmark_apart() -> None:
    backend = CommandBackend(SPACE)
    task = backend.task({"workload": {"serve": "serve --port {port} {batch:flag}", "bench": "bench {port}", "find_program": False}})
    files = backend.export(Config(batch=2), task)
    assert files["run.sh"].splitlines()[-1] == 'serve --port "$AUTOSCOUT_PORT" --batch 2'
    assert files["bench_run.sh"].splitlines()[-1] == 'bench "$AUTOSCOUT_PORT"'
    assert 'AUTOSCOUT_PORT="${PORT:-8000}"' in files["run.sh"]
    assert files["run.sh"].startswith("#!/bin/sh\n")

"""The driver: a real server is started, waited for, benchmarked and stopped with everything it left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_launching import BENCH, SERVER, assert_gone, execute

from autoscout.backends.command.backend import PLAN, CommandBackend
from autoscout.backends.command.ports import line_of, meeting_ports, served_ports
from autoscout.core.config import Config
from autoscout.core.launch import Completed
from autoscout.core.trial import Measurement, Status
from autoscout.load.server import free_port, is_up
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


FIXED = """
import http.server, sys
port, answer = int(sys.argv[1]), sys.argv[2]
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(answer.encode())
        if answer == "once" and self.path == "/work":
            import os; os._exit(0)
    def log_message(self, *_): pass
class Server(http.server.HTTPServer):
    allow_reuse_address = True
Server(("127.0.0.1", port), Page).serve_forever()
"""
ASK = """
import sys, time, urllib.request
for part in range(int(sys.argv[2])):
    print("answer", urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/work").read().decode(), sys.argv[3], flush=True)
    time.sleep(0.05)
print("tps: 10")
"""


LOGGED = FIXED.replace("sys.argv[1]), sys.argv[2]", "sys.argv[2]), sys.argv[3]").replace(
    'Server(("127.0.0.1", port), Page).serve_forever()',
    'server = Server(("127.0.0.1", port), Page); print("ready", flush=True); server.serve_forever()',
)
"""The same, started with `--port N`; its log says when it is up."""


def fixed(folder: Path, port: int, answer: str = "ours", count: int = 1, **more: Any) -> Measurement:
    """A campaign that names the port of its server, as many do."""
    files = {"server.py": FIXED, "bench.py": ASK}
    serve, bench = [PYTHON, "server.py", str(port), answer], f"{PYTHON} bench.py {port} {count} {{batch}}"
    return run(folder, serve=serve, bench=bench, files=files, health=f"http://127.0.0.1:{port}/", **more)


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("AUTOSCOUT_LEASES", str(tmp_path / "leases"))
    return free_port()


def test_a_server_of_somebody_else_is_never_measured(tmp_path: Path, port: int) -> None:
    (tmp_path / "foreign.py").write_text(FIXED)
    foreign = subprocess.Popen([PYTHON, str(tmp_path / "foreign.py"), str(port), "foreign"])
    try:
        while not is_up(f"http://127.0.0.1:{port}/"):
            time.sleep(0.05)
        (tmp_path / "trial").mkdir()
        done = fixed(tmp_path / "trial", port)
    finally:
        foreign.kill()
        foreign.wait()
    assert done.status is Status.CRASHED
    assert "answers at the health address before the server was started" in done.reason
    (tmp_path / "again").mkdir()
    assert fixed(tmp_path / "again", port).ok


def test_a_server_that_ended_before_its_benchmark_is_a_crash(tmp_path: Path, port: int) -> None:
    done = fixed(tmp_path, port, answer="once")
    assert done.status is Status.CRASHED, done
    assert "the server ended" in done.reason


def test_studies_of_one_machine_take_turns_at_a_port(tmp_path: Path, port: int) -> None:
    names = ("one", "two", "three")
    for name in names:
        (tmp_path / name).mkdir()
    with ThreadPoolExecutor() as pool:
        trials = list(pool.map(lambda name: fixed(tmp_path / name, port, answer=name, count=10), names))
    for name, trial in zip(names, trials, strict=True):
        said = "".join(path.read_text() for path in (tmp_path / name).rglob("run0.stdout"))
        assert trial.ok, trial
        assert said.count(f"answer {name} ") == 10, said


def test_studies_take_turns_at_the_port_of_a_command_whose_log_says_when_it_is_up(tmp_path: Path, port: int) -> None:
    names = ("one", "two", "three")

    def measured(name: str) -> Measurement:
        (tmp_path / name).mkdir()
        files = {"server.py": LOGGED, "bench.py": ASK}
        serve, bench = f"exec {PYTHON} server.py --port {port} {name}", f"{PYTHON} bench.py {port} 10 {{batch}}"
        return run(tmp_path / name, serve=serve, bench=bench, files=files, health={"log": "^ready"})

    with ThreadPoolExecutor() as pool:
        trials = list(pool.map(measured, names))
    for name, trial in zip(names, trials, strict=True):
        said = "".join(path.read_text() for path in (tmp_path / name).rglob("run0.stdout"))
        assert trial.ok, trial
        assert said.count(f"answer {name} ") == 10, said


@pytest.mark.parametrize(
    ("command", "ports"),
    [
        ({"shell": "vllm serve m --port 8000"}, {8000}),
        ({"argv": ["llama-server", "--port=8080", "-m", "x"]}, {8080}),
        ({"argv": ["sh", "-c", "cd x && serve --port '9000'"]}, {9000}),
        ({"shell": "serve -p 8000"}, {8000}),
        ({"shell": "serve -p8000 -m x"}, {8000}),
        ({"shell": "serve -p 16 -c 8192"}, set()),
        ({"shell": "serve --server-port 8000 --metrics_port=8001"}, {8000, 8001}),
        ({"shell": "cd x; PORT=8000 python serve.py"}, {8000}),
        ({"shell": "export HTTP_PORT='8000' && serve"}, {8000}),
        ({"shell": "gunicorn app --bind 0.0.0.0:8000"}, {8000}),
        ({"shell": "serve --listen=:8000 --advertise tcp://127.0.0.1:8001"}, {8000, 8001}),
        ({"shell": "serve --port 8000 & serve --port 8001"}, {8000, 8001}),
        ({"shell": "serve --port {port}"}, set()),
        ({"shell": "serve --port {port} --redis localhost:6379 --db-port 5432"}, set()),
        ({"shell": "sglang serve m --port {port} --dist-init-addr 127.0.0.1:20000 --nccl-port 28000"}, {20000, 28000}),
        ({"shell": "serve --port 80000; serve --ports 8000 --port 8000x"}, set()),
        ({"shell": "serve --image registry.example:5000/x --at 10:30 --node host1:9000"}, set()),
        ({"argv": ["serve", "8000"]}, set()),
    ],
)
def test_the_ports_of_a_server(command: dict[str, Any], ports: set[int]) -> None:
    assert served_ports(line_of(command)) == ports


def test_ports_of_variables_and_of_a_health_address() -> None:
    assert served_ports("serve", {"PORT": "8000", "REPORT": "7000", "SUPPORT": "7001"}, "http://localhost:8001/health") == {8000, 8001}
    assert served_ports("serve", {}, "http://other.example:8001/health") == set()
    assert served_ports("serve --port {port}", {"PORT": "{port}"}, "http://127.0.0.1:{port}/health") == set()


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        ("torchrun --nproc-per-node 2 --master_port 29501 train.py", {29501}),
        ("torchrun --master-port=29501 train.py --port 8000", {29501}),
        ("torchrun --rdzv-endpoint localhost:29502 train.py", {29502}),
        ("torchrun --rdzv_endpoint=host1:29502 train.py", set()),
        ("accelerate launch --main_process_port 29503 train.py", {29503}),
        ("MASTER_ADDR=127.0.0.1 MASTER_PORT=29504 python train.py", {29504}),
        ("curl http://127.0.0.1:8000/ --port 8000", set()),
    ],
)
def test_the_ports_at_which_a_training_meets(line: str, ports: set[int]) -> None:
    assert meeting_ports(line) == ports

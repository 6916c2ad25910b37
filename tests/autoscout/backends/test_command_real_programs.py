"""`command` as real programs need it: settings left out, results in the trial folder, scripts that can be moved, reasons of failures."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_launching import BENCH, SERVER, execute

from autoscout.analysis.labels import differences
from autoscout.backends.command.backend import CommandBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Task
from autoscout.core.trial import Status
from autoscout.space.yaml import read_space

PYTHON = sys.executable
SHOW = f"{PYTHON} -c 'import sys, os; print(sys.argv[1:], os.environ.get(\"MODE\"))'"
KNOBS = {"mode": {"values": [None, "a b", "c"]}, "depth": {"range": [1, 4], "when": "mode != null"}}


def made(workload: dict[str, Any], knobs: dict[str, Any] = KNOBS, **more: Any) -> tuple[CommandBackend, Task]:
    backend = CommandBackend()
    return backend, backend.task({"workload": workload, "space": {"knobs": knobs}, **more})


@pytest.mark.parametrize(
    "command",
    [
        f"{SHOW} [--mode {{mode}}] {{depth:flag}} end",
        [*SHOW.split(" ", 2)[:2], SHOW.split("'")[1], ["--mode", "{mode}"], "{depth:flag}", "end"],
    ],
)
def test_null_leaves_the_whole_setting_out(command: Any, tmp_path: Path) -> None:
    files = {"c.json": {"mode": "$mode", "keep": 1}, "c.txt": "mode = {mode}\nkeep = 1\n"}
    backend, task = made({"command": command, "env": {"MODE": "{mode}"}, "files": files})
    default = backend.space(task).default()
    assert default == Config(mode=None)
    said = execute(backend.render(default, task, 0), tmp_path)
    assert said.stdout == "['end'] None\n", said.stderr
    assert json.loads((tmp_path / "c.json").read_text()) == {"keep": 1}
    assert (tmp_path / "c.txt").read_text() == "keep = 1\n"
    given = Config(mode="a b", depth=2)
    assert execute(backend.render(given, task, 0), tmp_path).stdout == "['--mode', 'a b', '--depth', '2', 'end'] a b\n"
    assert (tmp_path / "c.txt").read_text() == "mode = a b\nkeep = 1\n"
    script = backend.export(default, task)["run.sh"]
    assert "--mode" not in script
    assert "export MODE" not in script
    assert [(change.knob, change.before, change.after) for change in differences(default, given)] == [
        ("depth", "-", "2"),
        ("mode", "not given", "a b"),
    ]


@pytest.mark.parametrize(("form", "given", "absent"), [("{x:flag}", "--x 2", ""), ("{flags}", "--x 2", ""), ("{x|none}", "2", "none")])
def test_forms_that_take_null(form: str, given: str, absent: str) -> None:
    backend, task = made({"command": f"echo {form}"}, {"x": {"values": [None, 2]}})
    assert backend.render(Config(x=2), task, 0).argv[0].endswith(f"echo {given}")
    assert backend.render(Config(x=None), task, 0).argv[0].endswith(f"echo {absent}")


def test_a_switch_may_be_left_out_too() -> None:
    backend, task = made({"command": "echo {fast:flag} {fast:switch}"}, {"fast": {"values": [None, True, False]}})
    lines = [backend.render(Config(fast=value), task, 0).argv[0].rpartition("echo ")[2].split() for value in (None, True, False)]
    assert lines == [[], ["--fast", "--fast"], ["--no-fast"]]


def test_a_slot_that_null_would_leave_empty_is_refused() -> None:
    with pytest.raises(ConfigError, match="may be null, which means not given, so its slot would stay empty"):
        made({"command": "run --x {x}", "find_program": False}, {"x": {"values": [None, 2]}})
    with pytest.raises(ConfigError, match="can never be left out"):
        made({"command": "run [--x {x}]", "find_program": False}, {"x": {"values": [1, 2]}})


def test_resources_of_a_setting_that_is_not_given() -> None:
    backend, task = made({"command": "echo {x:flag}", "resources": {"cpus": "x", "memory_gb": 2}}, {"x": {"values": [None, 3]}})
    assert backend.render(Config(x=3), task, 0).resources.cpus == 3
    left_out = backend.render(Config(x=None), task, 0).resources
    assert (left_out.cpus, left_out.memory_gb) == (1, 2)


def test_null_survives_the_file_of_a_space_and_is_typed_as_people_say_it() -> None:
    knob = read_space({"knobs": KNOBS}).knobs["mode"]
    assert [knob.parse(text) for text in ("null", "none", "not given", "c")] == [None, None, None, "c"]
    both = read_space({"knobs": {"x": {"values": [None, "none"]}}}).knobs["x"]
    assert [both.parse(text) for text in ("none", "null")] == ["none", None], "a text that is one of the values means itself"


@pytest.mark.parametrize("listed", [True, False])
def test_a_benchmark_that_takes_folder_and_file_name_apart(listed: bool, tmp_path: Path) -> None:
    bench = """
import argparse, json, pathlib, urllib.request
p = argparse.ArgumentParser()
for name in ("--port", "--result-dir", "--result-filename"): p.add_argument(name)
p.add_argument("--save-result", action="store_true")
a = p.parse_args()
reply = int(urllib.request.urlopen(f"http://127.0.0.1:{a.port}/").read())
result = {"date": "x", "request_rate": "inf", "max_concurrency": None, "output_throughput": 10.0 * reply, "p99_ttft_ms": 3.5}
pathlib.Path(a.result_dir, a.result_filename).write_text(json.dumps(result))
"""
    words = [
        PYTHON,
        str(tmp_path / "bench.py"),
        "--port",
        "{port}",
        "--save-result",
        "--result-dir",
        "{folder}",
        "--result-filename",
        "bench.json",
    ]
    workload = {
        "serve": [PYTHON, str(tmp_path / "server.py"), "{port}", "fine", "{flags}"],
        "bench": words if listed else " ".join(words),
        "metrics": {"output_throughput": "json:bench.json#output_throughput", "p99_ttft_ms": {"json": "p99_ttft_ms", "file": "bench.json"}},
        "repeats": 2,
    }
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "bench.py").write_text(bench)
    backend, task = made(workload, {"x": [1, 2]}, goal={"metric": "output_throughput"})
    done = backend.parse(execute(backend.render(Config(x=1), task, 0), tmp_path / "trial"), task)
    assert done.ok, done
    assert (done.metrics["output_throughput"], done.metrics["p99_ttft_ms"]) == (50.0, 3.5)
    assert done.samples["output_throughput"] == (50.0, 50.0)


@pytest.mark.parametrize("cwd", ["{folder}", None])
def test_the_handed_over_folder_may_be_moved(cwd: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "data.txt").write_text("data\n")
    monkeypatch.chdir(project)
    line = "cat {folder}/c.json data.txt 2>/dev/null; pwd; echo {x}"
    backend, task = made({"command": line, "files": {"c.json": {"x": "$x"}}, **({"cwd": cwd} if cwd else {})}, {"x": [1, 2]})
    first = tmp_path / "results" / "best"
    first.mkdir(parents=True)
    for name, text in backend.export(Config(x=2), task).items():
        (first / name).write_text(text)
    assert str(first) not in (first / "run.sh").read_text()
    moved = tmp_path / "-else where" / "it's"
    moved.parent.mkdir()
    shutil.move(first, moved)
    shutil.move(project, tmp_path / "project 2")
    environment = {"PATH": "/usr/bin:/bin", "CDPATH": str(tmp_path), "WORKDIR": str(tmp_path / "project 2")}
    done = subprocess.run(["sh", "it's/run.sh"], cwd=moved.parent, env=environment, capture_output=True, text=True, check=True)
    assert json.loads("".join(done.stdout.splitlines()[:3])) == {"x": 2}
    assert done.stdout.splitlines()[-2:] == [str(moved if cwd else tmp_path / "project 2"), "2"]
    assert ("data" in done.stdout) == (cwd is None)


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("import pydantic\nclass M(pydantic.BaseModel):\n  n: int\nM(n='x')", Status.INVALID, "for M: n: Input should be a valid integer"),
        ("import argparse; p = argparse.ArgumentParser(prog='p'); p.add_argument('--n', type=int); p.parse_args(['--n', 'x'])",
         Status.INVALID, "p: error: argument --n: invalid int value: 'x'"),
        ("import sys; print('\\033[31mRuntimeError: CUDA error: an illegal memory access\\033[0m', file=sys.stderr); sys.exit(1)",
         Status.CRASHED, "exit code 1: RuntimeError: CUDA error: an illegal memory access"),
        ("import sys; print('torch.OutOfMemoryError: CUDA out of memory. Tried', 'Warning: bye', sep='\\n', file=sys.stderr); sys.exit(1)",
         Status.OOM_START, "torch.OutOfMemoryError: CUDA out of memory. Tried"),
        ("raise KeyError('layer')", Status.CRASHED, "exit code 1: KeyError: 'layer'"),
    ],
)  # fmt: skip
def test_the_reason_is_the_line_that_tells_why(program: str, status: Status, reason: str, tmp_path: Path) -> None:
    backend, task = made({"command": [PYTHON, "-c", program, "{flags}"]}, {"x": [1, 2]})
    done = backend.parse(execute(backend.render(Config(x=1), task, 0), tmp_path), task)
    assert done.status is status, done
    assert reason in done.reason
    assert "\033" not in done.reason + done.log_tail


def test_the_reason_of_a_server_comes_from_its_own_log(tmp_path: Path) -> None:
    serve = "import sys; print('no such quantization: q9', file=sys.stderr); raise ValueError('unknown quantization q9')"
    workload = {
        "serve": [PYTHON, "-c", serve, "{port}", "{flags}"],
        "bench": [PYTHON, "-c", BENCH, "{port}"],
        "metrics": {"t": "regex:(1)"},
    }
    backend, task = made(workload, {"x": [1, 2]}, goal={"metric": "t", "direction": "minimize"})
    done = backend.parse(execute(backend.render(Config(x=1), task, 0), tmp_path), task)
    assert done.status is Status.CRASHED
    assert done.reason == "the server ended with exit code 1: ValueError: unknown quantization q9"

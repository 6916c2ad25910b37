"""The `command` backend on real little programs: right ones, and every way of going wrong."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_launching import execute

from autoscout.backends.command.backend import CommandBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, SpaceError
from autoscout.core.launch import Completed
from autoscout.core.protocols import Backend
from autoscout.core.task import Direction, Task
from autoscout.core.trial import Measurement, Status
from autoscout.space import Choice, Flag, Grid, Space

PYTHON = sys.executable
SPACE = Space([Choice("batch", [1, 2, 4]), Flag("fast"), Grid("bucket_mb", 1, 64, log=True, when="fast"), Choice("kind", ["a", "it's b"])])
CONFIG = Config(batch=2, fast=True, bucket_mb=8, kind="it's b")
OFF = Config(batch=2, fast=False, kind="a")
ALL = "{batch} {fast:flag} [--bucket {bucket_mb}] {kind}"


def task_of(command: Any, goal: Any = None, **workload: Any) -> tuple[CommandBackend, Task]:
    backend = CommandBackend(SPACE)
    return backend, backend.task({"workload": {"command": command, **workload}, "goal": goal or {"metric": "wall_s"}})


def measure(command: Any, folder: Path, goal: Any = None, config: Config = CONFIG, **workload: Any) -> Measurement:
    backend, task = task_of(command, goal, **workload)
    launch = backend.render(config, task, seed=7)
    return backend.parse(execute(launch, folder), task)


def faults_of(given: dict[str, Any], space: Space | None = SPACE) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        CommandBackend(space).task(given)
    assert caught.value.exit_code == 2
    return [str(fault) for fault in caught.value.faults]


def test_it_is_a_backend() -> None:
    assert isinstance(CommandBackend(), Backend)


def test_a_shell_line_prints_its_metric(tmp_path: Path) -> None:
    line = f"echo {ALL} seed={{seed}}; echo 'tps: 12.5'"
    done = measure(line, tmp_path, goal={"metric": "tps"}, metrics={"tps": "regex:tps: ([0-9.]+)"})
    assert done.status is Status.OK
    assert done.metrics["tps"] == 12.5
    assert done.metrics["wall_s"] > 0
    assert (tmp_path / "out").read_text().splitlines()[0] == "2 --fast --bucket 8 it's b seed=7"


def test_a_metric_that_nothing_prints() -> None:
    told = faults_of({"workload": {"command": "echo 3 {flags}"}, "goal": {"metric": "tps", "slo": ["wall_ss<=3"]}})
    assert told == [
        "goal: metric: no such metric (found 'tps'). Say where it is printed, such as -w 'metrics.tps=regex:tps ([0-9.]+)'",
        "goal: slo: no such metric (found 'wall_ss'). Did you mean 'wall_s'?",
    ]


def test_inactive_knobs_leave_nothing_behind(tmp_path: Path) -> None:
    line = f"echo {ALL}; echo bucket=${{BUCKET-unset}} batch=$BATCH"
    done = measure(line, tmp_path, config=OFF, env={"BUCKET": "{bucket_mb}", "BATCH": "{batch}"})
    assert done.ok
    assert (tmp_path / "out").read_text().splitlines() == ["2 --no-fast a", "bucket=unset batch=2"]


def test_an_argument_list_needs_no_quoting(tmp_path: Path) -> None:
    show = "import sys, json; print(json.dumps({'args': sys.argv[1:], 'n': 3}))"
    command = [PYTHON, "-c", show, "{batch:flag}", "--kind={kind}", ["--bucket", "{bucket_mb}"], "{fast:switch}", "{folder}/x"]
    show_backend, task = task_of(command, goal={"metric": "n", "direction": "maximize"}, metric="json:n")
    done = execute(show_backend.render(CONFIG, task, 0), tmp_path / "on")
    expected = ["--batch", "2", "--kind=it's b", "--bucket", "8", "--fast", f"{tmp_path}/on/x"]
    assert json.loads(done.stdout)["args"] == expected
    assert show_backend.parse(done, task).metrics["n"] == 3
    done = execute(show_backend.render(OFF, task, 0), tmp_path / "off")
    assert json.loads(done.stdout)["args"] == ["--batch", "2", "--kind=a", f"{tmp_path}/off/x"]


def test_flags_stand_for_every_knob_not_named(tmp_path: Path) -> None:
    assert measure("echo {batch} {flags}", tmp_path).ok
    assert (tmp_path / "out").read_text() == "2 --fast --bucket-mb 8 --kind it's b\n"


def test_a_command_that_names_no_knob_gets_them_all(tmp_path: Path) -> None:
    expected = "2 --fast --bucket-mb 8 --kind it's b\n"
    for command, whole in (("echo 2", "echo 2 {flags}"), (["echo", 2], ["echo", 2, "{flags}"])):
        backend, task = task_of(command)
        assert task.workload["command"] == whole
        assert execute(backend.render(CONFIG, task, 0), tmp_path).stdout == expected.replace("2 --fast", "2 --batch 2 --fast")
        assert backend.task(task.to_json()) == task
    assert "used nowhere" in "".join(faults_of({"workload": {"command": "echo 2 | cat"}})), "where would the flags go?"
    serve = CommandBackend(SPACE).task({"workload": {"serve": "serve m --port {port}", "bench": "bench {port}", "find_program": False}})
    assert serve.workload["serve"] == "serve m --port {port} {flags}"


def test_config_files(tmp_path: Path) -> None:
    files = {
        "ds.json": {"batch": "$BATCH", "zero": {"bucket": "$bucket_mb"}, "fast": "$fast", "note": "b=$batch"},
        "deep/ds.yaml": {"kind": "$kind", "zero": {"bucket": "$bucket_mb"}},
        "run.cfg": "batch = {batch}\nbucket = ${bucket_mb}\nother = {unknown} $HOME\nliteral = {{batch}} $$batch\n",
    }
    backend, task = task_of("cat {folder}/ds.json", files=files)
    launch = backend.render(OFF, task, 0)
    assert json.loads(launch.files["ds.json"]) == {"batch": 2, "fast": False, "note": "b=2"}
    assert launch.files["deep/ds.yaml"] == "kind: a\n"
    assert launch.files["run.cfg"] == "batch = 2\nother = {unknown} $HOME\nliteral = {batch} $batch\n"
    on = backend.render(CONFIG, task, 0)
    assert json.loads(on.files["ds.json"])["zero"] == {"bucket": 8}
    assert "bucket = 8\n" in on.files["run.cfg"]
    assert execute(on, tmp_path).stdout == on.files["ds.json"]


def test_a_file_may_be_taken_from_a_template_on_disk(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"batch": "$batch"}')
    (tmp_path / "note.txt").write_text("@home {kind}\n")
    files = {"config.json": "@ds.json", "note.txt": "@note.txt", "yes.txt": "{fast} {bucket_mb}"}
    backend, task = task_of("true", files=files, cwd=str(tmp_path))
    assert backend.task(task.to_json()) == task, "the files are in the task now, not read again"
    launch = backend.render(CONFIG, task, 0)
    assert json.loads(launch.files["config.json"]) == {"batch": 2}
    assert launch.files["note.txt"] == "@home it's b\n"
    assert "cannot be read" in "".join(faults_of({"workload": {"command": "true {flags}", "files": {"a.json": "@missing.json"}}}))


def test_the_command_runs_where_the_user_is_unless_told_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "it's home"
    home.mkdir()
    (home / "bench.sh").write_text("pwd; echo 5\n")
    monkeypatch.chdir(home)
    for command in ("sh bench.sh {flags}", ["sh", "bench.sh", "{flags}"]):
        backend, task = task_of(command)
        monkeypatch.chdir("/")
        assert execute(backend.render(CONFIG, task, 0), tmp_path / "trial").stdout == f"{home}\n5\n"
        monkeypatch.chdir(home)
    backend, task = task_of("pwd; : {flags}", cwd="{folder}")
    assert execute(backend.render(CONFIG, task, 0), tmp_path / "trial").stdout == f"{tmp_path}/trial\n"


def test_a_result_file(tmp_path: Path) -> None:
    line = 'echo \'{"a": {"tps": 3}}\' > {folder}/r.json; : {flags}'
    done = measure(line, tmp_path, goal={"metric": "tps"}, metrics={"tps": {"json": "a.tps", "file": "r.json"}})
    assert done.metrics["tps"] == 3


def test_a_result_file_outside_the_trial_folder_is_refused() -> None:
    workload = {"command": "bench --out r.json {flags}", "metrics": {"tps": "json:r.json#tps"}, "find_program": False}
    assert "Write {folder}/r.json" in "".join(faults_of({"workload": workload}))


def test_several_metrics_at_once(tmp_path: Path) -> None:
    metrics = {"tps": {"regex": r"tps=(?P<value>\S+)", "pick": "mean"}, "ttft_ms": "json:ttft", "total_s": {"wall": True}}
    done = measure("printf 'tps=1\\ntps=3\\n'; echo '{\"ttft\": 9}'; : {flags}", tmp_path, goal={"metric": "tps"}, metrics=metrics)
    assert done.metrics["tps"] == 2
    assert done.samples["tps"] == (1.0, 3.0)
    assert done.metrics["ttft_ms"] == 9
    assert done.metrics["total_s"] == done.metrics["wall_s"]


def test_all_numbers_of_a_bench_file(tmp_path: Path) -> None:
    line = 'echo \'{"output_throughput": 5, "mean_ttft_ms": 2, "model": "m"}\'; : {flags}'
    done = measure(line, tmp_path, goal={"metric": "output_throughput", "slo": ["mean_ttft_ms<=3"]}, metrics={"*": {"json": ""}})
    assert {"output_throughput": 5.0, "mean_ttft_ms": 2.0}.items() <= done.metrics.items()


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        ("echo boom >&2; exit 3", Status.CRASHED, "exit code 3: boom"),
        ("kill -SEGV $$", Status.CRASHED, "exit code"),
        ("no-such-program-here", Status.CRASHED, "not found"),
        ("echo 'RuntimeError: CUDA out of memory. Tried to allocate' >&2; exit 1", Status.OOM_START, "CUDA out of memory"),
        (f"{PYTHON} -c 'raise MemoryError'", Status.OOM_START, "MemoryError"),
        ("echo \"terminate called after throwing an instance of 'std::bad_alloc'\" >&2; exit 134", Status.OOM_START, "bad_alloc"),
        ("kill -KILL $$", Status.OOM_START, "killed for memory"),
        ("echo 'tps: 5'; echo 'Out of memory' >&2; exit 1", Status.OOM_RUN, "Out of memory"),
        ("echo 'out of memory'; exit 0", Status.OOM_START, "without its metric"),
        (f"{PYTHON} -c 'import argparse; argparse.ArgumentParser().parse_args([\"--x\"])'", Status.INVALID, "unrecognized arguments"),
        ("echo 'usage: prog [-h]'; exit 2", Status.INVALID, "usage"),
        ("exit 2", Status.CRASHED, "exit code 2"),
        ("ls --no-such-option-at-all", Status.INVALID, "unrecognized option"),
        ("exit 0", Status.WRONG_OUTPUT, "was not found"),
        ("echo 'tps: nan'", Status.WRONG_OUTPUT, "is nan"),
        ("echo 'tps: banana'", Status.WRONG_OUTPUT, "not a number"),
        ("head -c 3000 /dev/urandom", Status.WRONG_OUTPUT, "was not found"),
        ("echo 'tps: 5'", Status.OK, ""),
    ],
)
def test_every_kind_of_end(line: str, status: Status, reason: str, tmp_path: Path) -> None:
    metrics = {"tps": r"regex:tps: (\S+)"}
    done = measure(f": {{flags}}; {line}", tmp_path, goal={"metric": "tps"}, metrics=metrics, find_program=False)
    assert done.status is status, done
    assert reason in done.reason
    assert bool(done.metrics) == done.ok
    assert done.ok or done.log_tail or line in ("exit 0", "exit 2", "kill -KILL $$", "kill -SEGV $$")


def test_a_hanging_command_is_a_timeout(tmp_path: Path) -> None:
    done = measure("sleep 60 & sleep 60; : {flags}", tmp_path, limit_s=0.5)
    assert done.status is Status.TIMEOUT
    assert "did not end in time" in done.reason


def test_memory_before_and_after_ready(tmp_path: Path) -> None:
    line = ": {flags}; echo model loaded; echo out of memory; exit 1"
    assert measure(line, tmp_path / "a", ready="model loaded").status is Status.OOM_RUN
    assert measure(line, tmp_path / "b", ready="serving").status is Status.OOM_START


def test_own_patterns_come_first(tmp_path: Path) -> None:
    line = ": {flags}; echo 'E4711: arena exhausted'; exit 1"
    assert measure(line, tmp_path / "a", oom_patterns=["arena exhausted"]).status is Status.OOM_START
    assert measure(line, tmp_path / "b", invalid_patterns="E47\\d+").status is Status.INVALID
    assert measure(line, tmp_path / "c").status is Status.CRASHED


def test_success_with_a_wrong_answer(tmp_path: Path) -> None:
    line = ": {flags}; echo 'tps: 5'; echo 'accuracy: 0.1'; echo FAIL"
    metrics = {"tps": r"regex:tps: (\S+)", "accuracy": r"regex:accuracy: (\S+)"}
    for number, check in enumerate(["PASS", {"regex": "FAIL", "absent": True}, {"expression": "accuracy >= 0.9"}]):
        done = measure(line, tmp_path / str(number), goal={"metric": "tps"}, metrics=metrics, check=check)
        assert done.status is Status.WRONG_OUTPUT
        assert not done.metrics
    done = measure(line, tmp_path / "good", goal={"metric": "tps"}, metrics=metrics, checks=["FAIL", {"expression": "accuracy < 0.5"}])
    assert done.ok


def test_what_the_executor_knows_counts() -> None:
    backend, task = task_of("true {flags}")
    assert backend.parse(Completed(returncode=None, cancelled=True), task).status is Status.ABORTED
    assert backend.parse(Completed(returncode=-9, out_of_memory=True), task).status is Status.OOM_START
    assert backend.parse(Completed(returncode=None, error="no such folder"), task).status is Status.CRASHED
    done = backend.parse(Completed(returncode=0, wall_s=2.0, peak_memory_gb=1.5, conditions={"cpu_pressure": 0.5}), task)
    assert done.metrics == {"wall_s": 2.0, "peak_mem_gib": 1.5}
    assert done.conditions == {"cpu_pressure": 0.5}
    assert done.cost_s == 2.0


def test_resources_may_depend_on_knobs() -> None:
    backend, task = task_of("true {flags}", resources={"gpus": "batch * 2", "cpus": "{batch}", "memory_gb": 1.5}, limit_s=9)
    launch = backend.render(CONFIG, task, 0)
    assert (launch.resources.gpus, launch.resources.cpus, launch.resources.memory_gb) == (4, 2, 1.5)
    assert launch.limit_s == 9
    assert launch.name.startswith("b2_fT_")


def test_facts_fill_slots_and_constraints(tmp_path: Path) -> None:
    given = {"workload": {"command": "echo {gpus} {layers} {tp}", "facts": {"layers": 12}}, "hardware": {"gpus": 8}}
    backend = CommandBackend(Space([Choice("tp", [1, 2, 4])]))
    task = backend.task(given)
    assert execute(backend.render(Config(tp=2), task, 0), tmp_path).stdout == "8 12 2\n"
    assert task.facts["layers"] == 12
    assert backend.task(task.to_json()) == task


def test_the_direction_is_read_from_the_name_or_asked_for() -> None:
    def direction(metric: str) -> Direction:
        return task_of("true {flags}", goal={"metric": metric}, metrics={metric: "regex:(x)"})[1].objective.direction

    assert direction("output_throughput") is Direction.MAXIMIZE
    assert direction("tokens_per_s") is Direction.MAXIMIZE
    assert direction("median_ttft_ms") is Direction.MINIMIZE
    assert direction("step_time_s") is Direction.MINIMIZE
    workload = {"command": "true {flags}", "metrics": {"score": "regex:(x)"}}
    assert "is more score better, or less?" in "".join(faults_of({"workload": workload}))
    told = CommandBackend(SPACE).task({"workload": workload, "goal": {"direction": "maximize"}})
    assert told.objective.metric == "score"


def test_a_lone_metric_belongs_to_the_goal() -> None:
    _, task = task_of("true {flags}", goal={"metric": "tps"}, metric="regex:(.)")
    assert list(task.workload["metrics"]) == ["tps"]
    assert "what is the number called" in "".join(faults_of({"workload": {"command": "true {flags}", "metric": "regex:(.)"}}))


def test_reading_a_task_again_changes_nothing() -> None:
    backend, task = task_of(
        f"echo {ALL}",
        goal={"metric": "tps", "direction": "maximize", "slo": ["wall_s<=3"]},
        metrics={"tps": {"regex": "(x)", "pick": "mean", "skip": 2}},
        checks=["PASS", {"json": "a", "equals": 1}],
        env={"A": "{batch}", "N": 3, "T": True},
        ready="up",
        oom_patterns=["x"],
        repeats=2,
        resources={"gpus": "batch"},
        limit_s=30,
    )
    again = backend.task(json.loads(json.dumps(task.to_json())))
    assert again == task
    assert again.key == task.key
    assert backend.render(CONFIG, again, 1) == backend.render(CONFIG, task, 1)


def test_all_faults_of_a_workload_at_once() -> None:
    workload = {
        "comand": "x",
        "command": "no-such-program {bach} {bucket_mb} {batch:%} [{batch}]",
        "env": {"bad name": "1", "X": "{nope}"},
        "files": {"../x": "a", "y.txt": {"a": 1}, "z.json": {"a": "$bathc"}},
        "metrics": {"tps": {"regex": "("}},
        "check": {"json": "a"},
        "repeats": 0,
        "limit_s": "soon",
        "resources": {"gpus": "1 +", "tpus": 1},
        "health": "http://x",
    }
    found = faults_of({"workload": workload})
    places = ["comand", "bad name", "../x", "y.txt", "metrics.tps.regex", "checks.0", "repeats", "limit_s", "gpus", "tpus", "health"]
    rules = ["Did you mean 'command'", "Did you mean 'batch'", "{bach}", "{nope}", "bathc", "no value unless fast"]
    rules += ["can never be left out", "knob kind is used nowhere", "not on this machine"]
    for part in (*places, *rules):
        assert any(part in fault for fault in found), (part, found)


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        ({}, "takes `command`, or `serve` with `bench`"),
        ({"command": "a", "serve": "b", "bench": "c"}, "takes `command`"),
        ({"serve": "b"}, "takes `command`"),
        ({"command": 5}, "a line for the shell or a list"),
        ({"command": "true", "metric": "wall", "metrics": {"a": "wall"}}, "only one may be given"),
        ({"command": "true {flags}", "cwd": "/no/such/folder"}, "must be a folder that exists"),
        ({"command": "true {flags}", "files": {"a.txt": "{folder}"}}, "not known when files are written"),
        ({"command": "true {batch:switch} {flags}"}, "not a boolean"),
        ({"command": "true {kind:.2f} {flags}"}, "cannot be written in the format"),
        ({"command": "true {flags}", "resources": {"gpus": "kind"}}, "must come to a number"),
        ({"command": "true {flags}", "resources": {"cpus": 0}}, "whole number of at least 1"),
        ({"command": "true {flags}", "resources": {"gpus": 1.5}}, "whole number of at least 0"),
        ({"command": "true {flags}", "resources": {"memory_gb": -1}}, "number of at least 0"),
        ({"command": "true {flags}", "facts": 3}, "facts: must be a mapping"),
        ({"command": "true {flags}", "env": {"A": [1]}}, "env.A: takes a text or number"),
        ({"command": "true {flags}", "metrics": {"a b": "wall"}}, "letters, digits and underscores"),
        ({"command": "true {flags}", "env": {"WÖRT": "1"}}, "env.WÖRT: the name of a variable"),
        ({"serve": "s {port}", "bench": "b", "health": {"urls": "x"}}, "Did you mean 'url'?"),
        ({"command": "true {flags}", "resources": {"gpus": "tp"}}, "neither a knob nor a fact"),
        ({"command": ["true", "{bucket_mb}", "{flags}"]}, "a nested list around"),
    ],
)
def test_one_fault_each(workload: dict[str, Any], why: str) -> None:
    found = faults_of({"workload": workload})
    assert any(why in fault for fault in found), found


def test_knobs_may_be_used_only_in_conditions_or_constraints() -> None:
    space = Space(
        [Choice("mode", ["a", "b"]), Choice("x", [1, 2], when="mode == 'a'"), Choice("dp", [1, 2, 4])], ["dp * 2 >= x or mode == 'b'"]
    )
    backend = CommandBackend(space)
    task = backend.task({"workload": {"command": "true [{x}]"}})
    assert set(backend.space(task).knobs) == {"mode", "x", "dp"}


def test_reserved_words_are_not_knobs() -> None:
    assert "must not be called seed" in "".join(faults_of({"workload": {"command": "true {seed}"}}, Space([Choice("seed", [1, 2])])))


def test_a_task_without_a_space_says_what_to_do() -> None:
    backend = CommandBackend()
    task = backend.task({"workload": {"command": "true {x}"}})
    with pytest.raises(ConfigError, match="must be declared"):
        backend.space(task)


def test_a_space_may_come_with_the_task(tmp_path: Path) -> None:
    space = {
        "facts": {"cores": 4},
        "knobs": {"threads": [1, 2, 4, 8], "pin": {"type": "bool", "when": "threads > 1"}},
        "constraints": ["threads <= cores"],
    }
    given = {"workload": {"command": "echo {threads} {cores} {pin:switch}"}, "space": space}
    task = CommandBackend().task(given)
    own = CommandBackend(space=space)
    assert "space" not in own.task({"workload": given["workload"]}).workload, "a study may continue with a changed space"
    assert own.space(own.task({"workload": given["workload"]})) == CommandBackend().space(task)
    backend = CommandBackend()  # another process that knows only the task
    assert backend.space(task).count().value == 5
    assert backend.task(task.to_json()) == task
    assert execute(backend.render(Config(threads=2, pin=True), task, 0), tmp_path).stdout == "2 4 --pin\n"
    with pytest.raises(SpaceError, match="neither a knob nor a fact"):
        CommandBackend().task({**given, "space": {"knobs": {"threads": [1]}, "constraints": ["threads <= cores"]}})


def test_strange_parts_and_goals() -> None:
    found = faults_of(
        {"workload": {"command": "true {flags}"}, "wrkload": {}, "goal": {"metric": "tsp", "direction": "up", "slo": ["x!3"]}}
    )
    assert len(found) >= 4
    found = faults_of({"workload": {"command": "true {flags}", "metrics": {"a_s": "wall", "b_s": "wall"}}})
    assert "which of the metrics" in "".join(found)


def test_the_script_runs_with_files_variables_and_quotes(tmp_path: Path) -> None:
    import subprocess

    files = {"c.json": {"b": "$batch"}}
    env = {"KIND": "{kind}", "WHERE": "{folder}/x", "BUCKET": "{bucket_mb}"}
    home = tmp_path / "my folder"
    show = "import sys, os; print(sys.argv[1:], os.environ['KIND'], os.environ['WHERE'], os.environ.get('BUCKET'))"
    for command in (
        f"cat {{folder}}/c.json; {PYTHON} -c \"{show}\" {{kind}} '{{kind}}' [{{bucket_mb}}] {{fast:flag}}",
        ["sh", "-c", f'cat "$0"; {PYTHON} -c "{show}" "$@"', "{folder}/c.json", "{kind}", "{kind}", ["{bucket_mb}"], "{fast:flag}"],
    ):
        backend, task = task_of(command, files=files, env=env)
        exported = backend.export(CONFIG, task)
        home.mkdir(exist_ok=True)
        for name, text in exported.items():
            (home / name).write_text(text)
        done = subprocess.run(["sh", str(home / "run.sh")], cwd="/", capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"[\"it's b\", \"it's b\", '8', '--fast'] it's b {home}/x 8"
        assert '"b": 2' in done.stdout
        assert "export BUCKET" not in backend.export(OFF, task)["run.sh"]

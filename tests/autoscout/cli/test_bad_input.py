"""Everything a person can get wrong gives one clear error, exit code 2, and loses nothing."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from _cli_program import campaign, run


def refused(here: Path, *arguments: object) -> str:
    """Run the command, see that it exits with 2, writes no traceback, and return what it said."""
    done = run(here, *arguments)
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "Traceback" not in said, said
    return said


def changed(here: Path, **changes: Any) -> Path:
    return campaign(here, **changes)


def test_broken_yaml(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("system: command\nworkload: {command: [1, 2\nbudget: 3\n")
    said = refused(tmp_path, "tune", path)
    assert "bad.yaml:3" in said
    assert "not valid YAML" in said


def test_all_faults_of_a_file_at_once_each_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("system: command\nbudgte: {trials: 3}\nbudget:\n  trials: -1\n  wall: soon\ngoal: {slo: ['p95 about 3']}\n")
    said = refused(tmp_path, "tune", path)
    assert "bad.yaml:2: budgte: unknown key" in said
    assert "Did you mean 'budget'?" in said
    assert "bad.yaml:4: budget.trials" in said
    assert "bad.yaml:5: budget.wall: a duration reads like" in said
    assert "bad.yaml:6: goal.slo.0" in said
    assert said.count("autoscout: ") == 4


def test_a_missing_or_strange_file(tmp_path: Path) -> None:
    assert "no-such.yaml" in refused(tmp_path, "tune", "no-such.yaml")
    (tmp_path / "list.yaml").write_text("- 1\n- 2\n")
    assert "must be a mapping" in refused(tmp_path, "tune", "list.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert "binary.yaml" in refused(tmp_path, "tune", "binary.yaml")


def test_an_unknown_backend_searcher_or_flag(tmp_path: Path) -> None:
    assert "unknown backend; there are: " in refused(tmp_path, "tune", "vlm")
    assert "unknown searcher" in refused(tmp_path, "tune", campaign(tmp_path), "--searcher", "magic")
    assert "--budgte" in refused(tmp_path, "tune", campaign(tmp_path), "--budgte", "3")


def test_unknown_knobs_and_values(tmp_path: Path) -> None:
    said = refused(tmp_path, "tune", campaign(tmp_path), "--set", "xx=1", "--set", "y=77")
    assert "there is no such knob" in said
    assert "Did you mean 'x'" in said
    assert "y" in said
    assert "must be one of [0, 1, 2, 3]" in said
    assert "must read NAME=VALUE" in refused(tmp_path, "tune", campaign(tmp_path), "--set", "x")
    said = refused(tmp_path, "tune", changed(tmp_path, workload={"command": "echo {z}"}))
    assert "z" in said


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set", "x=2024-13-45"], "must be one of [0, 1, 2, 3, 4, 5] (found '2024-13-45')"),
        (["--set", "x=null"], "must be one of"),
        (["--set", "x=[1, 2]"], "set.x: must be a number, text, true or false (found [1, 2])"),
        (["--set", "x=.nan"], "set.x: must be finite"),
        (["--budget", "0"], "budget.wall"),
        (["--metric", ""], "goal.metric"),
        (["-e", "../evil"], "without slashes"),
        (["-e", ""], "without slashes"),
        (["-e", "[/bold]"], "without slashes"),
        (["--ttft", "nan"], "a limit reads"),
        (["--executor", "magic"], "unknown executor"),
        (["--workload", "a.b=3"], "workload: a: unknown key"),
    ],
)
def test_strange_values_of_flags(tmp_path: Path, flags: list[str], words: str) -> None:
    path = campaign(tmp_path)
    said = refused(tmp_path, "tune", path, "--dry-run", *flags)
    assert words in said
    assert said.count("autoscout: ") == 1, "one fault, one line"


def test_known_good_configurations_that_are_not(tmp_path: Path) -> None:
    said = refused(tmp_path, "tune", campaign(tmp_path, first=[{"z": 1}, {"x": 99}]))
    assert "first[0]: z: there is no such knob" in said
    assert "first[1]: x: must be one of" in said


@pytest.mark.parametrize("text", ["x: [1]\ny: 2\n", "1: 2\n", "x: .nan\ny: 1\n", "x: 2024-13-45\ny: 1\n", "x: 1\n"])
def test_configurations_that_no_space_has(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.yaml").write_text(text)
    done = run(tmp_path, "space", "validate", campaign(tmp_path), "--config", "config.yaml", "--json")
    assert done.returncode == 2, done.stderr
    assert json.loads(done.stdout)["reasons"]


def knobs(**changes: Any) -> dict[str, Any]:
    return {"x": {"range": [0, 5], "default": 0}, "y": {"range": [0, 3], "default": 0}, **changes}


@pytest.mark.parametrize(
    ("space", "words"),
    [
        ({"knobs": knobs(x={"range": [0, 5], "when": "y > 0"}, y={"range": [0, 3], "when": "x > 0"})}, ["x", "y"]),
        ({"knobs": knobs(), "constraints": ["x > 3", "x < 2", "y >= 0"]}, ["x > 3", "x < 2"]),
        ({"knobs": knobs(), "constraints": ["__import__('os').system('touch pwned')"]}, ["__import__"]),
        ({"knobs": knobs(), "constraints": ["x.__class__.__mro__ == y"]}, ["x.__class__.__mro__"]),
        ({"knobs": knobs(), "constraints": ["(lambda: 1)() == x"]}, ["lambda"]),
        ({"knobs": knobs(), "constraints": ["9 ** 9 ** 9 ** 9 > x"]}, ["**"]),
        ({"knobs": knobs(x={"range": [0, 5], "default": 9})}, ["default"]),
        ({"knobs": knobs(x={"rnage": [0, 5]})}, ["range"]),
    ],
    ids=["cycle", "unsatisfiable", "import", "attribute", "lambda", "huge", "default", "typo"],
)
def test_broken_spaces_name_the_line_and_the_conflict(tmp_path: Path, space: dict[str, Any], words: list[str]) -> None:
    path = changed(tmp_path, space=space)
    said = refused(tmp_path, "tune", path)
    assert "campaign.yaml:" in said
    assert all(word in said for word in words), said
    assert not (tmp_path / "pwned").exists()
    assert not (tmp_path / "autoscout_results").exists()
    assert refused(tmp_path, "space", "validate", path)


def test_a_conflict_names_only_the_constraints_that_clash(tmp_path: Path) -> None:
    said = refused(tmp_path, "tune", changed(tmp_path, space={"knobs": knobs(), "constraints": ["x > 3", "y >= 0", "x < 2"]}))
    assert "x > 3" in said
    assert "x < 2" in said
    assert "y >= 0" not in said


def test_a_hostfile_with_nonsense(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("worker-1 slots=4\nworker-2 slot=4\nworker-1 slots=2\n???\n")
    said = refused(tmp_path, "tune", campaign(tmp_path), "--hostfile", hosts)
    assert f"{hosts}:2" in said
    assert f"{hosts}:3" in said
    assert f"{hosts}:4" in said
    assert "a line reads `HOST slots=NUMBER`" in said


def test_faults_as_json(tmp_path: Path) -> None:
    done = run(tmp_path, "tune", "vlm", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["faults"][0]["value"] == "'vlm'"
    done = run(tmp_path, "tune", "--json", "--budgte", "3")
    assert done.returncode == 2
    assert "--budgte" in json.loads(done.stdout)["faults"][0]["rule"]


def finish(here: Path) -> tuple[Path, Path]:
    path = campaign(here, budget={"trials": 2}, finals={"rounds": 0})
    run(here, "tune", path).check_returncode()
    return path, here / "autoscout_results" / "numbers"


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path, folder = finish(tmp_path)
    database = sqlite3.connect(folder / "store.db")
    tables = [name for (name,) in database.execute("select name from sqlite_master where type='table'")]
    version = next(name for name in tables if "version" in name or "schema" in name)
    column = database.execute(f"pragma table_info({version})").fetchall()[0][1]
    with database:
        database.execute(f"update {version} set {column} = 999")
    database.close()
    said = refused(tmp_path, "tune", path, "--max-trials", 3)
    assert "999" in said
    assert "store.db" in said
    assert (folder / "trials.jsonl").read_text().count("\n") == 2


def test_another_task_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    path, folder = finish(tmp_path)
    before = (folder / "trials.jsonl").read_bytes()
    data = yaml.safe_load(path.read_text())
    data["goal"]["direction"] = "maximize"
    path.write_text(yaml.safe_dump(data))
    assert "objective" in refused(tmp_path, "tune", path)
    assert (folder / "trials.jsonl").read_bytes() == before
    assert "not a result folder" in refused(tmp_path, "resume", tmp_path)
    assert "not a result folder" in refused(tmp_path, "report", tmp_path / "nowhere")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_stops_the_study_and_keeps_what_is_stored(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", disk], capture_output=True).returncode:
        pytest.skip("this machine does not let us mount a small disk")
    try:
        path = campaign(tmp_path, budget={"trials": 2}, finals={"rounds": 0})
        run(tmp_path, "tune", path, "-o", disk).check_returncode()
        with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"0" * 4096)
        said = refused(tmp_path, "tune", path, "-o", disk, "--max-trials", 6)
        assert "space" in said.lower()
        assert str(disk) in said
        (disk / "filler").unlink()
        done = run(tmp_path, "tune", path, "-o", disk, "--max-trials", 6, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["spent"]["configs"] == 6
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


ENGINES = {
    "missing": (None, "no-such-engine"),
    "crashes": ("raise RuntimeError('engine broke')", "engine broke"),
    "segfaults": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "Segmentation fault"),
    "hangs": ("import time; time.sleep(3600)", "timeout"),
    "garbage": ("import os, sys; sys.stdout.buffer.write(os.urandom(4096))", "score"),
    "lies": ("print('score nan')", "score"),
    "out of memory": ("raise MemoryError('torch.OutOfMemoryError: CUDA out of memory')", "memory"),
}


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_that_never_works(tmp_path: Path, kind: str) -> None:
    script, word = ENGINES[kind]
    changes: dict[str, Any] = {"budget": {"trials": 2}, "measure": {"limit": "2s"}}
    if script is None:
        changes["workload"] = {"command": ["no-such-engine", "{x}", "{y}"]}
    said = refused(tmp_path, "tune", campaign(tmp_path, script=script or "", **changes))
    assert word in said, said


def test_a_trial_that_hangs_does_not_outlast_the_time_budget(tmp_path: Path) -> None:
    path = campaign(tmp_path, script="import time; time.sleep(3600)", budget={"wall": "2s"})
    said = refused(tmp_path, "tune", path)
    assert "NOT DECIDED" in said, "what the budget cut off says nothing about the default"
    assert "a larger budget takes it again" in said


def test_children_that_outlive_a_crashed_engine_are_ended(tmp_path: Path) -> None:
    marker = f"sleep-{os.getpid()}"
    script = f"""
import subprocess, sys
child = "import time, sys; sys.argv = ['{marker}']; time.sleep(3600)  # {marker}"
subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
raise SystemExit(3)
"""
    refused(tmp_path, "tune", campaign(tmp_path, script=script, budget={"trials": 2}))
    alive = [entry for entry in Path("/proc").glob("[0-9]*/cmdline") if marker.encode() in _read(entry)]
    assert not alive


def test_limits_that_nothing_keeps(tmp_path: Path) -> None:
    said = refused(tmp_path, "tune", campaign(tmp_path, goal={"slo": ["score<=0.5"]}, budget={"trials": 2}))
    assert "no configuration worked" in said
    assert "score<=0.5" in said
    assert "the default ended" not in said, "nothing failed"


def test_an_engine_that_vanishes_before_the_final(tmp_path: Path) -> None:
    script = """
import os, sys
print("score", int(sys.argv[1]) + 1)
count = sys.argv[0] + ".count"
open(count, "a").write("x")
if os.path.getsize(count) > 4:  # the default three times, and one other
    sys.exit("the licence has run out")
"""
    said = refused(tmp_path, "tune", campaign(tmp_path, script=script, budget={"trials": 2}))
    assert "the default ended crashed: " in said
    assert "the default ended ok" not in said


def test_exit_0_with_a_wrong_answer(tmp_path: Path) -> None:
    path = campaign(tmp_path, workload={"checks": [{"regex": "answer 42"}]}, budget={"trials": 2})
    said = refused(tmp_path, "tune", path)
    assert "wrong_output" in said
    assert "no configuration worked" in said


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_list_of_points_is_a_space(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('[{"max_num_seqs": 64, "eager": true}, {"max_num_seqs": 128, "eager": false}]')
    done = run(tmp_path, "space", "count", "sweep.json", "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"count": 2, "exact": True})
    assert "max_num_seqs" in run(tmp_path, "space", "show", "sweep.json").stdout


@pytest.mark.parametrize("gpus", [True, [1, 2], 88888888, {"a": 1}])
def test_gpus_that_are_no_number_of_gpus(tmp_path: Path, gpus: object) -> None:
    path = tmp_path / "virtual.yaml"
    path.write_text(yaml.safe_dump({"system": "virtual", "hardware": {"gpus": gpus, "gpu": "A100-80"}, "budget": {"trials": 2}}))
    assert "gpus" in refused(tmp_path, "tune", path, "--dry-run")


def test_files_and_templates_that_no_command_has(tmp_path: Path) -> None:
    files = {"a.json": {1: "x", "b": 2, None: 3}, 3: "text"}
    refused(tmp_path, "tune", changed(tmp_path, workload={"files": files}), "--dry-run")
    said = refused(tmp_path, "tune", changed(tmp_path, workload={"command": "echo {x:999999999} {y}"}), "--dry-run")
    assert "a format is at most 1,000 wide" in said
    assert said.count("autoscout: ") == 1

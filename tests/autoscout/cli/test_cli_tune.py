from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from _cli_program import PROGRAM, campaign
from autoscout.cli.main import main
from autoscout.core.journal import read_trials


def call(*arguments: object) -> int:
    with pytest.raises(SystemExit) as leave:
        main([str(argument) for argument in arguments])
    return int(leave.value.code or 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_study_from_a_file_to_the_hand_over(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call("tune", campaign(here), "--json") == 0
    told = json.loads(capfd.readouterr().out)
    folder = Path(told["files"]["folder"])
    lines = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    assert len(lines) == 6 + 3 + 3 * 3, "the search, the default again, and the final with a simpler one; too few trials to simplify before"
    assert lines[0]["config"] == {"x": 0, "y": 0}, "the default comes first"
    assert {"campaign.yaml", "report.html", "report.json", "summary.csv", "t4.json", "store.db", "best"} <= {
        p.name for p in folder.iterdir()
    }
    assert told["verdict"] == "gain"
    best = told["answer"]
    assert json.loads((folder / "best" / "gain.json").read_text())["handed_over"] == "best"
    printed = subprocess.run([folder / "best" / "run.sh"], capture_output=True, text=True, check=True).stdout
    assert float(printed.split()[1]) == (best["x"] - 3) ** 2 + (best["y"] - 1) ** 2 + 1
    assert float(printed.split()[1]) < 11, "the default scores 11"


def test_running_again_measures_nothing_and_more_budget_goes_on(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here)
    assert call("tune", path, "--json") == 0
    first = json.loads(capfd.readouterr().out)
    assert call("tune", path, "--json") == 0
    again = json.loads(capfd.readouterr().out)
    assert again["spent"]["trials"] == first["spent"]["trials"]
    assert call("resume", first["files"]["folder"], "--max-trials", 8, "--json") == 0
    more = json.loads(capfd.readouterr().out)
    assert more["spent"]["configs"] >= 8  # the final may add the answer without one change
    assert call("report", first["files"]["folder"], "--json") == 0
    assert json.loads(capfd.readouterr().out)["spent"] == more["spent"]


def test_pinned_knobs_and_known_good_configurations(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here, first=[{"x": 3}])
    assert call("tune", path, "--set", "y=1", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    lines = [json.loads(line) for line in Path(told["files"]["journal"]).read_text().splitlines()]
    assert {line["config"]["y"] for line in lines} == {1}
    assert [line["config"]["x"] for line in lines if line["repeat"] == 0][:2] == [0, 3]
    assert told["answer"] == {"x": 3, "y": 1}


def test_a_campaign_whose_configurations_are_listed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    points = [{"x": 1, "y": 0}, {"x": 2, "y": 2}, {"x": 4, "y": 1}]
    path = campaign(here, space={"knobs": {"x": [0, 1, 2, 3, 4], "y": [0, 1, 2]}, "among": points})
    assert call("space", "count", path) == 0
    assert capfd.readouterr().out.strip() == "3"
    assert call("space", "show", path) == 0
    assert "one of 3 listed configurations" in capfd.readouterr().out
    assert call("tune", path, "--json") == 0
    told = json.loads(capfd.readouterr().out)
    lines = [json.loads(line) for line in Path(told["files"]["journal"]).read_text().splitlines()]
    assert {json.dumps(line["config"]) for line in lines} == {json.dumps(point) for point in points}
    assert told["answer"] in ({"x": 4, "y": 1}, {"x": 2, "y": 2})
    assert call("resume", told["files"]["folder"], "--json") == 0
    assert json.loads(capfd.readouterr().out)["spent"]["trials"] == told["spent"]["trials"]


def test_a_study_goes_on_from_any_folder_and_after_a_move(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`campaign.yaml` holds what the first call took from its surroundings: working folder, name, goal, text files."""
    path = campaign(here, workload={"command": f"{sys.executable} program.py {{x}} {{y}}"}, goal={"slo": ["score<=1234567.5"]})
    assert call("tune", path, "--json", "-o", "out") == 0
    first = json.loads(capfd.readouterr().out)
    (here / "out" / "numbers").rename(here / "moved")
    (here / "elsewhere").mkdir()
    os.chdir(here / "elsewhere")
    assert call("resume", "../moved", "--max-trials", 8, "--json") == 0
    more = json.loads(capfd.readouterr().out)
    assert more["spent"]["configs"] >= 8  # the final may add the answer without one change
    assert {**more["task"], "budget": {}} == {**first["task"], "budget": {}}
    assert call("report", here / "moved", "--json") == 0
    assert json.loads(capfd.readouterr().out)["spent"] == more["spent"]


def test_a_refused_call_leaves_the_study_as_it_was(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here)
    for flags in (("--searcher", "magic"), ("--executor", "magic")):
        assert call("tune", path, *flags) == 2
        assert not (here / "autoscout_results").exists()
        assert call("tune", path, *flags, "--dry-run") == 2
    assert call("tune", path) == 0
    folder = here / "autoscout_results" / "numbers"
    before = (folder / "campaign.yaml").read_bytes()
    assert call("resume", folder, "--searcher", "magic") == 2
    assert call("tune", path, "--direction", "maximize") == 2
    assert (folder / "campaign.yaml").read_bytes() == before
    assert call("resume", folder) == 0
    capfd.readouterr()


def test_knobs_pinned_later_hold_for_the_answer(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here, budget={"trials": 12})
    assert call("tune", path, "--json") == 0
    assert json.loads(capfd.readouterr().out)["answer"] == {"x": 3, "y": 1}, "otherwise this test shows nothing"
    assert call("tune", path, "--set", "y=3", "--max-trials", 6, "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["answer"] == {"x": 3, "y": 3}
    assert told["default"]["config"] == {"x": 0, "y": 3}
    assert told["spent"]["configs"] == 6
    assert told["counts"]["measured"] == {"ok": told["spent"]["trials"]}


def test_report_says_whether_the_study_is_finished(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call("tune", campaign(here)) == 0
    folder = here / "autoscout_results" / "numbers"
    capfd.readouterr()
    assert call("report", folder) == 0
    said = capfd.readouterr().out
    assert "ended: trial budget used" in said
    assert "--max-trials N" in said
    text = (folder / "campaign.yaml").read_text()
    for bound, value in (("trials: 6", "trials: 9"), ("rounds: 3", "rounds: 4")):
        (folder / "campaign.yaml").write_text(text.replace(bound, value))
        assert call("report", folder, "--json") == 0
        assert json.loads(capfd.readouterr().out)["stop"] is None


def test_a_result_whose_files_cannot_be_written_is_shown_all_the_same(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call("tune", campaign(here)) == 0
    folder = here / "autoscout_results" / "numbers"
    (folder / "best").rename(folder / "kept")
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()  # a page cannot take the place of a folder
    capfd.readouterr()
    assert call("report", folder, "--json") == 2
    said = capfd.readouterr()
    assert json.loads(said.out)["verdict"] == "gain"
    assert "report.html: results cannot be written" in said.err


def test_no_gain_hands_over_the_default(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here, space={"knobs": {"x": {"range": [0, 5], "default": 3}, "y": {"range": [0, 3], "default": 1}}})
    assert call("tune", path, "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["verdict"] != "gain"
    assert told["answer"] == {"x": 3, "y": 1}
    assert "holds the default" in Path(told["files"]["best"], "README.md").read_text()


def test_dry_run_starts_and_writes_nothing(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here, script="raise SystemExit('must not run')")
    before = sorted(here.iterdir())
    assert call("tune", path, "--dry-run", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told["launches"][0]["config"] == {"x": 0, "y": 0}
    assert len(told["launches"]) == 4
    assert sorted(here.iterdir()) == before


def test_flags_alone_print_the_file_they_stand_for(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here)
    assert call("tune", path, "--dry-run", "--max-trials", 3, "--searcher", "random", "--seed", 7) == 0
    shown = capfd.readouterr().err
    assert "trials: 3" in shown
    assert "seed: 7" in shown


def test_a_study_that_tried_everything_is_finished(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    few = {"knobs": {"x": {"range": [0, 2], "default": 0}, "y": {"range": [0, 0], "default": 0}}}
    for verb in (("tune", campaign(here, space=few)), ("report", here / "autoscout_results" / "numbers")):
        assert call(*verb, "--json") == 0
        assert json.loads(capfd.readouterr().out)["stop"] == "nothing left to propose"


@pytest.mark.slow
def test_processes_that_share_a_study_do_not_overshoot_its_budget(tmp_path: Path) -> None:
    script = "import sys, time\ntime.sleep(0.1)\nprint('score', int(sys.argv[1]) + int(sys.argv[2]))\n"
    space = {"knobs": {"x": {"range": [0, 9], "default": 0}, "y": {"range": [0, 9], "default": 0}}}
    changes = {"budget": {"trials": 25}, "search": {"searcher": "random", "workers": 3}, "finals": {"rounds": 0}, "space": space}
    path = campaign(tmp_path, script, **changes)
    command = [*PROGRAM, "tune", str(path), "--json"]
    tuners = [subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for tuner in tuners:
        _, errors = tuner.communicate(timeout=300)
        assert tuner.returncode == 0, errors
    trials = read_trials(tmp_path / "autoscout_results" / "numbers")
    assert len(trials) == 25
    assert len({trial.worker for trial in trials}) == 3
    assert len({trial.config for trial in trials}) == 25


def test_two_workers_and_batches(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert call("tune", campaign(here), "--workers", 2, "--together", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    lines = [json.loads(line) for line in Path(told["files"]["journal"]).read_text().splitlines()]
    assert [line["batch"] for line in lines[:6]] == [0, 0, 1, 1, 2, 2]


def test_render_profile_space_and_doctor(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = campaign(here)
    assert call("render", path, "--set", "x=2", "--json") == 0
    assert json.loads(capfd.readouterr().out)["config"] == {"x": 2, "y": 0}
    assert call("render", path, "--set", "x=2", "--export", "-") == 0
    assert "program.py 2 0" in capfd.readouterr().out.replace("'", "")
    assert call("render", path, "--set", "x=2", "--export", here / "launch") == 0
    assert "written to" in capfd.readouterr().out
    script = here / "launch" / "run.sh"
    assert "program.py 2 0" in script.read_text().replace("'", "")
    assert os.access(script, os.X_OK)
    assert call("profile", path, "--set", "x=3", "--repeats", 2, "--json") == 0
    assert [m["metrics"]["score"] for m in json.loads(capfd.readouterr().out)["measurements"]] == [2.0, 2.0]
    assert call("space", "count", path) == 0
    assert capfd.readouterr().out.strip() == "24"
    assert call("space", "show", path) == 0
    assert "0, 1, 2, 3" in capfd.readouterr().out
    assert call("space", "validate", path, "--set", "x=9", "--set", "y=0") == 2
    assert "x" in capfd.readouterr().out
    assert call("space", "validate", path, "--set", "x=5", "--set", "y=0") == 0
    capfd.readouterr()
    assert call("doctor", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert "engine_command" in told["machine"]["sglang"], "its backend is usable without it, but nothing is there to be tuned"
    found = {(state["kind"], state["name"]): state["usable"] for state in told["plugins"]}
    assert found["backend", "command"]
    assert found["searcher", "random"]


def test_a_backend_that_needs_a_model_is_looked_at_and_measured_by_flags(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    about = ("vllm", "--model", "llama-3.1-8b")
    assert call("space", "show", *about, "--hardware", "gpus=8xH100", "--json") == 0
    assert json.loads(capfd.readouterr().out)["knobs"]["tensor_parallel_size"]["values"] == [1, 2, 3, 4, 5, 6, 8]
    assert call("space", "count", *about, "-w", "free=all", "--hardware", "gpus=0") == 0
    capfd.readouterr()
    assert call("space", "validate", *about, "--hardware", "gpus=0", "--set", "tensor_parallel_size=2") == 2
    assert "no such knob" in capfd.readouterr().out
    engine = f"engine_command=[{sys.executable}, -m, autoscout.testing.openai_server, --vocab-size, 200000]"
    load = ("-w", "request_rate=50", "-w", "requests=10", "-w", "input_tokens=8", "-w", "output_tokens=2")
    assert call("profile", *about, "-w", engine, *load, "--slo", "p95_ttft_ms<=10000", "--json") == 0
    (measured,) = json.loads(capfd.readouterr().out)["measurements"]
    assert measured["metrics"]["goodput"] > 0, "what keeps the limits is counted only where there are limits"


SLOW = """\
import sys, time
open(sys.argv[0] + ".started", "a").write("x")
time.sleep(float(open(sys.argv[0] + ".delay").read()))
print("score", int(sys.argv[1]) + 1)
"""


def _start(here: Path) -> tuple[subprocess.Popen[str], Path]:
    path = campaign(here, script=SLOW, budget={"trials": 20})
    (here / "program.py.delay").write_text("0.3")
    program = subprocess.Popen([*PROGRAM, "tune", str(path)], cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    journal = here / "autoscout_results" / "numbers" / "trials.jsonl"
    deadline = time.monotonic() + 60
    while not (journal.exists() and journal.read_text().count("\n") >= 2):
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return program, journal


def test_ctrl_c_finishes_the_running_trial_and_reports(here: Path) -> None:
    program, journal = _start(here)
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    assert "Finishing the trials under way" in err
    assert "interrupted" in out
    assert (journal.parent / "report.html").exists()
    started = len((here / "program.py.started").read_text())
    assert journal.read_text().count("\n") == started, "every trial that was started is stored"


def test_sigterm_stops_the_running_trial_at_once(here: Path) -> None:
    program, journal = _start(here)
    (here / "program.py.delay").write_text("600")
    seen = len((here / "program.py.started").read_text())
    while len((here / "program.py.started").read_text()) == seen:
        time.sleep(0.05)
    program.send_signal(signal.SIGTERM)
    _, err = program.communicate(timeout=60)
    assert program.returncode == 130, err
    assert journal.read_text().count("\n") == seen
    assert not _running(str(here / "program.py"))


def _running(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if text in line and entry.parent.name != str(os.getpid()):
            found.append(line)
    return found


def test_a_program_and_its_space_by_flags_alone(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (here / "space.yaml").write_text("knobs:\n  x: {range: [1, 3], default: 3}\n")
    flags = ["--space", "space.yaml", "-w", "metrics={score: {regex: 'score ([0-9]+)'}}", "--metric", "score", "--direction", "minimize"]
    assert call("tune", "command", "--train-cmd", "echo score {x}", *flags, "--rounds", 2, "--json") == 0
    told = capfd.readouterr()
    assert json.loads(told.out)["spent"]["configs"] == 3
    assert call("render", next((here / "autoscout_results").iterdir()) / "campaign.yaml") == 0
    line = capfd.readouterr().out.split("\n", 1)[1]  # below the configuration
    assert "score 3" in subprocess.run(line.replace("{folder}", str(here)), shell=True, capture_output=True, text=True, check=True).stdout


def test_a_simulator_on_the_command_line_and_a_report_that_says_simulated(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    line = ["tune", "virtual", "--simulator", "training", "--searcher", "hybrid", "--executor", "inline", "--max-trials", 4, "--rounds", 2]
    call(*line, "--experiment-name", "v", "--json")
    told = json.loads(capfd.readouterr().out)
    assert told["fidelity"] == "simulated"
    assert told["predicted"]["rows"][0]["predicted"] > 0
    folder = here / "autoscout_results" / "v"
    page = (folder / "report.html").read_text()
    assert "Predicted and measured" in page
    assert "matrix products" in page  # the picture of where the time goes
    assert "simulator: training" in (folder / "campaign.yaml").read_text()
    assert {json.loads(row)["fidelity"] for row in (folder / "trials.jsonl").read_text().splitlines()} == {"simulated"}
    call("report", folder)
    shown = " ".join(capfd.readouterr().out.split())
    assert "simulated, not measured" in shown
    assert "training predicted" in shown


TWO_GOALS = """\
import sys
x, y = int(sys.argv[1]), int(sys.argv[2])
print("score", 10 + x * 10 + y)
print("late_ms", 5 + x * x - y)
print("tokens_per_s", 100)
"""


def test_several_metrics_on_the_command_line(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    metrics = {name: {"regex": f"{name} ([0-9.]+)"} for name in ("score", "late_ms", "tokens_per_s")}
    path = campaign(here, TWO_GOALS, workload={"metrics": metrics}, budget={"trials": 10}, finals={"finalists": 2, "rounds": 3})
    assert call("tune", path, "--metric", "score:maximize", "--metric", "late_ms", "--price", 3.6, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["front"]["goals"] == ["score:maximize", "late_ms:minimize"]
    assert {point["name"] for point in found["front"]["points"]} >= {"best-score", "default"}
    assert len(found["front"]["points"]) == 3, "two finalists, and the default, which nothing dominates"
    assert found["front"]["rounds"] == 3
    folder = here / "autoscout_results" / "numbers"
    for point in found["front"]["points"]:
        if point["standing"] != "dominated":
            assert (folder / "front" / point["name"] / "run.sh").is_file()
    assert found["default"]["metrics"]["cost_per_million_tokens"] == pytest.approx(10.0)
    assert call("report", folder) == 0
    said = capfd.readouterr().out
    assert "hypervolume" in said
    assert "best-score" in said


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--metric", "score", "--metric", "late_ms"], "is more score better, or less?"),
        (["--metric", "late_ms", "--metric", "late_ms"], "once only"),
        (["--metric", "score:up"], "METRIC:maximize"),
        (["--metric", "late_ms", "--metric", "wall_s", "--direction", "minimize"], "each of the metrics has its own"),
        (["--metric", "cost_per_million_tokens"], "--price 2.5"),
    ],
)
def test_goals_that_cannot_be_read_are_refused(here: Path, capfd: pytest.CaptureFixture[str], flags: list[str], said: str) -> None:
    metrics = {name: {"regex": f"{name} ([0-9.]+)"} for name in ("score", "late_ms")}
    path = campaign(here, TWO_GOALS, workload={"metrics": metrics}, goal={"metric": None, "direction": None})
    assert call("tune", path, *flags) == 2
    assert said in " ".join(capfd.readouterr().err.split())


NAP = """\
import sys, time
time.sleep(float(sys.argv[1]))
print("score", sys.argv[2])
"""


def test_a_trial_that_the_budget_cuts_off_is_no_evidence_and_is_measured_again(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    space = {"knobs": {"x": {"values": [1.5, 0.1, 0.2], "default": 1.5}, "y": {"range": [1, 5], "default": 5}}}
    path = campaign(here, script=NAP, space=space, budget={"trials": None}, goal={"direction": "maximize"})
    assert call("tune", path, "--budget", "1s", "--json") != 0
    short = json.loads(capfd.readouterr().out)
    assert short["spent"]["trials"] == 0
    assert "does not run" not in json.dumps(short)
    assert call("resume", short["files"]["folder"], "--budget", "6s", "--json") == 0
    long = json.loads(capfd.readouterr().out)
    lines = [json.loads(line) for line in Path(long["files"]["journal"]).read_text().splitlines()]
    assert lines[0]["config"] == {"x": 1.5, "y": 5}, "the default comes first again"
    assert {line["status"] for line in lines} == {"ok"}
    assert long["default"]["value"] == 5.0
    assert long["answer"]["y"] == 5

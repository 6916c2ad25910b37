"""A Python function and a scheduler are tuned like everything else: folder, kill -9, resume, report, hand-over, JSON, labels."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

import autoscout
from autoscout.core.errors import ConfigError
from autoscout.core.trial import Fidelity
from autoscout.study.final import Finals

PROGRAM = [sys.executable, "-m", "autoscout"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(autoscout.__file__).parents[1])}
FUNCTION = """\
import time

def cost(config):
    time.sleep(0.05)
    return {"cost": (config["x"] - 7) ** 2 + config["y"] + 1.0, "size": config["x"]}
"""
SCHED: dict[str, Any] = {
    "system": "sched",
    "name": "study",
    "workload": {"trace": "synthetic:venus:400:1:1", "scheduler": "tiresias"},
    "hardware": {"cluster": "16x8"},
    "budget": {"trials": 12},
}


def of_function(folder: Path, **changes: Any) -> dict[str, Any]:
    (folder / "tuned.py").write_text(FUNCTION)
    return {
        "system": "function",
        "name": "study",
        "workload": {"function": "tuned.py:cost", "metrics": ["cost", "size"]},
        "space": {"knobs": {"x": {"range": [0, 29], "default": 29}, "y": {"range": [0, 29], "default": 29}}},
        "budget": {"trials": 25},
        **changes,
    }


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300, check=False)


def killed_after(folder: Path, journal: Path, trials: int, *words: str) -> None:
    """Start a study and kill -9 it when this many trials are stored."""
    with subprocess.Popen([*PROGRAM, *words], cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as program:
        deadline = time.monotonic() + 300  # kernels may have to be compiled first
        while program.poll() is None and time.monotonic() < deadline:
            if journal.exists() and journal.read_text().count("\n") >= trials:
                break
            time.sleep(0.01)
        program.send_signal(signal.SIGKILL)


@pytest.mark.parametrize(("system", "fidelity"), [("function", "measured"), ("sched", "simulated")])
def test_killed_resumed_reported_and_handed_over(tmp_path: Path, system: str, fidelity: str) -> None:
    data = of_function(tmp_path) if system == "function" else {**SCHED, "budget": {"trials": 24}}
    (tmp_path / "campaign.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
    home = tmp_path / "autoscout_results" / "study"
    killed_after(tmp_path, home / "trials.jsonl", 3, "tune", "campaign.yaml")
    before = (home / "trials.jsonl").read_text().splitlines()
    assert len(before) >= 3
    done = call(tmp_path, "resume", str(home), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    after = (home / "trials.jsonl").read_text().splitlines()
    assert after[: len(before)] == before, "nothing that was stored changes"
    phases = Counter(json.loads(line)["origin"].get("phase", "search") for line in after)
    assert phases["search"] == data["budget"]["trials"]
    assert phases["final"] == 0, "an exact answer needs no final"
    assert {json.loads(line)["fidelity"] for line in after} == {fidelity}
    assert told["fidelity"] == fidelity
    assert told["verdict"] == "gain"
    assert (fidelity == "simulated") == ("simulated" in told["headline"])
    assert json.loads((home / "best" / "gain.json").read_text())["fidelity"] == fidelity
    assert ("simulated" in (home / "best" / "README.md").read_text()) == (fidelity == "simulated")
    (home / "report.html").unlink()
    shown = call(tmp_path, "report", str(home))
    assert shown.returncode == 0, shown.stderr
    assert ("simulated" in shown.stdout) == (fidelity == "simulated")
    assert ("simulated, not measured" in (home / "report.html").read_text()) == (fidelity == "simulated")
    bin_folder = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", home / "best" / "run.sh"], env={**ENVIRONMENT, "PATH": bin_folder}, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    best = told["best"]["value"]
    assert f"{best:,.0f}" in ran.stdout if system == "sched" else f"'cost': {best}" in ran.stdout


def test_python_leaves_a_report_and_a_hand_over(tmp_path: Path) -> None:
    home = tmp_path / "study"
    outcome = autoscout.minimize(lambda config: float(config["x"]) + 1, {"x": [8, 4, 2]}, trials=3, folder=home)
    assert outcome.best == autoscout.Config(x=2)
    assert {path.name for path in home.iterdir()} >= {"report.html", "report.json", "summary.csv", "best", "trials.jsonl", "campaign.yaml"}
    assert json.loads((home / "best" / "settings.json").read_text()) == {"x": 2}
    again = autoscout.minimize(lambda config: 1 / 0, {"x": [8, 4, 2]}, trials=3, folder=home, name="function")
    assert again.trials == outcome.trials, "the same call resumes: nothing is left to call"


def test_what_a_function_says_is_simulated_is_labelled_so(tmp_path: Path) -> None:
    outcome = autoscout.minimize(lambda config: float(config["x"]) + 1, {"x": [8, 4, 2]}, trials=3, folder=tmp_path / "s", simulated=True)
    assert {trial.measurement.fidelity for trial in outcome.trials} == {Fidelity.SIMULATED}
    assert "(simulated)" in outcome.summary.headline


def test_a_noisy_function_has_a_final_and_a_deterministic_one_has_none(tmp_path: Path) -> None:
    noisy = autoscout.minimize(lambda config: float(config["x"]) + 1, {"x": [8, 4, 2]}, trials=3, finals=Finals(finalists=1, rounds=3))
    assert len(noisy.trials) == 3 + 3 + 2 * 3, "the search, the default again, the final"
    campaign = of_function(tmp_path, budget={"trials": 3})
    campaign["workload"] |= {"function": f"{tmp_path}/tuned.py:cost", "deterministic": False}
    assert autoscout.tune({**campaign, "name": "noisy"}, tmp_path / "out").setup.finals.rounds == 5


def test_a_scheduler_that_refuses_its_settings_has_not_crashed(tmp_path: Path) -> None:
    outcome = autoscout.tune({**SCHED, "hardware": {"cluster": "4x8"}}, tmp_path)  # some jobs want more than 32 GPUs
    assert {trial.measurement.status for trial in outcome.trials} == {autoscout.Status.INVALID}
    assert "larger than the cluster" in outcome.trials[0].measurement.reason


def test_all_faults_of_a_scheduler_study_come_at_once(tmp_path: Path) -> None:
    broken = {**SCHED, "workload": {"trace": "synthetic:venus", "scheduler": "tiresia", "form": "csv"}, "hardware": {"clusters": "4x8"}}
    with pytest.raises(ConfigError) as caught:
        autoscout.tune({**broken, "goal": {"metric": "mean_jct"}}, tmp_path)
    told = str(caught.value)
    assert all(word in told for word in ("tiresias", "form", "clusters", "cluster: is required", "mean_jct_s")), told
    assert not list(tmp_path.iterdir())


def test_functions_that_cannot_be_found_and_scripts_that_tune_when_imported(tmp_path: Path) -> None:
    for name, rule in {
        "nowhere.py:f": "no such file",
        "math:nothing": "nothing",
        "math:pi": "not a function",
        "plain": "must name",
    }.items():
        with pytest.raises(ConfigError, match=rule):
            autoscout.tune({**of_function(tmp_path), "workload": {"function": name}}, tmp_path)
    script = tmp_path / "script.py"
    script.write_text("import autoscout\n\ndef f(config):\n    return 1.0\n\nautoscout.minimize(f, {'x': [1, 2]}, trials=2)\n")
    with pytest.raises(ConfigError, match="__main__"):
        autoscout.tune({**of_function(tmp_path), "workload": {"function": f"{script}:f"}}, tmp_path)


def test_the_verb_of_schedulers_is_the_same_study(tmp_path: Path) -> None:
    flags = ["--trace", "synthetic:venus:400:1:1", "--cluster", "16x8", "--trials", "8", "-e", "verb", "--json"]
    done = call(tmp_path, "sched", "tune", *flags)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["fidelity"] == "simulated"
    assert sum(point["phase"] == "search" for point in told["points"]) == 8
    assert yaml.safe_load((tmp_path / "autoscout_results" / "verb" / "campaign.yaml").read_text())["system"] == "sched"

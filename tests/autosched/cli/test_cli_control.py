"""`autoscout sched control` and its verbs, on a replayed trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from _cli_program import run

HERE = Path.cwd()
BEGIN_S = 1_577_664_406 + 2 * 86_400
FILE = f"""\
cluster: toy
live: {{kind: replay, trace: "synthetic:philly:900:4:1", cluster: 3x8, scheduler: tiresias, start: "{BEGIN_S}"}}
look: 30m
watch: 0
tuning: {{draws: 2, trials: 4, searcher: random, least_gain: 1.01}}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "control.yaml"
    path.write_text(FILE)
    return str(path)


def test_control_status_history_and_explain(config: str, tmp_path: Path) -> None:
    done = run(HERE, "sched", "control", config, "--until", str(BEGIN_S + 3 * 3_600))
    assert done.returncode == 0, done.stderr
    told = json.loads(run(HERE, "sched", "status", config, "--json").stdout)
    assert told["mode"] == "observe"
    assert told["settings"]
    listed = json.loads(run(HERE, "sched", "history", config, "--json", "--report", str(tmp_path / "week")).stdout)["decisions"]
    assert len(listed) == 3
    assert (tmp_path / "week" / "report.md").exists()
    first = run(HERE, "sched", "explain", config, str(listed[0]["id"]))
    assert first.stdout.startswith("Decision 1 (hourly)")
    refused = run(HERE, "sched", "approve", config, "1")
    assert refused.returncode == 2
    assert "observes and changes nothing" in refused.stderr
    assert run(HERE, "sched", "rollback", config, "1").returncode == 2
    assert "no such decision" in run(HERE, "sched", "explain", config, "99").stderr


def test_asking_before_any_controller_ran(config: str) -> None:
    done = run(HERE, "sched", "status", config)
    assert done.returncode == 2
    assert "no controller has looked at this cluster yet" in done.stderr


def test_what_if(config: str) -> None:
    told = json.loads(run(HERE, "sched", "control", config, "--what-if", "threshold", "--json").stdout)
    assert told["fidelity"] == "simulated"
    assert len(told["gains"]) > 1
    assert run(HERE, "sched", "control", config, "--what-if", "nothing").returncode == 2


def test_people_ask_for_settings(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text(FILE + "mode: propose\nevery: 30d\n")
    assert run(HERE, "sched", "control", str(path), "--once").returncode == 0
    done = run(HERE, "sched", "propose", str(path), "threshold=200000", "--json")
    assert done.returncode == 0, done.stderr
    entry = json.loads(done.stdout)["decisions"][0]
    assert (entry["state"], entry["after"]["threshold"]) == ("proposed", 200_000)
    assert json.loads(run(HERE, "sched", "approve", str(path), str(entry["id"]), "--json").stdout)["decisions"][0]["state"] == "approved"
    assert f"{entry['id']} 2020-01-01" in run(HERE, "sched", "history", str(path)).stdout, "asked for in the time of the replay"
    wrong = run(HERE, "sched", "propose", str(path), "treshold=1", "threshold=many")
    assert wrong.returncode == 2
    assert "threshold" in wrong.stderr
    assert "KNOB=VALUE" in run(HERE, "sched", "propose", str(path), "threshold").stderr


def test_faults_of_the_file_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text(FILE + "mode: destroy\nbounds: {most_steps: -1}\n")
    done = run(HERE, "sched", "status", str(path))
    assert done.returncode == 2
    assert f"{path}:6: mode" in done.stderr
    assert f"{path}:7: bounds.most_steps" in done.stderr


def test_a_live_scheduler_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "control.yaml"
    path.write_text("cluster: x\nlive: {kind: slrum}\n")
    done = run(HERE, "sched", "control", str(path))
    assert done.returncode == 2
    assert "slurm" in done.stderr

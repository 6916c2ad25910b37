"""`autoscout check`: a change against what is there, as a pull request would be checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from autoscout.core.config import Config
from autoscout.core.task import Limit, Objective
from autoscout.core.trial import Measurement, Status
from autoscout.study.pairs import PairVerdict, Rounds, Side, judge, measure_in_turn, summary

ROOT = Path(__file__).parents[3]


def campaign(folder: Path, program: str = "echo score $((10 + {x}))", name: str = "c.yaml", **more: object) -> Path:
    content = {
        "system": "command",
        "workload": {"command": program, "metrics": {"score": {"regex": "score ([0-9.]+)"}}},
        "goal": {"metric": "score", "direction": "maximize"},
        "space": {"knobs": {"x": {"values": [1, 2, 90], "default": 2}}},
        **more,
    }
    path = folder / name
    path.write_text(yaml.safe_dump(content))
    return path


def run(folder: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "autoscout", "check", *map(str, words)], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize(("settings", "verdict", "code"), [("x=90", "better", 0), ("x=1", "worse", 1), ("x=2", "as good", 0)])
def test_a_configuration_is_checked_against_the_default(tmp_path, settings, verdict, code):
    page = tmp_path / "summary.md"
    page.write_text("# before\n")
    done = run(tmp_path, campaign(tmp_path), "--set", settings, "--rounds", "3", "--summary", page, "--json")
    assert done.returncode == code, done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == verdict
    assert len(result["checked"]) == len(result["against"]) == 3
    assert page.read_text().startswith("# before\n### AutoScout: " + verdict)


def test_against_knobs_a_document_and_another_version(tmp_path):
    here = campaign(tmp_path)
    (tmp_path / "main.json").write_text(json.dumps({"config": {"x": 90}}))
    (tmp_path / "report.json").write_text(json.dumps({"answer": {"x": 90}}))
    for against in ("x=90", "main.json", "report.json"):
        done = run(tmp_path, here, "--against", against, "--rounds", "3", "--json")
        assert (done.returncode, json.loads(done.stdout)["verdict"]) == (1, "worse"), done.stderr
    faster = campaign(tmp_path, "echo score $((100 + {x}))", "new.yaml")
    done = run(tmp_path, faster, "--against", here, "--rounds", "3")
    assert done.returncode == 0, done.stderr
    assert "better" in done.stdout
    assert "c.yaml" in done.stdout


def test_what_works_there_and_fails_here_is_worse(tmp_path):
    broken = campaign(tmp_path, "test {x} = 2 && echo score 5")
    done = run(tmp_path, broken, "--set", "x=1", "--rounds", "1", "--json")
    assert (done.returncode, json.loads(done.stdout)["verdict"]) == (1, "fails")


def test_two_rounds_decide_nothing_and_strict_says_so(tmp_path):
    words = (campaign(tmp_path), "--set", "x=1", "--rounds", "2")
    assert run(tmp_path, *words).returncode == 0
    assert run(tmp_path, *words, "--strict").returncode == 1


@pytest.mark.parametrize(
    ("against", "word"), [("nobody.json", "neither KNOB=VALUE nor a file"), ("y=1", "y"), ("empty.json", "holds no campaign")]
)
def test_bad_input_is_named(tmp_path, against, word):
    (tmp_path / "empty.json").write_text("{}")
    done = run(tmp_path, campaign(tmp_path), "--against", against)
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def measurement(score: float, **metrics: float) -> Measurement:
    return Measurement(status=Status.OK, metrics={"score": score, **metrics})


def test_a_limit_that_breaks_beyond_doubt_counts_and_one_by_chance_does_not():
    objective = Objective(metric="score", limits=(Limit.parse("late<=10"),))
    before = tuple(measurement(5.0, late=late) for late in (9.0, 9.1, 8.9, 9.0))
    broken = tuple(measurement(5.0, late=late) for late in (12.0, 12.1, 11.9, 12.0))
    near = tuple(measurement(5.0, late=late) for late in (9.0, 11.5, 9.5, 10.6))
    assert judge(objective, Rounds(checked=broken, against=before), 0.02).verdict is PairVerdict.BREAKS
    assert judge(objective, Rounds(checked=near, against=before), 0.02).verdict is not PairVerdict.BREAKS
    assert "limit late<=10 BROKEN" in summary(judge(objective, Rounds(checked=broken, against=before), 0.02), "new", "old")


def test_who_begins_changes_every_round():
    order: list[str] = []

    class Evaluator:
        def __init__(self, name: str) -> None:
            self.name = name

        def evaluate(self, proposals):
            order.append(self.name)
            return [measurement(1.0)]

    sides = [Side(config=Config(), evaluator=Evaluator(name)) for name in ("new", "old")]
    rounds = measure_in_turn(*sides, 3)
    assert order == ["old", "new", "new", "old", "old", "new"]
    assert len(rounds.checked) == 3


def test_the_action_calls_the_verb_with_flags_that_exist():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    script = action["runs"]["steps"][0]["run"]
    shown = subprocess.run([sys.executable, "-m", "autoscout", "check", "-h"], capture_output=True, text=True).stdout
    flags = [word for word in script.split() if word.startswith("--") and word != "--quiet"]
    assert {"--rounds", "--tolerance", "--summary"} <= set(flags)
    assert not [flag for flag in flags if flag not in shown]

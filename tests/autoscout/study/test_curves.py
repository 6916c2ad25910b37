"""The default's curves travel with every later launch, through the store; the last round of a final compares learning for longer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from test_study import study

from _cli_program import run
from _toys import FromFunction
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.curves import VARIABLE, curves_here, told_curves
from autoscout.core.launch import Launch
from autoscout.core.trial import Measurement, Proposal, Status
from autoscout.study.dispatch import Parallelism
from autoscout.study.final import Finals

CURVE = (5.0, 4.0, 3.0)


class Recorder(FromFunction):
    """Answers with curves, and keeps what it was asked."""

    def __init__(self, slots: int = 1) -> None:
        super().__init__(lambda config: Measurement(status=Status.OK, metrics={"time_s": 10.0 - config["x"]}), slots)
        self.asked: list[Proposal] = []
        self.at_once: list[int] = []

    def evaluate(self, proposals: Any) -> list[Measurement]:
        self.asked += proposals
        measured: list[Measurement] = []
        for one in proposals:
            steps = 9 if one.is_long else 3
            value = 10.0 - one.config["x"]
            measured.append(Measurement(status=Status.OK, metrics={"time_s": value}, samples={"loss": CURVE * (steps // 3)}, cost_s=1.0))
        return measured


def test_curves_are_those_of_the_default_in_the_store() -> None:
    store = plugins.get("store", "memory")()
    first = Recorder()
    study(evaluator=first, store=store, curves=("loss", "tokens")).run()
    assert first.asked[0].config == Config(x=0)
    assert not first.asked[0].curves
    assert all(one.curves == {"loss": CURVE} for one in first.asked[1:])
    again = Recorder()
    task = study(store=store).record.task
    assert task.budget.trials == 5
    resumed = study(evaluator=again, store=store, curves=("loss",), finals=Finals(rounds=1, finalists=1, simplify=False))
    resumed.run()
    others = [one for one in again.asked if one.config != Config(x=0)]
    assert others
    assert all(one.curves == {"loss": CURVE} for one in others), "also where the study is resumed, and another process has measured it"


def test_nothing_is_launched_before_the_default_was_measured() -> None:
    """On a second machine it would have nothing to be compared with."""
    recorder = Recorder(slots=3)
    study(evaluator=recorder, curves=("loss",), parallelism=Parallelism(workers=3)).run()
    assert recorder.asked[0].config == Config(x=0)
    assert all(one.curves for one in recorder.asked[1:])


def test_the_last_round_of_the_final_is_long_and_begins_with_the_default() -> None:
    recorder = Recorder()
    one = study(evaluator=recorder, curves=("loss",), long_steps=9, finals=Finals(rounds=3, finalists=1, simplify=False))
    one.run()
    long = [proposal for proposal in recorder.asked if proposal.is_long]
    assert [proposal.config["x"] for proposal in long] == [0, 4], "default and best, once each"
    assert long == recorder.asked[-2:]
    assert len(long[1].curves["loss"]) == 9, "compared with the default's long run"


def test_a_launch_brings_them() -> None:
    launch = told_curves(Launch(argv=("true",), env={"A": "1"}), {"loss": (5.123456789123, 4.0)})
    assert launch.env["A"] == "1"
    assert curves_here(launch.env) == {"loss": [5.1234568, 4.0]}
    assert VARIABLE in launch.env
    assert curves_here({}) == {}


SCRIPT = """
import time
from autoscout import training

mode = training.config().get("mode") or "slow"
for step in range(30):
    time.sleep(0.02 if mode == "slow" else 0.005)
    loss = 5.0 / (1 + step) ** 0.5
    if mode == "diverges" and step >= 15:
        loss = 6.0
    training.step(loss=loss, tokens=50 if mode == "half" else 100)
"""


@pytest.mark.slow
def test_who_diverges_after_a_trial_has_ended_is_not_handed_over(tmp_path: Path) -> None:
    """The trial is as good as the honest one; the long run of the final is not. The one that trains on half of the tokens never counts."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "c.yaml").write_text(
        f"""
system: pytorch
name: curves
workload:
  command: {sys.executable} {tmp_path}/train.py
  knobs: {{mode: {{values: [slow, diverges, half, fast], default: slow}}}}
  most_steps: 8
  long_steps: 28
hardware: {{device: cpu, cores: 1, processes: 1}}
search: {{searcher: grid}}
budget: {{trials: 4}}
measure: {{dirty_repeats: 0}}
finals: {{rounds: 3, finalists: 2, simplify: false}}
"""
    )
    done = run(tmp_path, "tune", "c.yaml", "--json")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "autoscout_results" / "curves"
    trials = [json.loads(line) for line in (folder / "trials.jsonl").read_text().splitlines()]
    by_mode = {mode: [one for one in trials if one["config"]["mode"] == mode] for mode in ("slow", "diverges", "half", "fast")}
    assert [one["status"] for one in by_mode["half"]] == ["wrong_output"]
    assert by_mode["diverges"][0]["status"] == "ok", "eight steps show nothing"
    last = by_mode["diverges"][-1]
    assert (last["status"], last["conditions"]["long"]) == ("wrong_output", 1.0)
    assert "loss" in last["reason"]
    report = json.loads((folder / "report.json").read_text())
    assert report["best"]["config"]["mode"] == "fast"
    steps = report["learning"]["steps"]
    assert steps >= 28, "a step or two more may be made before the run is ended"
    assert report["learning"]["gap"] == pytest.approx(0.0)
    assert f"After {steps} steps on the same data the loss is 0.00% above" in (folder / "report.html").read_text()
    handed_over = json.loads((folder / "best" / "settings.json").read_text())["mode"]
    if handed_over == "fast":  # on a busy machine a gain may not be shown
        assert len((folder / "best" / "learning.csv").read_text().splitlines()) == steps + 1

"""Studies that a program asks and tells."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import autoscout
from autoscout import Config, Infeasible, Measurement, Status
from autoscout.core.errors import ConfigError, SpaceError
from autoscout.core.origin import Phase
from autoscout.study.budget import Stop

SPACE = {"x": range(12), "mode": ["a", "b"]}


def cost(config: Config) -> float:
    return float((int(str(config["x"])) - 7) ** 2 + (config["mode"] == "a"))


def drive(study: autoscout.AskTellStudy) -> autoscout.Outcome:
    while trial := study.ask():
        study.tell(trial, cost(trial.config))
    return study.outcome()


@pytest.mark.parametrize("searcher", ["hybrid", "random", "evolution"])
def test_it_proposes_what_minimize_would_try(searcher: str) -> None:
    asked = drive(autoscout.create_study(SPACE, 12, searcher=searcher))
    called = autoscout.minimize(cost, SPACE, 12, searcher=searcher)
    assert [trial.config for trial in asked.trials] == [trial.config for trial in called.trials]
    assert (asked.best, asked.value, asked.stop) == (called.best, called.value, Stop.TRIALS)


def test_several_may_be_under_way_and_are_told_in_any_order() -> None:
    study = autoscout.create_study(SPACE, 6)
    trials = [study.ask() for _ in range(4)]
    assert len({trial.config for trial in trials if trial}) == 4
    assert study.pending == tuple(trials)
    for trial in reversed(trials):
        assert trial is not None
        study.tell(trial, cost(trial.config))
    assert [study.ask() is not None for _ in range(3)] == [True, True, False]
    assert study.outcome().stop is None, "two are under way"
    assert study.pending != ()


def test_failures_metrics_and_configurations_of_the_programs_own() -> None:
    study = autoscout.create_study(SPACE, 9, metric="rate", direction="maximize", limits=["late_ms<=5"])
    first, second, third = study.ask(), study.ask(), study.ask()
    assert first and second and third  # noqa: PT018 - narrows all
    assert study.tell(first, {"rate": 5.0, "late_ms": 9.0}).number == 0
    assert study.tell(second, Infeasible("does not fit", status=Status.OOM_START)).measurement.status is Status.OOM_START
    failed = study.tell(third, ZeroDivisionError("no data")).measurement
    assert (failed.status, failed.reason) == (Status.CRASHED, "ZeroDivisionError: no data")
    own = study.tell({"x": 3}, {"rate": 4.0, "late_ms": 1.0})
    assert own.config == Config(x=3, mode="a")
    study.tell({"x": 3}, Measurement(status=Status.OK, metrics={"rate": 4.2, "late_ms": 1.0}))
    assert study.tell({"x": 4}, float("nan")).measurement.status is Status.WRONG_OUTPUT
    assert study.outcome().best == Config(x=3, mode="a")
    with pytest.raises(ConfigError, match="told already"):
        study.tell(first, {"rate": 5.0, "late_ms": 9.0})
    with pytest.raises(SpaceError):
        study.tell({"x": 99}, 1.0)


def test_a_folder_makes_it_resumable(tmp_path: Path) -> None:
    with autoscout.create_study(SPACE, 8, folder=tmp_path / "study") as study:
        for _ in range(3):
            trial = study.ask()
            assert trial is not None
            study.tell(trial, cost(trial.config))
        lost = study.ask()
    again = autoscout.create_study(SPACE, 8, folder=tmp_path / "study")
    assert again.ask() == lost, "what was never told is given back"
    assert lost is not None
    again.tell(lost, cost(lost.config))
    outcome = drive(again)
    whole = drive(autoscout.create_study(SPACE, 8))
    assert [trial.config for trial in outcome.trials] == [trial.config for trial in whole.trials]
    assert (tmp_path / "study" / "report.html").exists()
    assert autoscout.load_study(tmp_path / "study").best == outcome.best


def test_another_process_takes_part(tmp_path: Path) -> None:
    program = "import autoscout, sys; study = autoscout.create_study({'x': range(12)}, 6, store=sys.argv[1])\n"
    program += "print([study.ask().config['x'] for _ in range(2)], flush=True); sys.stdin.readline()"
    place = str(tmp_path / "trials.db")
    with subprocess.Popen([sys.executable, "-c", program, place], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        theirs = eval(other.stdout.readline())
        study = autoscout.create_study({"x": range(12)}, 6, store=place)
        mine = [trial.config["x"] for _ in range(2) if (trial := study.ask())]
        other.communicate("\n", timeout=20)
    assert len({*theirs, *mine}) == 4
    study.close()


def test_noise_leads_to_a_final() -> None:
    study = autoscout.create_study(SPACE, 10, rounds=3)
    outcome = drive(study)
    final = [trial for trial in outcome.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert len({trial.config for trial in final}) >= 2
    assert outcome.summary.gain is not None
    assert outcome.stop is Stop.TRIALS
    called = autoscout.minimize(cost, SPACE, 10, rounds=3)
    assert outcome.best == called.best


def test_where_all_finalists_fall_the_next_best_meet_the_default() -> None:
    looks: Counter[Config] = Counter()

    def late(config: Config) -> dict[str, float]:
        looks[config] += 1
        x = config.whole("x")
        return {"value": 20.0 - x, "late_ms": 1.0 if looks[config] == 1 or x < 8 else 9.0}

    study = autoscout.create_study({"x": list(range(12))}, 12, limits=["late_ms<=5"], rounds=3)
    while trial := study.ask():
        study.tell(trial, late(trial.config))
    outcome = study.outcome()
    finals = [trial.proposal.origin for trial in outcome.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert len({origin.contenders for origin in finals}) == 3
    assert outcome.best == Config(x=7), "11, 10, 9 and 8 kept the limit only at the first look"


def test_patience_and_an_exhausted_space_end_it() -> None:
    study = autoscout.create_study({"x": range(100)}, patience=4, searcher="random")
    while trial := study.ask():
        study.tell(trial, 1.0)
    assert (study.outcome().stop, len(study.outcome().trials)) == (Stop.STALE, 5)
    assert drive(autoscout.create_study({"x": [1, 2], "mode": ["a"]}, 50)).stop is Stop.EXHAUSTED


def test_several_goals_and_pinned_knobs() -> None:
    goals = autoscout.Objective(metric="rate", direction=autoscout.Direction.MAXIMIZE, also=(autoscout.Goal(metric="late_ms"),))
    study = autoscout.create_study({"batch": [1, 2, 4, 8], "mode": ["a", "b"]}, 4, objective=goals, given={"mode": "b"})
    while trial := study.ask():
        assert trial.config["mode"] == "b"
        batch = float(str(trial.config["batch"]))
        study.tell(trial, {"rate": batch, "late_ms": batch})
    front = study.outcome().summary.front
    assert front is not None
    assert len(front.points) == 4


def test_it_prints_as_one_line() -> None:
    study = autoscout.create_study(SPACE, 4)
    study.ask()
    assert repr(study) == "AskTellStudy('study', 0 trials, 1 under way)"
    study.close()
    study.close()

"""A search ends when nothing improves any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_study import study, xs

from _toys import FromFunction, Numbers, ok, toy_task
from autoscout.core.config import Config
from autoscout.core.task import Budget, Direction, Goal, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.study.assemble import look
from autoscout.study.budget import Stop
from autoscout.study.campaign import build_campaign
from autoscout.study.final import Finals
from autoscout.study.folder import Folder
from autoscout.study.patience import SearchPatience
from autoscout.study.setup import DEFAULT_PATIENCE, prepare


def patient(patience: int, objective: Objective | None = None) -> Task:
    task = toy_task(trials=100)
    return Task(system=task.system, objective=objective or task.objective, budget=Budget(trials=100, patience=patience))


def test_the_search_ends_when_nothing_improves_and_the_final_follows() -> None:
    one = study(
        space=Numbers(50), task=patient(4), evaluator=FromFunction(lambda config: ok(10.0 - min(config["x"], 7))), finals=Finals(rounds=2)
    )
    assert one.run() is Stop.STALE
    search = [trial for trial in one.trials if not trial.proposal.repeat]
    assert xs(search) == list(range(12)), "7 was the last that improved, and four more were tried"
    assert len(one.trials) > len(search), "the final is measured all the same"


def test_failures_are_no_improvement() -> None:
    def broken(config: Config) -> Measurement:
        return ok(10.0) if config["x"] == 0 else Measurement(status=Status.CRASHED, reason="boom")

    assert study(space=Numbers(50), task=patient(3), evaluator=FromFunction(broken)).run() is Stop.STALE


def test_with_several_goals_a_new_point_of_the_front_is_an_improvement() -> None:
    two = Objective(metric="gain", direction=Direction.MAXIMIZE, also=(Goal(metric="late"),))

    def traded(config: Config) -> Measurement:
        step = min(config["x"], 5)
        return Measurement(status=Status.OK, metrics={"gain": float(step), "late": float(step)})

    one = study(space=Numbers(50), task=patient(3, two), evaluator=FromFunction(traded))
    assert one.run() is Stop.STALE
    assert len(one.trials) == 9, "the first six are all on the front"


def test_what_was_marked_invalid_improved_nothing() -> None:
    trials = [
        Trial(proposal=Proposal(config=Config(x=x)), measurement=ok(time_s), number=x) for x, time_s in enumerate([9.0, 1.0, 5.0, 4.0])
    ]
    task, watch = patient(3), SearchPatience(Config(x=0))
    assert watch.over(task, trials) is None
    assert watch.over(task, [trials[0], *trials[2:]]) is None, "5 and 4 are improvements without the 1"
    worse = [Trial(proposal=Proposal(config=Config(x=x)), measurement=ok(6.0), number=x) for x in range(4, 7)]
    assert watch.over(task, [*trials, *worse[:1]]) is Stop.STALE
    assert watch.over(task, [trials[0], *trials[2:], *worse]) is Stop.STALE
    assert watch.over(task, [trials[0], *trials[2:], *worse[:2]]) is None


def test_simulated_answers_are_no_match_for_measured_ones() -> None:
    trials = [
        Trial(proposal=Proposal(config=Config(x=x)), measurement=ok(1.0 + x, fidelity=Fidelity.SIMULATED), number=x) for x in range(3)
    ]
    watch = SearchPatience(Config(x=0))
    assert watch.over(patient(3), trials) is None
    assert watch.over(patient(3), [*trials, Trial(proposal=Proposal(config=Config(x=9)), measurement=ok(50.0), number=3)]) is None


@pytest.mark.parametrize("patience", [0, -1])
def test_patience_is_a_whole_number_above_zero(patience: int) -> None:
    with pytest.raises(Exception, match="patience"):
        build_campaign({"system": "virtual", "budget": {"patience": patience}}, where="test")


def test_patience_alone_bounds_a_study(tmp_path: Path) -> None:
    setup = prepare(build_campaign({"system": "virtual", "budget": {"patience": 3}}, where="test"))
    assert setup.task.budget == Budget(patience=3, failures=10)
    assert Task.from_json(setup.task.to_json()) == setup.task


def test_a_study_without_any_bound_ends_when_it_has_converged() -> None:
    def patience(**more: object) -> int | None:
        return prepare(build_campaign({"system": "virtual", **more}, where="test")).task.budget.patience

    assert patience() == DEFAULT_PATIENCE
    assert patience(search={"searcher": "grid"}) is None, "which ends by itself"
    assert patience(budget={"trials": 100}) is None, "whoever names a bound means it"
    assert patience(budget={"wall": "10m"}) is None


def test_whoever_looks_later_knows_why_it_ended(tmp_path: Path) -> None:
    import autoscout

    campaign = {
        "system": "command",
        "workload": {"command": "echo score 1", "metrics": {"score": {"regex": "score ([0-9]+)"}}},
        "goal": {"metric": "score", "direction": "minimize"},
        "space": {"knobs": {"x": {"range": [0, 30]}}},
        "budget": {"patience": 2},
        "finals": {"rounds": 0},
    }
    outcome = autoscout.tune(campaign, tmp_path)
    assert outcome.stop is Stop.STALE
    assert len(outcome.trials) == 3
    assert outcome.folder is not None
    assert look(outcome.setup, Folder(outcome.folder.path)).stop is Stop.STALE

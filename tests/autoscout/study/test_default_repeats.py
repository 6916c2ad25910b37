from __future__ import annotations

from typing import Any

import pytest

from _toys import FromFunction, InOrder, Numbers, Watcher, ok, toy_task
from autoscout.analysis.tally import Tally
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.protocols import StudyRecord
from autoscout.core.trial import Measurement, Status
from autoscout.study.budget import Stop, used_share
from autoscout.study.final import Finals
from autoscout.study.ledger import Ledger
from autoscout.study.study import Study


def study(answer: Any, store: Any = None, **budget: float) -> Study:
    store, space = store or plugins.get("store", "memory")(), Numbers()
    record = store.open(StudyRecord(name="s", task=toy_task(**budget), space=space.fingerprint(), spec={}))
    parts = {"searcher": InOrder(space), "evaluator": FromFunction(answer), "observer": Watcher(), "clock": VirtualClock()}
    return Study(
        record=record, space=space, store=store, worker="w", default=Config(x=0), finals=Finals(rounds=0), repeat_default=True, **parts
    )


def places(one: Study) -> list[tuple[int, int]]:
    return [(trial.config["x"], trial.proposal.repeat) for trial in one.trials]


def test_the_default_is_measured_twice_at_the_start_and_again_during_the_search() -> None:
    one = study(lambda config: ok(10.0 - config["x"]), trials=6)
    assert one.run() is Stop.TRIALS
    assert places(one) == [(0, 0), (0, -101), (1, 0), (0, -102), (2, 0), (3, 0), (0, -103), (4, 0), (5, 0)]
    assert Ledger(one.trials).counted == 6, "the default counts once"
    assert all(trial.proposal.again == (trial.proposal.repeat < 0) for trial in one.trials)


def test_whatever_is_bounded_says_when_it_is_measured_again() -> None:
    one = ran(study(lambda config: ok(1.0, cost_s=1.0 if config["x"] else 0.25), cost_s=9.0))
    assert [place for place, (x, _) in enumerate(places(one)) if x == 0] == [0, 1, 5, 9]
    assert used_share(toy_task(wall_s=60.0).budget, one.trials, 20.0) == pytest.approx(1 / 3)


def test_a_default_that_takes_much_of_the_time_is_left_to_the_final() -> None:
    one = ran(study(lambda config: ok(1.0, cost_s=1.0), cost_s=9.5))
    assert [x for x, _ in places(one)].count(0) == 1


def test_a_default_that_has_become_slow_is_left_to_the_final_too() -> None:
    costs_s = iter([0.2, 2.0])  # the machine became busy between the two
    one = ran(study(lambda config: ok(1.0, cost_s=next(costs_s, 9.0) if config["x"] == 0 else 0.2), cost_s=9.5))
    assert [x for x, _ in places(one)].count(0) == 2


def ran(one: Study) -> Study:
    one.run()
    return one


def test_a_default_that_fails_is_not_measured_again() -> None:
    broken = study(lambda config: Measurement(status=Status.CRASHED) if config["x"] == 0 else ok(1.0), trials=4)
    assert places(ran(broken)) == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_a_resumed_study_repeats_nothing() -> None:
    store = plugins.get("store", "memory")()
    first = ran(study(lambda config: ok(1.0), store, trials=3))
    again = ran(study(lambda config: ok(1.0), store, trials=3))
    assert again.evaluator.calls == []
    assert places(again) == places(first)


def test_so_far_compares_with_the_defaults_median() -> None:
    values = iter([20.0, 10.0, 12.0, 11.0])
    one = ran(study(lambda config: ok(next(values) if config["x"] == 0 else 6.0), trials=6))
    tally = Tally(one.record.task, Config(x=0))
    for trial in one.trials:
        tally.add(trial)
    assert tally.gain == pytest.approx(11.5 / 6.0)
    assert tally.searched == 6
    assert tally.best is not None
    assert tally.best.config == Config(x=1)

"""What a study makes of a budget of time: as many pairs in the final as fit."""

from __future__ import annotations

import pytest
from test_study import study

from _toys import FromFunction, Numbers, ok, toy_task
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.origin import Phase
from autoscout.study.budget import Stop
from autoscout.study.final import Finals


@pytest.mark.parametrize(("wall_s", "pairs"), [(240.0, 3), (300.0, 3), (420.0, 3), (600.0, 5)])
def test_a_budget_of_time_ends_with_as_many_pairs_as_fit(wall_s: float, pairs: int) -> None:
    clock = VirtualClock()
    evaluator = FromFunction(lambda config: ok(20.0 - config["x"] % 7, cost_s=20.0), clock=clock)
    one = study(space=Numbers(100), task=toy_task(wall_s=wall_s), clock=clock, evaluator=evaluator, finals=Finals())
    stop = one.run()
    final = [trial for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL and trial.config == one.default]
    assert len(final) >= pairs
    assert wall_s - clock.span_s() < 60.0 or len(final) == 5, "no round would have fitted"
    assert stop is Stop.WALL
    assert one.ending(stop) != "wall-clock budget used"


@pytest.mark.parametrize(("default_s", "wall_s"), [(20.0, 200.0), (30.0, 250.0), (40.0, 300.0), (40.0, 500.0)])
def test_a_default_that_is_slower_than_the_rest_still_gets_its_pairs(default_s: float, wall_s: float) -> None:
    clock = VirtualClock()
    evaluator = FromFunction(lambda config: ok(50.0 - config["x"] % 7, cost_s=10.0 if config["x"] else default_s), clock=clock)
    one = study(space=Numbers(200), task=toy_task(wall_s=wall_s), clock=clock, evaluator=evaluator, finals=Finals())
    one.run()
    final = [trial.config["x"] for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert final.count(0) >= 3, "a search of cheap trials says little of how long a pair takes"


def test_where_a_whole_round_does_not_fit_the_one_that_is_ahead_meets_the_default_once_more() -> None:
    clock = VirtualClock()
    evaluator = FromFunction(lambda config: ok(10.0 - config["x"], cost_s=10.0), clock=clock)
    store = plugins.get("store", "memory")()
    study(store=store, task=toy_task(trials=3), clock=clock, evaluator=evaluator).run()
    for wall_s, count in ((125.0, 9), (146.0, 11), (156.0, 12), (186.0, 15)):
        again = study(store=store, task=toy_task(wall_s=wall_s), clock=clock, evaluator=evaluator, finals=Finals(finalists=2, rounds=5))
        again._search = lambda: Stop.WALL  # type: ignore[method-assign]
        again.run()
        final = [trial for trial in again.trials if trial.proposal.origin.phase is Phase.FINAL]
        assert len(final) == count, f"{wall_s} s"
    assert {trial.config["x"] for trial in final} == {0, 1, 2}

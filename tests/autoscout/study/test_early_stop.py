from __future__ import annotations

from dataclasses import replace
from typing import Any

from _toys import FromFunction, InOrder, Numbers, Watcher, ok, toy_task
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.protocols import StudyRecord
from autoscout.core.trial import Measurement, Status
from autoscout.study.final import Finals
from autoscout.study.study import Study


class Stopping(FromFunction):
    """Stops a trial as soon as it starts when it cannot win."""

    def __init__(self, answer: Any) -> None:
        super().__init__(answer)
        self.goals: list[tuple[int, int, float | None]] = []

    def evaluate(self, proposals: Any) -> list[Measurement]:
        found = []
        for proposal, answer in zip(proposals, super().evaluate(proposals), strict=True):
            goal = proposal.to_beat
            self.goals.append((proposal.config["x"], proposal.repeat, goal and goal.value))
            if goal is not None and (why := goal.lost(answer.metrics)):
                answer = replace(answer, status=Status.BOUNDED, bounds=dict(answer.metrics), reason=why)
            found.append(answer)
        return found


def study(answer: Any, finals: Finals, **budget: float) -> Study:
    store, space = plugins.get("store", "memory")(), Numbers()
    record = store.open(StudyRecord(name="s", task=toy_task(**budget), space=space.fingerprint(), spec={}))
    parts = {"searcher": InOrder(space), "evaluator": Stopping(answer), "observer": Watcher(), "clock": VirtualClock()}
    return Study(record=record, space=space, store=store, worker="w", default=Config(x=0), finals=finals, **parts)


TIMES = {0: 10.0, 1: 8.0, 2: 9.0, 3: 8.5, 4: 7.0, 5: 8.2}


def test_the_last_place_among_the_finalists_is_to_beat() -> None:
    one = study(lambda config: ok(TIMES[config["x"]]), Finals(finalists=2, rounds=0), trials=6)
    one.run()
    goals = {x: goal for x, repeat, goal in one.evaluator.goals if repeat == 0}
    assert goals == {0: None, 1: None, 2: 10.0, 3: 9.0, 4: 8.5, 5: 8.0}
    assert [trial.measurement.status for trial in one.trials] == [Status.OK] * 5 + [Status.BOUNDED]


def test_a_bounded_trial_is_no_finalist_and_the_final_has_nothing_to_beat() -> None:
    one = study(lambda config: ok(TIMES[config["x"]]), Finals(finalists=2, rounds=2, simplify=False), trials=6)
    one.run()
    final = {(x, goal) for x, repeat, goal in one.evaluator.goals if repeat > 0}
    assert final == {(0, None), (4, None), (1, None)}


def test_what_is_measured_again_is_told_what_it_came_to_before() -> None:
    one = study(lambda config: ok(TIMES[config["x"]]), Finals(finalists=1, rounds=2, simplify=False), trials=3)
    told: list[tuple[int, float | None]] = []
    measure = one.evaluator.evaluate
    one.evaluator.evaluate = lambda proposals: (
        told.extend((p.config["x"], p.to_beat.known if p.to_beat else None) for p in proposals if p.repeat > 0) or measure(proposals)
    )
    one.run()
    assert set(told) == {(0, 10.0), (1, 8.0)}

"""Trials that share a process, as the loop sees them: handed to the evaluator together in the search, one by one in the final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from _toys import FromFunction, InOrder, Numbers, Watcher, ok, toy_task
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.protocols import StudyRecord
from autoscout.core.trial import SAVED, Measurement, Proposal, Trial
from autoscout.study.budget import Stop, out_of_time
from autoscout.study.campaign import Campaign
from autoscout.study.dispatch import Parallelism
from autoscout.study.final import Finals
from autoscout.study.setup import prepare
from autoscout.study.study import Study


@dataclass
class Counting(FromFunction):
    units: list[list[int]] = field(default_factory=list)

    def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
        self.units.append([proposal.config["x"] for proposal in proposals])
        return super().evaluate(proposals)


def run(trials: int, per_process: int, finals: Finals) -> tuple[Stop, list[list[int]], list[Trial]]:
    space, task = Numbers(), toy_task(trials=trials)
    store = plugins.get("store", "memory")()
    record = store.open(StudyRecord(name="s", task=task, space=space.fingerprint(), spec={}))
    evaluator = Counting(lambda config: ok(10.0 - config["x"]))
    study = Study(
        record=record, space=space, store=store, searcher=InOrder(space), evaluator=evaluator, observer=Watcher(), worker="w",
        default=Config(x=0), finals=finals, clock=VirtualClock(), parallelism=Parallelism(per_process=per_process),
    )  # fmt: skip
    return study.run(), evaluator.units, study.trials


def test_the_search_hands_over_several_and_keeps_to_its_budget() -> None:
    stop, units, trials = run(5, 3, Finals(rounds=0))
    assert stop is Stop.TRIALS
    assert units == [[0, 1, 2], [3, 4]]
    assert [trial.config["x"] for trial in trials] == [0, 1, 2, 3, 4]


def test_the_final_measures_one_by_one() -> None:
    _, units, _ = run(4, 4, Finals(rounds=2, finalists=1))
    assert units[0] == [0, 1, 2, 3]
    assert [len(unit) for unit in units[1:]] == [1] * 4


def test_time_for_the_final_is_kept_back_for_processes_of_its_own() -> None:
    task = toy_task(wall_s=100.0)
    cheap = ok(1.0, cost_s=2.0)
    alone = Trial(proposal=Proposal(config=Config(x=1)), measurement=cheap)
    shared = Trial(proposal=Proposal(config=Config(x=1)), measurement=Measurement(**{**vars(cheap), "conditions": {SAVED: 8.0}}))
    assert out_of_time(task.budget, [alone], wall_s=70.0, workers=1, later=4) is None
    assert out_of_time(task.budget, [shared], wall_s=70.0, workers=1, later=4) is Stop.WALL


def test_a_unit_is_no_larger_than_the_time_for_it() -> None:
    space, task, clock = Numbers(), toy_task(wall_s=100.0), VirtualClock()
    store = plugins.get("store", "memory")()
    record = store.open(StudyRecord(name="s", task=task, space=space.fingerprint(), spec={}))

    class Slow(Counting):
        def evaluate(self, proposals: Sequence[Proposal]) -> list[Measurement]:
            clock.sleep(10.0 * len(proposals))
            return super().evaluate(proposals)

    evaluator = Slow(lambda config: ok(10.0 - config["x"], cost_s=10.0))
    study = Study(
        record=record, space=space, store=store, searcher=InOrder(space), evaluator=evaluator, observer=Watcher(), worker="w",
        default=Config(x=0), finals=Finals(rounds=2, finalists=1), clock=clock, parallelism=Parallelism(per_process=4),
    )  # fmt: skip
    study.run()
    assert [len(unit) for unit in evaluator.units] == [4, 1, 1, 1, 1, 1], "40 s of the 100 are kept for the final"
    assert clock.span_s() <= 100.0


def test_a_backend_that_cannot_is_named() -> None:
    campaign = Campaign.model_validate({"system": "llamacpp", "measure": {"per_process": 4}})
    with pytest.raises(ConfigError, match="llamacpp starts a process for every trial"):
        prepare(campaign)

"""A study that is told what to do while it runs."""

from __future__ import annotations

from typing import Any

import pytest
from test_study import study, xs

from _studies import campaign
from _toys import FromFunction, InOrder, Numbers, ok, toy_task
from autoscout.core import plugins
from autoscout.core.actions import Action, ActionKind
from autoscout.core.config import Config
from autoscout.core.errors import SpaceError
from autoscout.core.origin import By
from autoscout.core.protocols import Store
from autoscout.core.trial import Measurement
from autoscout.store.memory import MemoryStore
from autoscout.study.about import About
from autoscout.study.assemble import look, run
from autoscout.study.budget import Stop
from autoscout.study.folder import Folder
from autoscout.study.steering import STOPPING
from autoscout.study.stores import open_store

STOP = Action(kind=ActionKind.STOP)


def asking(store: Any, when: int, *actions: Action) -> FromFunction:
    """An evaluator during whose measurement of x=`when` somebody asks for something."""

    def measure(config: Config) -> Measurement:
        if config["x"] == when:
            for action in actions:
                store.act("s", action)
        return ok(10.0 - config["x"])

    return FromFunction(measure)


@pytest.fixture
def store() -> Any:
    return plugins.get("store", "memory")()


def test_stop_ends_the_run_and_not_the_next_one(store: Any) -> None:
    one = study(store=store, evaluator=asking(store, 2, STOP))
    assert one.run() is Stop.INTERRUPTED
    assert xs(one.trials) == [0, 1, 2]
    assert store.actions("s")[0].answer == STOPPING
    again = study(store=store)
    assert again.run() is Stop.TRIALS
    assert xs(again.trials) == [0, 1, 2, 3, 4]


def test_more_budget(store: Any) -> None:
    one = study(store=store, evaluator=asking(store, 2, Action(kind=ActionKind.BUDGET, budget={"trials": 7, "wall_s": 50.0})))
    assert one.run() is Stop.TRIALS
    assert len(one.trials) == 7
    assert "trials: 5 to 7" in store.actions("s")[0].answer
    again = study(store=store)
    assert again.run() is Stop.TRIALS
    assert len(again.trials) == 7, "a resumed study remembers what was added"


def test_a_configuration_that_somebody_asks_for_is_measured_next(store: Any) -> None:
    one = study(store=store, evaluator=asking(store, 1, Action(kind=ActionKind.TRY, config=Config(x=9))))
    one.run()
    assert xs(one.trials) == [0, 1, 9, 2, 3]
    assert one.trials[2].proposal.origin.by == By.ASKED


def test_a_configuration_that_the_space_refuses_is_refused_in_words(store: Any) -> None:
    def complete(values: Config) -> Config:
        raise SpaceError(f"there is no x={values['x']}")

    one = study(store=store, evaluator=asking(store, 1, Action(kind=ActionKind.TRY, config=Config(x=99))), complete=complete)
    one.run()
    assert xs(one.trials) == [0, 1, 2, 3, 4]
    assert store.actions("s")[0].answer == "refused: there is no x=99"


def test_an_invalid_trial_counts_for_nothing_and_is_not_proposed_again(store: Any) -> None:
    made: list[InOrder] = []

    def fresh() -> InOrder:
        made.append(InOrder(Numbers()))
        return made[-1]

    action = Action(kind=ActionKind.INVALID, trial=1, reason="a backup ran")
    one = study(store=store, evaluator=asking(store, 3, action), fresh=fresh)
    assert one.run() is Stop.TRIALS
    assert xs(one.trials) == [0, 1, 2, 3, 4, 5], "one more, because one does not count"
    assert [trial.number for trial in one.inside] == [0, 2, 3, 4, 5]
    assert xs(made[0].told) == [0, 2, 3, 4, 5], "another searcher that never heard of it"


def test_an_invalid_trial_is_measured_again_when_somebody_asks(store: Any) -> None:
    actions = [Action(kind=ActionKind.INVALID, trial=1), Action(kind=ActionKind.TRY, config=Config(x=1))]
    one = study(store=store, evaluator=asking(store, 2, *actions), fresh=lambda: InOrder(Numbers()))
    one.run()
    again = [trial for trial in one.inside if trial.config == Config(x=1)]
    assert [trial.proposal.repeat for trial in again] == [-1]


def test_a_store_without_actions_is_no_obstacle() -> None:
    class Plain(MemoryStore):
        """A store that offers what it must and nothing besides."""

        takes_actions, act, actions, answer, pulses = Store.takes_actions, Store.act, Store.actions, Store.answer, Store.pulses

    one = study(store=Plain(), task=toy_task(trials=3))
    assert one.run() is Stop.TRIALS


def test_whole_studies_leave_invalid_trials_out_and_describe_themselves(tmp_path: Any) -> None:
    setup = campaign(tmp_path, "one", trials=5)
    outcome = run(setup, Folder(tmp_path / "one"))
    best = min(outcome.inside, key=lambda trial: setup.task.objective.loss(trial.measurement))
    with open_store(tmp_path / "all.db", create=False) as store:  # type: ignore[attr-defined]
        store.act("one", Action(kind=ActionKind.INVALID, trial=best.number, reason="not ours"))
        about = About.from_record(store.studies()[0])
    assert about.default_config([]) == setup.default
    assert [knob.name for knob in about.knobs] == list(setup.space.knobs)
    assert about.simulated
    seen = look(setup, Folder(tmp_path / "one"))
    assert seen.invalid == {best.number: "not ours"}
    assert best.number not in [trial.number for trial in seen.inside]
    assert len(seen.trials) == len(outcome.trials), "it is still stored"

"""What a plug-in may offer is asked by value: a flag that says no counts as no, and a method that is not written offers nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import autoscout
from _systems import Script, task
from autoscout.core import plugins
from autoscout.core.errors import PluginError, StoreError
from autoscout.core.protocols import Backend, Executor, Searcher, Simulator, Store, StudyRecord, once_per_task
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Status
from autoscout.search.random import RandomSearcher
from autoscout.simulators.training import TrainingModel
from autoscout.space import Grid, Space
from autoscout.store.memory import MemoryStore
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import Setup, prepare
from autoscout.study.start import StartingPoint, find_simulator

GET = plugins.get

FLAGS = {
    Backend: ("takes_space", "shares_process"),
    Searcher: ("learns_from_past", "takes_predictions", "takes_several_goals"),
    Simulator: ("needs_no_trials",),
    Executor: ("calls_in_process", "hands_out_slots_only"),
    Store: ("volatile", "takes_actions"),
}


@pytest.mark.parametrize(("base", "flag"), [(base, flag) for base, flags in FLAGS.items() for flag in flags])
def test_a_flag_is_off_unless_a_class_turns_it_on(base: type, flag: str) -> None:
    assert getattr(base, flag) is False
    assert not getattr(type("Off", (base,), {flag: False}), flag)
    assert getattr(type("On", (base,), {flag: True}), flag)


class NoSpace(Script):
    """A backend that says of itself that it takes no space."""

    takes_space = False

    def task(self, given: Any) -> Task:
        return task()

    def space(self, task: Task) -> Any:
        return Space([Grid("x", 1, 4, default=1)])


class Doubtful(RandomSearcher):
    takes_predictions = False
    learns_from_past = False


class Fitted(TrainingModel):
    needs_no_trials = False


def prepared(searcher: type[Searcher] | None = None, **more: Any) -> Setup:
    data = {"system": "virtual", "hardware": {"gpus": "8xA100-80"}, **more}
    return prepare(build_campaign(data, where="test"), searcher=searcher)


def test_a_backend_that_takes_no_space_is_built_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "get", lambda kind, name: NoSpace if name == "script" else GET(kind, name))
    setup = prepare(build_campaign({"system": "script", "space": {"knobs": {"x": {"values": [1, 2]}}}}, where="test"))
    assert setup.space.count().value == 2, "its own space, narrowed"


def test_a_searcher_that_takes_no_predictions_is_told_none() -> None:
    assert StartingPoint.decide(prepared()).simulator == "training"
    assert StartingPoint.decide(prepared(Doubtful)).simulator == ""


def test_a_simulator_that_needs_trials_is_not_used_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = prepared()
    assert find_simulator(setup.space, setup.task) == "training"
    monkeypatch.setattr(plugins, "get", lambda kind, name: Fitted if name == "training" else GET(kind, name))
    assert find_simulator(setup.space, setup.task) == ""


def test_a_simulator_that_reads_none_of_the_knobs_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unbuilt(TrainingModel):
        def __init__(self) -> None:
            raise AssertionError("built to be asked")

    monkeypatch.setattr(plugins, "available", lambda kind: ("unbuilt",))
    monkeypatch.setattr(plugins, "get", lambda kind, name: Unbuilt)
    assert find_simulator(Space([Grid("x", 1, 4)]), task()) == ""


def test_what_is_left_out_offers_nothing() -> None:
    script = Script()
    assert (script.hints(task()), script.resting(task()), script.load(task()), script.executor) == ((), (), "", "local")
    assert script.hints_after(Measurement(status=Status.OK), task()) == ()
    assert not script.deterministic(task())
    assert script.example() is None


def test_a_store_without_actions_says_so(tmp_path: Path) -> None:
    class Plain(MemoryStore):
        takes_actions, act, actions, pulses = False, Store.act, Store.actions, Store.pulses

    store = Plain()
    store.open(StudyRecord(name="s", task=task(), space="", spec={}))
    assert (store.actions("s"), store.pulses()) == ([], {})
    with pytest.raises(StoreError, match="keeps no actions"):
        store.act("s", None)  # type: ignore[arg-type]
    assert Store.example.__func__(MemoryStore, tmp_path) == f"memory:{tmp_path / 'store'}"  # type: ignore[attr-defined]


def test_a_class_of_ones_own_must_derive_from_the_base_class() -> None:
    class Duck:
        def __init__(self, space: Space, task: Task, seed: int) -> None: ...

        def ask(self, n: int, given: Any = (), pending: Sequence[Any] = ()) -> list[Any]:
            return []

        def tell(self, trials: Sequence[Any]) -> None: ...

    with pytest.raises(PluginError, match=r"must derive from autoscout\.core\.protocols\.Searcher \(found Duck\)") as caught:
        autoscout.minimize(lambda config: 1.0, {"x": [1, 2]}, trials=2, searcher=Duck)  # type: ignore[arg-type]
    assert caught.value.faults[0].fix == "Write `class Duck(Searcher)`"


def test_a_space_is_built_once_per_task() -> None:
    built: list[str] = []

    class Counting(Script):
        @once_per_task
        def space(self, task: Task) -> Any:
            built.append(task.system)
            return Space([Grid("x", 1, 4)])

    one, other = Counting(), Counting()
    assert one.space(task()) is one.space(task())
    assert one.space(task()) is not other.space(task())
    assert built == ["script"] * 2

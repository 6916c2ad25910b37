"""The adaptive evaluator inside the real loop: checks, switch, resume."""

from __future__ import annotations

from typing import Any

from _toys import FromFunction, InOrder, Numbers, Watcher, ok, toy_task
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.history import best
from autoscout.core.protocols import StudyRecord
from autoscout.core.trial import Fidelity, Measurement
from autoscout.evaluate.adaptive import AdaptiveEvaluator, AdaptiveOptions
from autoscout.study.budget import Stop
from autoscout.study.final import Finals
from autoscout.study.study import Study

SPACE = Numbers(60)


def truth(config: Config) -> float:
    return 1.0 + abs(float(config["x"]) - 41) / 10  # type: ignore[arg-type]


def simulated(config: Config) -> Measurement:
    return ok(2.0 * truth(config), 0.0, Fidelity.SIMULATED)


def adaptive(real: FromFunction, trials: Any = (), **options: int) -> AdaptiveEvaluator:
    return AdaptiveEvaluator(FromFunction(simulated), real, toy_task(), AdaptiveOptions(**options), trials)  # type: ignore[arg-type]


def run(store: Any, evaluator: AdaptiveEvaluator, profiles: int) -> Study:
    task = toy_task(trials=profiles)
    record = store.open(StudyRecord(name="s", task=task, space=SPACE.fingerprint(), spec={}))
    study = Study(
        record=record,
        space=SPACE,
        store=store,
        searcher=InOrder(SPACE),
        evaluator=evaluator,
        observer=Watcher(),
        worker="w",
        default=Config(x=0),
        finals=Finals(rounds=0),
        clock=VirtualClock(),
    )
    study.run()
    return study


def test_simulated_answers_are_free_and_the_best_is_measured() -> None:
    real = FromFunction(lambda config: ok(truth(config)))
    study = run(plugins.get("store", "memory")(), adaptive(real, interval=4, simulations=50), profiles=20)
    kinds = [trial.measurement.fidelity for trial in study.trials]
    assert kinds.count(Fidelity.SIMULATED) >= 40
    assert kinds.count(Fidelity.MEASURED) == len(real.calls) <= 20
    found = best(study.trials, study.record.task)
    assert found is not None
    assert found.measurement.fidelity is Fidelity.MEASURED
    assert found.config == Config(x=41)
    assert found.measurement.conditions["predicted"] > 0


def test_a_resumed_study_goes_on_where_it_was() -> None:
    store = plugins.get("store", "memory")()
    first = FromFunction(lambda config: ok(truth(config)))
    before = run(store, adaptive(first, interval=2), profiles=4)
    second = FromFunction(lambda config: ok(truth(config)))
    evaluator = adaptive(second, before.trials, interval=2)
    assert len(evaluator.checks) == 4
    after = run(store, evaluator, profiles=8)
    measured = [trial.config for trial in after.trials if trial.measurement.fidelity is Fidelity.MEASURED]
    assert len(measured) == len(set(measured)) == 8
    assert len(second.calls) == 4


def test_a_search_that_ends_first_has_its_best_measured_and_finals_do_not_collide_with_rechecks() -> None:
    real = FromFunction(lambda config: ok(truth(config)))
    store, task = plugins.get("store", "memory")(), toy_task(trials=200)
    study = Study(
        record=store.open(StudyRecord(name="s", task=task, space=SPACE.fingerprint(), spec={})),
        space=SPACE,
        store=store,
        searcher=InOrder(SPACE),
        evaluator=adaptive(real, interval=1000, top=4),
        observer=Watcher(),
        worker="w",
        default=Config(x=0),
        finals=Finals(finalists=1, rounds=2),
        clock=VirtualClock(),
    )
    assert study.run() is Stop.EXHAUSTED
    looks = [(trial.config["x"], trial.proposal.repeat) for trial in study.trials if trial.measurement.fidelity is Fidelity.MEASURED]
    assert [look for look in looks if look[1] < 0][:4] == [(41, -1), (40, -1), (42, -1), (39, -1)]
    assert sorted(look for look in looks if look[1] > 0) == [(0, 1), (0, 2), (41, 1), (41, 2)]


def test_on_a_virtual_cluster_cheap_answers_stand_one_step_below_its_own() -> None:
    real = FromFunction(lambda config: ok(truth(config), fidelity=Fidelity.SIMULATED))
    store = plugins.get("store", "memory")()
    study = run(store, adaptive(real, interval=4, simulations=50, profiler_fidelity=Fidelity.SIMULATED), profiles=20)
    kinds = [trial.measurement.fidelity for trial in study.trials]
    assert kinds.count(Fidelity.SIMULATED) == len(real.calls) <= 20
    assert kinds.count(Fidelity.PREDICTED) >= 30
    assert Fidelity.MEASURED not in kinds
    found = best(study.trials, study.record.task)
    assert found is not None
    assert found.config == Config(x=41)
    again = adaptive(real, study.trials, interval=4, simulations=50, profiler_fidelity=Fidelity.SIMULATED)
    assert len(again.checks) == len(real.calls)

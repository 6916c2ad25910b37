from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any

import pytest

from _toys import FromFunction, InOrder, Numbers, Watcher, ok, toy_task
from autoscout.analysis.curves import busy_s
from autoscout.analysis.verdict import Verdict
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError, LaunchError, StoreError
from autoscout.core.origin import Phase
from autoscout.core.protocols import StudyRecord
from autoscout.core.task import Guard, Limit, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.study.budget import Stop
from autoscout.study.dispatch import Parallelism
from autoscout.study.final import Finals
from autoscout.study.study import Study

NO_FINAL = Finals(rounds=0)


def study(**changes: Any) -> Study:
    space = changes.pop("space", Numbers())
    task = changes.pop("task", toy_task(trials=5))
    store = changes.pop("store", None) or plugins.get("store", "memory")()
    record = store.open(StudyRecord(name="s", task=task, space=space.fingerprint(), spec={}))
    given: dict[str, Any] = {
        "searcher": InOrder(space),
        "evaluator": FromFunction(lambda config: ok(10.0 - config["x"])),
        "observer": Watcher(),
        "worker": "w",
        "default": Config(x=0),
        "finals": NO_FINAL,
        "clock": VirtualClock(),
    }
    return Study(record=record, space=space, store=store, **{**given, **changes})


def xs(trials: list[Trial]) -> list[Any]:
    return [trial.config["x"] for trial in trials]


def test_default_first_then_known_good_then_the_searcher() -> None:
    one = study(first=[Config(x=7)])
    assert one.run() is Stop.TRIALS
    assert xs(one.trials) == [0, 7, 1, 2, 3]
    assert [trial.proposal.origin.by for trial in one.trials] == ["default", "given", "in-order", "in-order", "in-order"]
    assert xs(one.observer.ended) == xs(one.trials)
    assert [trial.number for trial in one.trials] == [0, 1, 2, 3, 4]


def test_what_the_measurement_of_the_default_suggests_is_tried_next() -> None:
    def answer(config: Config) -> Measurement:
        return Measurement(status=Status.OK, metrics={"time_s": 10.0}, conditions={"dirty": 1.0} if config["x"] == 0 else {})

    def hints_after(default: Measurement) -> list[Config]:
        return [Config(x=8)] if default.is_disturbed else []

    known = [Config(x=7), Config(x=6)]
    busy = study(evaluator=FromFunction(answer), first=known, hints=known[1:], hints_after=hints_after, repeat_default=True)
    busy.run()
    assert xs(busy.trials)[:3] == [0, 8, 0]
    assert 7 in xs(busy.trials), "the user asked for it"
    assert 6 not in xs(busy.trials), "the backend named something else in its place"
    quiet = study(first=known, hints=known[1:], hints_after=hints_after)
    quiet.run()
    assert xs(quiet.trials)[:3] == [0, 7, 6]


def test_the_searcher_makes_itself_ready_while_the_default_is_measured() -> None:
    ready = threading.Event()

    class Slow(InOrder):
        def ask(self, n: int, given: Config = Config(), pending: Any = ()) -> list[Proposal]:
            ready.set()
            return super().ask(n, given, pending)

    def answer(config: Config) -> Measurement:
        assert ready.wait(30), "nobody asked before the default was measured"
        return ok(10.0 - config["x"])

    early = study(searcher=Slow(Numbers()), evaluator=FromFunction(answer), asks_early=True)
    early.run()
    late = study()
    late.run()
    assert xs(early.trials) == xs(late.trials), "and what it proposes is the same"


def test_an_exhausted_space_ends_the_study() -> None:
    one = study(space=Numbers(3), task=toy_task(trials=50))
    assert one.run() is Stop.EXHAUSTED
    assert sorted(xs(one.trials)) == [0, 1, 2]


def test_nothing_is_measured_twice_even_if_the_searcher_asks_for_it() -> None:
    class Stubborn(InOrder):
        def ask(self, n: int, given: Config = Config(), pending: Any = ()) -> list[Proposal]:
            return [Proposal(config=Config(x=0)), Proposal(config=Config(x=1)), Proposal(config=Config(x=1))]

    one = study(searcher=Stubborn(Numbers()))
    assert one.run() is Stop.EXHAUSTED
    assert xs(one.trials) == [0, 1]


def test_resume_tells_the_searcher_everything_and_goes_on() -> None:
    store = plugins.get("store", "memory")()
    study(store=store, task=toy_task(trials=3)).run()
    again = study(store=store, task=toy_task(trials=6))
    assert again.run() is Stop.TRIALS
    assert xs(again.trials) == [0, 1, 2, 3, 4, 5]
    assert xs(again.searcher.told) == [0, 1, 2, 3, 4, 5]
    assert len(again.evaluator.calls) == 3


def test_a_changed_space_keeps_old_trials_out_of_the_search() -> None:
    store = plugins.get("store", "memory")()
    study(store=store, task=toy_task(trials=6)).run()
    again = study(store=store, space=Numbers(4), task=toy_task(trials=9))
    assert again.run() is Stop.EXHAUSTED
    assert xs(again.searcher.told) == [0, 1, 2, 3]
    assert len(again.trials) == 6


@pytest.mark.parametrize(
    ("budget", "stop", "count"),
    [({"wall_s": 35.0}, Stop.WALL, 3), ({"cost_s": 40.0}, Stop.COST, 4), ({"trials": 2, "wall_s": 1e9}, Stop.TRIALS, 2)],
)
def test_budgets(budget: dict[str, float], stop: Stop, count: int) -> None:
    clock = VirtualClock()
    one = study(task=toy_task(**budget), clock=clock, evaluator=FromFunction(lambda config: ok(1.0, cost_s=10.0), clock=clock))
    assert one.run() is stop
    assert len(one.trials) == count


def test_the_wall_budget_counts_earlier_sittings() -> None:
    store, clock = plugins.get("store", "memory")(), VirtualClock()
    evaluator = FromFunction(lambda config: ok(1.0, cost_s=10.0), clock=clock)
    study(store=store, task=toy_task(trials=3), clock=clock, evaluator=evaluator).run()
    clock.sleep(5000.0)
    again = study(store=store, task=toy_task(wall_s=55.0), clock=clock, evaluator=evaluator)
    assert again.run() is Stop.WALL
    assert len(again.trials) == 5


def test_failures_are_told_and_only_a_long_run_of_them_stops_the_study() -> None:
    def flaky(config: Config) -> Measurement:
        return ok(1.0) if config["x"] in (0, 3) else Measurement(status=Status.CRASHED, reason="boom")

    one = study(task=toy_task(trials=50, failures=3), evaluator=FromFunction(flaky), finals=Finals())
    assert one.run() is Stop.FAILURES
    assert xs(one.trials) == [0, 1, 2, 3, 4, 5, 6]
    assert len(one.searcher.told) == 7


def test_a_slow_trial_does_not_idle_the_other_slots() -> None:
    release, others = threading.Event(), threading.Semaphore(0)

    def function(config: Config) -> Measurement:
        if config["x"] == 0:
            assert release.wait(30), "the slow trial was never released: the other slot stood still"
        else:
            others.release()
            if config["x"] == 4:
                release.set()
        return ok(1.0)

    one = study(evaluator=FromFunction(function, slots=2))
    assert one.run() is Stop.TRIALS
    assert xs(one.trials)[:3] == [1, 2, 3], "the others went by while the default was slow"
    assert max(one.searcher.pending_seen) >= 1, "the searcher knew what was under way"


def test_together_waits_for_the_whole_batch() -> None:
    one = study(task=toy_task(trials=8), evaluator=FromFunction(lambda config: ok(1.0), slots=4), parallelism=Parallelism(together=True))
    assert one.run() is Stop.TRIALS
    assert one.searcher.groups == [4, 4]
    assert [trial.batch for trial in one.trials] == [0] * 4 + [1] * 4


def test_never_more_trials_than_the_budget_with_many_slots() -> None:
    one = study(task=toy_task(trials=5), evaluator=FromFunction(lambda config: ok(1.0), slots=4))
    one.run()
    assert len(one.trials) == 5


def test_the_final_measures_default_and_finalists_again_in_rotating_order() -> None:
    one = study(finals=Finals(finalists=2, rounds=3))
    assert one.run() is Stop.TRIALS
    final = [trial for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert [(trial.config["x"], trial.proposal.repeat) for trial in final] == [
        (0, 1),
        (4, 1),
        (3, 1),
        (4, 2),
        (3, 2),
        (0, 2),
        (3, 3),
        (0, 3),
        (4, 3),
    ]
    assert one.observer.phases == ["search", "final"]


def test_an_interrupted_final_goes_on_with_the_same_finalists() -> None:
    store = plugins.get("store", "memory")()
    stopping = threading.Event()

    def function(config: Config) -> Measurement:
        if len(first.evaluator.calls) == 7:
            stopping.set()
        return ok(10.0 - config["x"])

    first = study(store=store, finals=Finals(finalists=2, rounds=3), evaluator=FromFunction(function), stopping=stopping)
    assert first.run() is Stop.INTERRUPTED
    assert len(first.trials) == 7
    again = study(store=store, finals=Finals(finalists=2, rounds=3))
    assert again.run() is Stop.TRIALS
    assert len(again.trials) == 14
    identities = [trial.identity for trial in again.trials]
    assert len(set(identities)) == len(identities)


def test_a_longer_search_with_a_new_winner_gets_a_final_of_its_own() -> None:
    store = plugins.get("store", "memory")()
    finals = Finals(finalists=1, rounds=2)
    study(store=store, finals=finals, task=toy_task(trials=3)).run()
    again = study(store=store, finals=finals, task=toy_task(trials=4))
    again.run()
    final = [(trial.config["x"], trial.proposal.repeat) for trial in again.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert final == [(0, 1), (2, 1), (2, 2), (0, 2), (0, 3), (3, 3), (3, 4), (0, 4)]
    calls = len(again.evaluator.calls)
    again = study(store=store, finals=finals, task=toy_task(trials=4), evaluator=again.evaluator)
    again.run()
    assert len(again.evaluator.calls) == calls, "a finished study measures nothing"


def test_rechecks_come_before_new_proposals_and_simulated_trials_do_not_count() -> None:
    evaluator = FromFunction(lambda config: ok(10.0 - config["x"], fidelity=Fidelity.MEASURED if config["x"] == 0 else Fidelity.SIMULATED))
    one = study(space=Numbers(6), task=toy_task(trials=2), evaluator=evaluator)
    assert one.run() is Stop.EXHAUSTED
    assert len(one.trials) == 6
    evaluator = FromFunction(lambda config: ok(1.0), rechecks=[Proposal(config=Config(x=5), repeat=-1)])
    one = study(evaluator=evaluator)
    one.run()
    assert xs(one.trials)[:3] == [0, 5, 1]


def test_a_store_that_fails_stops_the_trials_under_way() -> None:
    store = plugins.get("store", "memory")()
    one = study(store=store, evaluator=FromFunction(lambda config: ok(1.0), slots=2))

    def full(*_: object) -> list[Trial]:
        raise StoreError("disk full")

    store.append = full
    with pytest.raises(StoreError, match="disk full"):
        one.run()
    assert one.evaluator.cancelled.is_set()


def test_two_processes_share_a_study_without_measuring_anything_twice() -> None:
    store = plugins.get("store", "memory")()
    gate = threading.Barrier(2, timeout=30)

    def function(config: Config) -> Measurement:
        if config["x"] in (0, 1):
            gate.wait()  # both are inside a trial at once: neither waited for the other
        return ok(1.0)

    parts = [
        study(store=store, worker=f"w{i}", task=toy_task(trials=8), evaluator=FromFunction(function), clock=VirtualClock()) for i in (0, 1)
    ]
    threads = [threading.Thread(target=part.run) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    stored = [trial for batch in store.batches("s") for trial in batch]
    assert len({trial.identity for trial in stored}) == len(stored)
    assert 8 <= len(stored) <= 9, "at most one trial in flight elsewhere may pass the budget"


def test_a_narrowed_space_gets_a_budget_and_a_final_of_its_own() -> None:
    """What lies outside the space that is asked for now can neither use up its budget nor win."""
    store = plugins.get("store", "memory")()
    study(store=store, task=toy_task(trials=9), finals=Finals(finalists=1, rounds=1)).run()
    again = study(store=store, space=Numbers(4), task=toy_task(trials=4), finals=Finals(finalists=1, rounds=1))
    assert again.run() is Stop.TRIALS
    assert xs(again.inside[:4]) == [0, 1, 2, 3]
    assert [(trial.config["x"], trial.proposal.repeat) for trial in again.trials[-2:]] == [(3, 2), (0, 2)]
    assert [proposal.config["x"] for proposal in again.evaluator.calls] == [3, 0], "only the final was measured"


def test_after_too_many_failures_the_next_sitting_tries_again() -> None:
    store = plugins.get("store", "memory")()
    broken = FromFunction(lambda config: Measurement(status=Status.CRASHED, reason="no driver"))
    assert study(store=store, task=toy_task(trials=9, failures=3), evaluator=broken).run() is Stop.FAILURES
    mended = study(store=store, task=toy_task(trials=9, failures=3), finals=Finals(finalists=1, rounds=1))
    assert mended.run() is Stop.TRIALS
    assert sum(trial.ok for trial in mended.trials) == 6 + 2, "six of the search, and the final measures the default after all"


def test_a_trial_that_is_given_up_is_not_started_again_and_again() -> None:
    def hopeless(config: Config) -> Measurement:
        return Measurement(status=Status.ABORTED) if config["x"] in (0, 2) else ok(10.0 - config["x"])

    one = study(space=Numbers(5), task=toy_task(trials=50), evaluator=FromFunction(hopeless), finals=Finals(finalists=1, rounds=2))
    assert one.run() is Stop.EXHAUSTED
    assert xs(one.trials[:1]) == [1]
    assert [proposal.config["x"] for proposal in one.evaluator.calls].count(0) == 1 + 2, "once in the search, twice in the final"


def test_an_error_of_one_trial_does_not_lose_another() -> None:
    meet = threading.Barrier(2, timeout=30)

    def function(config: Config) -> Measurement:
        if config["x"] > 1:  # started when x=1 was the first of the two to be collected
            assert one.evaluator.cancelled.wait(30)
            return Measurement(status=Status.ABORTED)
        meet.wait()
        if config["x"] == 0:
            raise LaunchError("no engine")
        return ok(1.0)

    store = plugins.get("store", "memory")()
    one = study(store=store, evaluator=FromFunction(function, slots=2))
    with pytest.raises(LaunchError, match="no engine"):
        one.run()
    assert [trial.config["x"] for batch in store.batches("s") for trial in batch] == [1]
    assert store.claim("s", [Proposal(config=Config(x=0))], "somebody else", 60.0), "the claim was given back"


def test_the_final_stops_at_the_wall_budget_between_rounds() -> None:
    clock = VirtualClock()
    one = study(
        task=toy_task(wall_s=100.0),
        clock=clock,
        evaluator=FromFunction(lambda config: ok(10.0 - config["x"], cost_s=10.0), clock=clock),
        finals=Finals(finalists=1, rounds=50),
    )
    assert one.run() is Stop.WALL
    final = [trial for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert clock.span_s() <= 100.0
    assert len(final) == 6, "three whole rounds: enough for an interval, though that is more than half of the time"


def test_no_time_is_kept_back_for_a_final_that_nobody_is_in() -> None:
    clock = VirtualClock()

    def answer(config: Config) -> Measurement:
        if config["x"] == 0:
            return ok(1.0, cost_s=10.0)
        return Measurement(status=Status.BOUNDED, cost_s=8.0, bounds={"time_s": 1.0})

    one = study(
        task=toy_task(wall_s=100.0),
        space=Numbers(50),
        clock=clock,
        evaluator=FromFunction(answer, clock=clock),
        finals=Finals(finalists=1, rounds=3),
    )
    assert one.run() is Stop.WALL
    assert clock.span_s() > 80.0


class Settler(FromFunction):
    """Wants one more look when the search has ended."""

    settled = 0

    def settle(self) -> None:
        self.settled += 1
        self.rechecks = [Proposal(config=Config(x=2), repeat=-1)]


def test_an_evaluator_may_settle_once_when_nothing_is_left_to_propose() -> None:
    evaluator = Settler(lambda config: ok(1.0))
    one = study(space=Numbers(4), task=toy_task(trials=50), evaluator=evaluator)
    assert one.run() is Stop.EXHAUSTED
    assert [(trial.config["x"], trial.proposal.repeat) for trial in one.trials] == [(0, 0), (1, 0), (2, 0), (3, 0), (2, -1)]
    assert evaluator.settled == 1
    early = study(space=Numbers(4), task=toy_task(trials=2), evaluator=Settler(lambda config: ok(1.0)))
    assert early.run() is Stop.TRIALS
    assert early.evaluator.settled == 0


def guarded_task(*guards: str, **budget: float) -> Task:
    task = toy_task(**budget)
    return dataclasses.replace(task, objective=dataclasses.replace(task.objective, guards=tuple(map(Guard.parse, guards))))


def guarded(config: Config) -> Measurement:
    """Faster with x, and from x = 3 on the memory is more than twice the default's."""
    return Measurement(status=Status.OK, metrics={"time_s": 10.0 - config["x"], "mem_gib": 1.0 + 0.5 * config["x"]}, cost_s=1.0)


def test_a_broken_guard_reaches_the_searcher_and_the_final_as_a_broken_limit() -> None:
    store = plugins.get("store", "memory")()
    task = guarded_task("mem_gib<=2x", trials=5)
    one = study(store=store, task=task, evaluator=FromFunction(guarded), finals=Finals(finalists=1, rounds=1))
    one.run()
    losses = [task.objective.loss(trial.measurement) for trial in one.searcher.told[:5]]
    assert losses == [10.0, 9.0, 8.0, math.inf, math.inf]
    assert [trial.measurement.metrics["time_s"] for trial in one.trials[:5]] == [10.0, 9.0, 8.0, 7.0, 6.0], "stored as measured"
    assert xs(one.trials[5:]) == [0, 2], "the best that keeps the guard meets the default"
    again = study(store=store, task=task, evaluator=FromFunction(guarded), finals=Finals(finalists=1, rounds=1))
    again.run()
    assert [trial.measurement for trial in again.searcher.told] == [trial.measurement for trial in one.searcher.told]
    assert again.evaluator.calls == []


def test_a_guard_on_a_metric_that_the_default_lacks_ends_the_study_at_once() -> None:
    one = study(task=guarded_task("p99_itl_ms<=1.2x", trials=5))
    with pytest.raises(ConfigError, match="the default does not report p99_itl_ms"):
        one.run()
    assert len(one.evaluator.calls) == 1


def test_a_default_that_does_not_run_fails_once_in_the_final() -> None:
    def broken(config: Config) -> Measurement:
        return Measurement(status=Status.CRASHED, reason="boom") if config["x"] == 0 else ok(10.0 - config["x"])

    store = plugins.get("store", "memory")()
    one = study(store=store, evaluator=FromFunction(broken), finals=Finals(finalists=2, rounds=3))
    assert one.run() is Stop.TRIALS
    final = [(trial.config["x"], trial.proposal.repeat) for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert [place for place in final if place[0] == 0] == [(0, 1)]
    assert sorted(repeat for x, repeat in final if x == 4) == [1, 2, 3]
    again = study(store=store, evaluator=FromFunction(broken), finals=Finals(finalists=2, rounds=3))
    again.run()
    assert again.evaluator.calls == [], "a finished study measures nothing"


def test_a_final_without_contenders_is_over_at_once_however_long_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[int] = []
    monkeypatch.setattr("autoscout.study.study.plan", lambda *_: planned.append(1) or [])
    one = study(finals=Finals(rounds=1000))
    assert one.run() is Stop.TRIALS
    assert len(planned) == 1


def test_a_clock_that_is_set_during_a_trial_costs_no_budget() -> None:
    class Set(VirtualClock):
        ahead_s = 0.0

        def now_s(self) -> float:
            return super().now_s() + self.ahead_s

    clock = Set(1000.0)

    def measure(config: Config) -> Measurement:
        clock.sleep(2.0)
        clock.ahead_s += {1: 1e9, 2: -2e9}.get(config["x"], 0.0)
        return ok(1.0)

    one = study(clock=clock, evaluator=FromFunction(measure))
    one.run()
    assert [trial.finished_s - trial.started_s for trial in one.trials] == [2.0] * 5
    assert busy_s(one.trials) == 10.0


def test_the_next_best_are_measured_where_all_finalists_break_a_limit() -> None:
    """Seen once each keeps the limit, measured again x=9 and x=8 break it; a study that is killed on the way goes on where it was."""
    task = dataclasses.replace(
        toy_task(trials=10), objective=dataclasses.replace(toy_task().objective, limits=(Limit.parse("wait_ms<=100"),))
    )
    looks: dict[int, int] = {}

    def answer(config: Config) -> Measurement:
        x = int(str(config["x"]))
        looks[x] = looks.get(x, 0) + 1
        wait_ms = 150.0 if x == 0 or (x > 7 and looks[x] > 1) else 98.0 if x > 5 else 40.0
        return Measurement(status=Status.OK, metrics={"time_s": 10.0 - x, "wait_ms": wait_ms + 0.01 * looks[x]}, cost_s=1.0)

    store = plugins.get("store", "memory")()
    finals = Finals(finalists=1, rounds=3, simplify=False)
    one = study(store=store, task=task, evaluator=FromFunction(answer), finals=finals)
    assert one.run() is Stop.TRIALS
    final = [trial for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL]
    assert [trial.config["x"] for trial in final] == [0, 9, 9, 0, 0, 9, 8, 0, 0, 8, 8, 0, 0, 7, 7, 0, 0, 7]
    assert one.summary.verdict is Verdict.KEEPS
    assert one.summary.answer == Config(x=7)
    again = study(store=store, task=task, evaluator=FromFunction(answer), finals=finals)
    again.run()
    assert len(again.trials) == len(one.trials), "nothing is measured twice"

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from _toys import FromFunction, Watcher
from autoscout.core import plugins
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.origin import By, Origin, Phase
from autoscout.core.protocols import Searcher, StudyRecord
from autoscout.core.task import Budget, Guard, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.space import read_space
from autoscout.space.simple import simple_space
from autoscout.study.budget import Stop
from autoscout.study.final import Finals
from autoscout.study.simplify import Simplified, Simplify, simplify
from autoscout.study.study import Study

KNOBS = ("a", "b", "c", "d", "e", "f")
SPACE = simple_space({name: range(4) for name in KNOBS})
DEFAULT = SPACE.default()
WINNER = Config(dict.fromkeys(KNOBS, 3))
NOISY = Simplify(rounds=3, trials=15)


def toy(trials: int | None = None, guards: tuple[str, ...] = ()) -> Task:
    objective = Objective(metric="time_s", guards=tuple(map(Guard.parse, guards)))
    return Task(system="toy", objective=objective, budget=Budget(trials=trials))


def time_s(config: Config) -> float:
    """a and b matter, the others do nothing."""
    return 10.0 * 0.8 ** int(str(config["a"])) * 0.9 ** int(str(config["b"]))


def measured(function: Callable[[Config], float] = time_s, noise: float = 0.005, **more: Callable[[Config], float]) -> Any:
    rng = np.random.default_rng(1)

    def answer(config: Config) -> Measurement:
        metrics = {"time_s": function(config) * float(np.exp(noise * rng.normal()))}
        return Measurement(status=Status.OK, metrics={**metrics, **{name: of(config) for name, of in more.items()}}, cost_s=1.0)

    return answer


def searched(answer: Any, count: int = 30, seed: int = 0) -> list[Trial]:
    """A search: the default, configurations at random, and the winner."""
    rng = np.random.default_rng(seed)
    drawn = [Config({name: int(rng.integers(3)) for name in KNOBS}) for _ in range(count)]
    configs = dict.fromkeys([DEFAULT, *drawn, WINNER])
    return [Trial(proposal=Proposal(config=config), measurement=answer(config), number=n) for n, config in enumerate(configs)]


def play(trials: list[Trial], answer: Any, bounds: Simplify = NOISY, task: Task | None = None) -> tuple[list[Trial], Simplified]:
    """Measure heat after heat until it is over; the trials of simplifying, and what came of it."""
    task, stored = task or toy(), list(trials)
    while True:
        found = simplify(stored, task, DEFAULT, bounds, SPACE.project)
        known = {(trial.config, trial.proposal.repeat) for trial in stored}
        todo = [one for proposals in found.heat for one in proposals if (one.config, one.repeat) not in known]
        if not found.heat:
            return stored[len(trials) :], found
        assert todo, "a heat that is complete must not be asked for again"
        stored += [Trial(proposal=one, measurement=answer(one.config), number=len(stored) + n) for n, one in enumerate(todo)]


def test_what_the_gain_does_not_need_goes_back() -> None:
    answer = measured()
    added, found = play(searched(answer), answer)
    assert found.config == DEFAULT.without("a", "b").extend({"a": 3, "b": 3})
    assert len(added) == 15
    assert all(trial.proposal.origin.phase is Phase.SIMPLIFY for trial in added)
    kept = [sum(value != 0 for value in trial.config.values()) for trial in added]
    assert kept == [6, 1, 2, 3, 5, 1, 2, 3, 5, 6, 2, 3, 5, 6, 1], "one heat, in an order that rotates"
    assert [trial.proposal.origin.round for trial in added] == [1] * 5 + [2] * 5 + [3] * 5
    assert {trial.config for trial in added if trial.proposal.origin.by == By.INCUMBENT} == {WINNER}


def test_the_final_is_to_measure_what_no_heat_did() -> None:
    answer = measured()
    search = searched(answer)
    added, found = play(search, answer)
    only_b = DEFAULT.without("b").extend({"b": 3})
    assert found.without == (only_b,), "one heat compared a and b with a alone"
    final = Origin(phase=Phase.FINAL, round=9, contenders=("x",))
    later = [Trial(proposal=Proposal(config=each, origin=final, repeat=9), measurement=answer(each)) for each in (found.config, only_b)]
    crashed = Trial(proposal=Proposal(config=only_b, origin=final, repeat=10), measurement=Measurement(status=Status.CRASHED))
    again = simplify([*search, *added, *later, crashed], toy(), DEFAULT, NOISY, SPACE.project)
    assert again == found, "a final that has begun keeps its finalists"
    more, found = play(search, answer, Simplify(rounds=3, trials=40))
    assert len(more) > len(added)
    assert found.without == (), "the heats have measured both"


def test_before_a_heat_is_complete_simpler_ones_are_predicted() -> None:
    answer = measured()
    search = searched(answer)
    begun = simplify(search, toy(), DEFAULT, NOISY, SPACE.project)
    assert begun.unproven[0] == DEFAULT.without("a").extend({"a": 3}), "a alone is expected to bring half"
    assert all(config["a"] == 3 and config["b"] == 3 for config in begun.unproven[1:])
    added, found = play(search, answer)
    assert found.unproven == ()
    assert simplify([*search, *added[:-1]], toy(), DEFAULT, NOISY, SPACE.project).unproven == begun.unproven, "cut short"


def test_without_a_model_the_changes_are_halved() -> None:
    answer = measured()
    search = [trial for trial in searched(answer) if trial.config in (DEFAULT, WINNER)]
    added, found = play(search, answer, Simplify(rounds=3, trials=60))
    assert found.config == DEFAULT.without("a", "b").extend({"a": 3, "b": 3})
    assert len(added) <= 60


def test_a_knob_that_was_ranked_too_high_goes_back_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model takes c for more important than b; candidates with and without c are as fast."""
    opinions = {"a": 3.0, "c": 2.0, "b": 1.0, "d": 0.1, "e": 0.1, "f": 0.1}
    monkeypatch.setattr("autoscout.study.simplify.effects", lambda *_: opinions)
    answer = measured()
    added, found = play(searched(answer), answer)
    assert found.config == DEFAULT.without("a", "b").extend({"a": 3, "b": 3})
    assert len(added) == 15, "not measured itself: the final judges it"
    added, found = play(searched(answer), answer, Simplify(rounds=3, trials=40))
    assert found.config == DEFAULT.without("a", "b").extend({"a": 3, "b": 3})
    assert found.config in {trial.config for trial in added}, "measured where there is room"


def test_bounds_are_kept_and_what_is_shown_by_then_counts() -> None:
    answer = measured()
    for trials in (0, 8, 9, 11, 15):
        added, found = play(searched(answer), answer, Simplify(rounds=3, trials=trials))
        assert len(added) <= trials
        assert found.config is not None
        assert (found.config == WINNER) == (trials < 9)


def test_off_and_nothing_to_simplify() -> None:
    answer = measured()
    assert simplify(searched(answer), toy(), DEFAULT, Simplify(), SPACE.project) == Simplified(config=WINNER)
    assert simplify([], toy(), DEFAULT, NOISY, SPACE.project) == Simplified()
    single = DEFAULT.without("a").extend({"a": 3})
    few = [Trial(proposal=Proposal(config=config), measurement=answer(config)) for config in (DEFAULT, single)]
    assert simplify(few, toy(), DEFAULT, NOISY, SPACE.project) == Simplified(config=single)


def test_exact_answers_are_asked_for_once_and_compared_without_tolerance() -> None:
    answer = measured(noise=0.0)
    added, found = play(searched(answer), answer, Simplify(rounds=1, trials=15))
    assert found.config == DEFAULT.without("a", "b").extend({"a": 3, "b": 3})
    assert len({trial.config for trial in added}) == len(added)
    assert all(trial.config != WINNER for trial in added), "the winner's answer is known"
    slightly = measured(lambda config: time_s(config) - 1e-9 * sum(int(str(config[name])) for name in "cdef"), noise=0.0)
    assert play(searched(slightly), slightly, Simplify(rounds=1, trials=15))[1].config == WINNER


def test_a_candidate_that_fails_or_breaks_a_guard_is_not_adopted() -> None:
    def crashes(config: Config) -> Measurement:
        if config["a"] == 3 and config["c"] != 3:
            return Measurement(status=Status.CRASHED, reason="needs c")
        return measured()(config)

    _, found = play(searched(crashes), crashes, Simplify(rounds=3, trials=60))
    assert found.config is not None
    assert found.config["c"] == 3
    heavy = measured(mem_gib=lambda config: 2.0 if config["a"] == 3 and config["d"] != 3 else 1.0)
    _, found = play(searched(heavy), heavy, Simplify(rounds=3, trials=60), toy(guards=("mem_gib<=1.5x",)))
    assert found.config is not None
    assert found.config["d"] == 3


def test_candidates_stay_inside_the_space() -> None:
    knobs = {
        "flash": {"type": "bool", "default": False},
        "tile": {"range": [1, 4], "default": 1, "when": "flash"},
        **{name: {"range": [0, 3], "default": 0} for name in KNOBS},
    }
    space = read_space({"knobs": knobs})
    default = space.default()
    winner = default.without("flash", "a", "c").extend({"flash": True, "tile": 3, "a": 3, "c": 2})
    answer = measured()
    stored = [Trial(proposal=Proposal(config=config), measurement=answer(config)) for config in (default, winner)]
    while heat := (found := simplify(stored, toy(), default, Simplify(rounds=3, trials=60), space.project)).heat:
        known = {(trial.config, trial.proposal.repeat) for trial in stored}
        todo = [one for proposals in heat for one in proposals if (one.config, one.repeat) not in known]
        assert not any(space.check(one.config) for one in todo)
        stored += [Trial(proposal=one, measurement=answer(one.config)) for one in todo]
    assert found.config == default.without("a").extend({"a": 3})


class Draws(Searcher):
    """Proposes the configurations of a list."""

    def __init__(self, configs: list[Config]) -> None:
        self.configs, self.told = configs, 0

    def ask(self, n: int, given: Config = Config(), pending: Any = ()) -> list[Proposal]:
        taken = {proposal.config for proposal in pending}
        left = [config for config in self.configs[self.told :] if config not in taken]
        return [Proposal(config=config, origin=Origin(by="draws")) for config in left[:n]]

    def tell(self, trials: Any) -> None:
        self.told += sum(trial.proposal.origin.by == "draws" for trial in trials)


def study(store: Any, answer: Any, **changes: Any) -> Study:
    configs = [trial.config for trial in searched(measured(noise=0.0)) if trial.config != DEFAULT]
    task = changes.pop("task", toy(trials=len(configs) + 1))
    record = store.open(StudyRecord(name="s", task=task, space=SPACE.fingerprint(), spec={}))
    given: Mapping[str, Any] = {
        "evaluator": FromFunction(answer),
        "observer": Watcher(),
        "finals": Finals(finalists=2, rounds=3),
        "simplify": Simplify(rounds=3, trials=15),
        "clock": VirtualClock(),
        **changes,
    }
    return Study(
        record=record, space=SPACE, searcher=Draws(configs), store=store, worker="w", default=DEFAULT, project=SPACE.project, **given
    )


def test_the_simplified_winner_meets_winner_and_default_in_the_final() -> None:
    one = study(plugins.get("store", "memory")(), measured())
    assert one.run() is Stop.TRIALS
    assert one.observer.phases == ["search", "simplify", "final"]
    final = [trial for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL]
    both, only_b = ({**dict.fromkeys(KNOBS, 0), **changes} for changes in ({"a": 3, "b": 3}, {"b": 3}))
    assert {trial.config for trial in final} == {DEFAULT, WINNER, Config(both), Config(only_b)}
    later = [trial.proposal for trial in one.trials if trial.proposal.origin.phase is not Phase.SEARCH]
    assert len({(proposal.config, proposal.repeat) for proposal in later}) == len(later)
    assert min(trial.proposal.repeat for trial in final) > max(
        proposal.repeat for proposal in later if proposal.origin.phase is Phase.SIMPLIFY
    ), "rounds count on"


@pytest.mark.parametrize("after", [1, 7, 13, 16, 22])  # 15 trials of simplifying, then those of the final
def test_a_study_killed_while_simplifying_or_in_the_final_resumes_there(after: int) -> None:
    whole = study(plugins.get("store", "memory")(), measured())
    whole.run()
    search = sum(trial.proposal.origin.phase is Phase.SEARCH for trial in whole.trials)
    store, stopping, answer = plugins.get("store", "memory")(), threading.Event(), measured()

    def counting(config: Config) -> Measurement:
        if len(part.evaluator.calls) == search + after:
            stopping.set()
        return answer(config)

    part = study(store, counting, stopping=stopping)
    assert part.run() is Stop.INTERRUPTED
    assert len(part.trials) == search + after
    again = study(store, answer)
    assert again.run() is Stop.TRIALS
    assert [trial.proposal for trial in again.trials] == [trial.proposal for trial in whole.trials]
    calls = len(again.evaluator.calls)
    assert calls == len(whole.trials) - search - after, "nothing is measured twice"


def test_a_study_without_time_to_simplify_does_so_in_its_final() -> None:
    clock, answer = VirtualClock(), measured()
    task = Task(system="toy", objective=Objective(metric="time_s"), budget=Budget(wall_s=40.0))
    evaluator = FromFunction(answer, clock=clock)
    finals = Finals(finalists=2, rounds=5)
    one = study(plugins.get("store", "memory")(), answer, evaluator=evaluator, clock=clock, task=task, finals=finals)
    assert one.run() is Stop.WALL
    phases = {trial.proposal.origin.phase for trial in one.trials}
    assert phases == {Phase.SEARCH, Phase.FINAL}
    known = simplify(one.trials, task, DEFAULT, NOISY, SPACE.project)
    final = {trial.config for trial in one.trials if trial.proposal.origin.phase is Phase.FINAL}
    assert known.unproven
    assert {DEFAULT, known.config, known.unproven[0]} <= final <= {DEFAULT, known.config, *known.unproven}


def test_time_is_kept_back_for_the_final() -> None:
    clock = VirtualClock()
    answer = measured()
    evaluator = FromFunction(answer, clock=clock)
    task = Task(system="toy", objective=Objective(metric="time_s"), budget=Budget(wall_s=34.0))
    one = study(plugins.get("store", "memory")(), answer, evaluator=evaluator, clock=clock, task=task)
    assert one.run() is Stop.WALL
    phases = [trial.proposal.origin.phase for trial in one.trials]
    assert phases.count(Phase.FINAL) >= 6
    assert clock.span_s() <= 34.0

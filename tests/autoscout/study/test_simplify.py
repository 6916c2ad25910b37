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
from autoscout.core.origin import Origin, Phase
from autoscout.core.protocols import Searcher, StudyRecord
from autoscout.core.task import Budget, Guard, Objective, Task
from autoscout.core.trial import Measurement, Proposal, Status, Trial
from autoscout.space import read_space
from autoscout.space.simple import simple_space
from autoscout.study.budget import Stop
from autoscout.study.final import Finals, Simplified
from autoscout.study.simplify import Simplify, simplify
from autoscout.study.study import Study

KNOBS = ("a", "b", "c", "d", "e", "f")
SPACE = simple_space({name: range(4) for name in KNOBS})
DEFAULT = SPACE.default()
WINNER = Config(dict.fromkeys(KNOBS, 3))
NOISY = Simplify(trials=32)


def toy(trials: int | None = None, guards: tuple[str, ...] = ()) -> Task:
    objective = Objective(metric="time_s", guards=tuple(map(Guard.parse, guards)))
    return Task(system="toy", objective=objective, budget=Budget(trials=trials))


def time_s(config: Config) -> float:
    """a and b matter, the others do nothing."""
    return 10.0 * 0.8 ** int(str(config["a"])) * 0.9 ** int(str(config["b"]))


def measured(function: Callable[[Config], float] = time_s, noise: float = 0.005, seed: int = 1, **more: Callable[[Config], float]) -> Any:
    rng = np.random.default_rng(seed)

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


def changed(config: Config | None) -> dict[str, Any]:
    assert config is not None
    return {knob: value for knob, value in config.items() if value != DEFAULT[knob]}


def test_what_the_gain_does_not_need_goes_back() -> None:
    answer = measured()
    added, found = play(searched(answer), answer)
    assert changed(found.config) == {"a": 3, "b": 3}
    assert all(trial.proposal.origin.phase is Phase.SIMPLIFY for trial in added)
    pairs = [[trial.config for trial in added if trial.proposal.origin.round == number] for number in range(1, len(added) // 2 + 1)]
    for one, other in pairs:
        assert one["a"] == other["a"] == 3, "what surely matters stays"
        assert all({one[knob], other[knob]} == {0, 3} for knob in "bcdef"), "every doubtful change is in one of the two"
    assert len({pair[0] for pair in pairs}) > 4


def idle_and_middling(config: Config) -> float:
    """One large effect, two of 5 % and 3 %; d, e and f do nothing."""
    factors = [{0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0 - size}[int(str(config[knob]))] for knob, size in (("a", 0.4), ("b", 0.05), ("c", 0.03))]
    return 10.0 * float(np.prod(factors))


def test_changes_of_a_few_percent_stay_and_idle_ones_go() -> None:
    """At 2 % noise, over twenty studies."""
    answers = []
    for seed in range(20):
        answer = measured(idle_and_middling, noise=0.02, seed=seed)
        answers.append(changed(play(searched(answer), answer)[1].config))
    idle = sum(bool(answer.keys() & {"d", "e", "f"}) for answer in answers)
    assert idle <= 1
    assert sum("b" in answer for answer in answers) >= 19
    assert sum("c" in answer for answer in answers) >= 14
    assert all("a" in answer for answer in answers)


def test_the_final_is_to_measure_what_no_heat_did() -> None:
    answer = measured()
    search = searched(answer)
    added, found = play(search, answer)
    only_b = DEFAULT.without("b").extend({"b": 3})
    assert found.without == (only_b,), "a was in both members of every pair"
    final = Origin(phase=Phase.FINAL, round=19, contenders=("x",))
    later = [Trial(proposal=Proposal(config=each, origin=final, repeat=19), measurement=answer(each)) for each in (found.config, only_b)]
    crashed = Trial(proposal=Proposal(config=only_b, origin=final, repeat=20), measurement=Measurement(status=Status.CRASHED))
    again = simplify([*search, *added, *later, crashed], toy(), DEFAULT, NOISY, SPACE.project)
    assert again == found, "a final that has begun keeps its finalists"


def test_before_a_heat_is_complete_simpler_ones_are_predicted() -> None:
    answer = measured()
    search = searched(answer)
    begun = simplify(search, toy(), DEFAULT, NOISY, SPACE.project)
    assert begun.unproven[0] == DEFAULT.without("a").extend({"a": 3}), "a alone is expected to bring half"
    assert all(config["a"] == 3 and config["b"] == 3 for config in begun.unproven[1:])
    added, found = play(search, answer)
    assert found.unproven == ()
    assert simplify([*search, *added[:-1]], toy(), DEFAULT, NOISY, SPACE.project).unproven == begun.unproven, "cut short"


def test_without_a_model_every_change_is_doubtful() -> None:
    answer = measured()
    search = [trial for trial in searched(answer) if trial.config in (DEFAULT, WINNER)]
    added, found = play(search, answer)
    assert changed(found.config) == {"a": 3, "b": 3}
    assert len(added) <= NOISY.trials
    assert found.without == (), "the heats have measured both"


def test_a_knob_that_was_ranked_too_high_is_left_to_the_final(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model takes c for more important than b."""
    opinions = {"a": 3.0, "c": 2.0, "b": 1.0, "d": 0.1, "e": 0.1, "f": 0.1}
    monkeypatch.setattr("autoscout.study.simplify.effects", lambda *_: opinions)
    answer = measured()
    _, found = play(searched(answer), answer)
    assert changed(found.config) == {"a": 3, "b": 3, "c": 3}
    assert {"a": 3, "b": 3} in [changed(config) for config in found.without]
    one = study(plugins.get("store", "memory")(), answer, finals=Finals(finalists=3, rounds=3))
    one.run()
    assert changed(one.summary.answer) == {"a": 3, "b": 3}


def test_bounds_are_kept_and_what_is_shown_by_then_counts() -> None:
    answer = measured()
    for trials in (0, 8, 9, 11, 15, 32):
        added, found = play(searched(answer), answer, Simplify(trials=trials))
        assert len(added) <= trials
        assert found.config is not None
        assert (found.config == WINNER) == (trials < 10), "five pairs tell one group of changes from the noise"


def test_off_and_nothing_to_simplify() -> None:
    answer = measured()
    assert simplify(searched(answer), toy(), DEFAULT, Simplify(), SPACE.project) == Simplified(config=WINNER)
    assert simplify([], toy(), DEFAULT, NOISY, SPACE.project) == Simplified()
    single = DEFAULT.without("a").extend({"a": 3})
    few = [Trial(proposal=Proposal(config=config), measurement=answer(config)) for config in (DEFAULT, single)]
    assert simplify(few, toy(), DEFAULT, NOISY, SPACE.project) == Simplified(config=single)


def test_exact_answers_are_asked_for_once_and_compared_without_tolerance() -> None:
    answer = measured(noise=0.0)
    added, found = play(searched(answer), answer, Simplify(trials=15, exact=True))
    assert found.config == DEFAULT.without("a", "b").extend({"a": 3, "b": 3})
    assert len({trial.config for trial in added}) == len(added)
    assert all(trial.config != WINNER for trial in added), "the winner's answer is known"
    slightly = measured(lambda config: time_s(config) - 1e-9 * sum(int(str(config[name])) for name in "cdef"), noise=0.0)
    assert play(searched(slightly), slightly, Simplify(trials=15, exact=True))[1].config == WINNER


def test_a_candidate_that_fails_or_breaks_a_guard_is_not_adopted() -> None:
    def crashes(config: Config) -> Measurement:
        if config["a"] == 3 and config["c"] != 3:
            return Measurement(status=Status.CRASHED, reason="needs c")
        return measured()(config)

    _, found = play(searched(crashes), crashes, NOISY)
    assert found.config is not None
    assert found.config["c"] == 3
    heavy = measured(mem_gib=lambda config: 2.0 if config["a"] == 3 and config["d"] != 3 else 1.0)
    _, found = play(searched(heavy), heavy, NOISY, toy(guards=("mem_gib<=1.5x",)))
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
    while heat := (found := simplify(stored, toy(), default, NOISY, space.project)).heat:
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
        "simplify": NOISY,
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

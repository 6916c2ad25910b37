from __future__ import annotations

import pytest

from _toys import ok, toy_task
from autoscout.analysis.verdict import Verdict, decide
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Origin
from autoscout.core.task import Limit, Objective, Task
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.study.final import Finals, Simplified, fallen, finalists, plan, winner


def trial(x: int, answer: Measurement, **origin: object) -> Trial:
    return Trial(proposal=Proposal(config=Config(x=x), origin=Origin.from_json(origin)), measurement=answer)


def test_only_the_highest_fidelity_enters_the_final() -> None:
    trials = [
        trial(0, ok(5.0)),
        trial(1, ok(4.0)),
        trial(2, ok(0.1, fidelity=Fidelity.SIMULATED)),
        trial(3, Measurement(status=Status.CRASHED)),
    ]
    assert finalists(trials, toy_task(), Config(x=0), 3) == [Config(x=1)]


def test_no_final_when_only_the_default_works() -> None:
    assert plan([trial(0, ok(5.0)), trial(3, Measurement(status=Status.CRASHED))], toy_task(), Config(x=0), Finals()) == []
    assert plan([], toy_task(), Config(x=0), Finals()) == []


def test_rounds_rotate() -> None:
    rounds = plan([trial(0, ok(5.0)), trial(1, ok(4.0))], toy_task(), Config(x=0), Finals(finalists=1, rounds=2))
    assert [[proposal.config["x"] for proposal in each] for each in rounds] == [[0, 1], [1, 0]]
    assert [proposal.repeat for each in rounds for proposal in each] == [1, 1, 2, 2]


def test_an_edition_that_comes_back_shares_no_round_with_the_one_between() -> None:
    """Rounds 1-2 compared x=1, rounds 3-4 compared x=2; now x=1 is ahead again and gets two more rounds."""
    finals = Finals(finalists=1, rounds=2)
    search = [trial(0, ok(5.0)), trial(1, ok(4.0))]
    first = [each for proposals in plan(search, toy_task(), Config(x=0), finals) for each in proposals]
    measured = search + [Trial(proposal=each, measurement=ok(1.0)) for each in first]
    other = [each for proposals in plan([*measured, trial(2, ok(3.0))], toy_task(), Config(x=0), finals) for each in proposals]
    assert [each.repeat for each in other] == [3, 3, 4, 4]
    measured += [Trial(proposal=each, measurement=ok(1.0)) for each in other]
    again = plan(measured, toy_task(), Config(x=0), Finals(finalists=1, rounds=4))
    assert [[each.repeat for each in proposals] for proposals in again] == [[1, 1], [2, 2], [5, 5], [6, 6]]


def test_finalists_come_from_the_trials_they_may_come_from() -> None:
    trials = [trial(0, ok(5.0)), trial(1, ok(4.0)), trial(2, ok(1.0))]
    rounds = plan(trials, toy_task(), Config(x=0), Finals(finalists=2, rounds=1), among=trials[:2])
    assert {each.config["x"] for each in rounds[0]} == {0, 1}


def test_the_answer_without_one_change_is_measured_too_where_there_is_room() -> None:
    search = [trial(0, ok(5.0)), trial(1, ok(4.0))]
    arguments = (
        toy_task(),
        Config(x=0),
        Finals(finalists=1, rounds=2),
        None,
        Simplified(config=Config(x=1), without=(Config(x=7), Config(x=8))),
    )
    with_it = plan(search, *arguments)
    assert [[each.config["x"] for each in proposals] for proposals in with_it] == [[0, 1, 7], [1, 7, 0]]
    short = plan(search, *arguments, fits=lambda trials: trials <= 4)
    assert [[each.config["x"] for each in proposals] for proposals in short] == [[0, 1], [1, 0]]
    for begun, room in ((with_it, 0), (short, 100)):
        stored = [*search, *(Trial(proposal=each, measurement=ok(1.0)) for each in begun[0])]
        assert plan(stored, *arguments, fits=lambda trials, room=room: trials <= room) == begun, "it continues as it began"


def test_fewer_finalists_where_there_is_no_time_for_enough_rounds_of_all() -> None:
    search = [trial(0, ok(5.0)), trial(1, ok(4.0)), trial(2, ok(3.0))]
    for time, field in ((15, {0, 1, 2}), (9, {0, 1, 2}), (8, {0, 2}), (6, {0, 2}), (5, {0, 2})):
        rounds = plan(search, toy_task(), Config(x=0), Finals(finalists=2, rounds=5), fits=lambda trials, time=time: trials <= time)
        assert {each.config["x"] for each in rounds[0]} == field, f"{time} trials"
        assert len(rounds) == 5


LIMITED = Task(system="toy", objective=Objective(metric="time_s", limits=(Limit.parse("wait_ms<=100"),)))


def waits(x: int, time_s: float, wait_ms: float, **origin: object) -> Trial:
    answer = Measurement(status=Status.OK, metrics={"time_s": time_s, "wait_ms": wait_ms}, cost_s=1.0)
    repeat = int(str(origin.get("round", 0)))
    return Trial(proposal=Proposal(config=Config(x=x), origin=Origin.from_json(origin), repeat=repeat), measurement=answer)


def test_one_finalist_has_a_margin_to_every_limit() -> None:
    search = [waits(0, 9.0, 60.0), waits(0, 9.0, 63.0), waits(1, 1.0, 99.0), waits(2, 2.0, 98.0), waits(3, 3.0, 80.0), waits(4, 4.0, 70.0)]
    assert finalists(search, LIMITED, Config(x=0), 2) == [Config(x=1), Config(x=3)]
    assert finalists(search, LIMITED, Config(x=0), 1) == [Config(x=1)]
    assert finalists(search[:4], LIMITED, Config(x=0), 2) == [Config(x=1), Config(x=2)], "nobody has one"
    assert winner(search, LIMITED, Config(x=0)) == Config(x=3), "which is the one that is made simpler"
    assert winner(search[:4], LIMITED, Config(x=0)) == Config(x=1)
    rounds = plan(search, LIMITED, Config(x=0), Finals(finalists=2, rounds=3), None, Simplified(config=Config(x=7)))
    assert {each.config["x"] for each in rounds[0]} == {0, 7, 1}, "it goes first"


def played(trials: list[Trial], rounds: list[list[Proposal]], wait_ms: dict[int, float]) -> list[Trial]:
    """With these rounds measured."""
    more = [
        waits(x, 5.0, wait_ms[x] * (1.0 + 0.01 * (each.repeat % 3)), phase="final", round=each.repeat, field=each.origin.contenders)
        for proposals in rounds
        for each in proposals
        for x in (int(str(each.config["x"])),)
    ]
    return [*trials, *more]


def test_where_all_finalists_fell_the_next_best_meet_the_default() -> None:
    default, finals = Config(x=0), Finals(finalists=1, rounds=3)
    trials = [waits(0, 9.0, 160.0), waits(1, 1.0, 99.0), waits(2, 2.0, 98.0), waits(3, 3.0, 97.0)]
    wait_ms = {0: 160.0, 1: 120.0, 2: 120.0, 3: 80.0}
    beaten: list[set[int]] = []
    for _ in range(3):
        out = fallen(trials, LIMITED, default, 3)
        beaten.append({int(str(config["x"])) for config in out})
        rounds = plan(trials, LIMITED, default, finals, [trial for trial in trials if trial.config not in out])
        half = played(trials, rounds[:2], wait_ms)
        assert fallen(half, LIMITED, default, 3) == out, "an edition that is not over changes nothing"
        trials = played(trials, rounds, wait_ms)
    assert beaten == [set(), {1}, {1, 2}]
    assert fallen(trials, LIMITED, default, 3) == set(), "one stands"
    decision = decide(LIMITED, trials, default)
    assert decision.verdict is Verdict.KEEPS
    assert decision.answer == Config(x=3)


def test_negative_numbers_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Finals(finalists=-1, rounds=-2)
    assert len(caught.value.faults) == 2

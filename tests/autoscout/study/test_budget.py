from __future__ import annotations

from dataclasses import replace

from _toys import ok, toy_task
from autoscout.core.config import Config
from autoscout.core.origin import Origin
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.study.budget import REFUSED, Stop, counted_s, ending, failures_in_a_row, out_of_time, over
from autoscout.study.final import Finals
from autoscout.study.ledger import Ledger


def trial(x: int, answer: Measurement | None = None, start_s: float = 0.0, end_s: float = 0.0, **origin: object) -> Trial:
    proposal = Proposal(config=Config(x=x), origin=Origin.from_json(origin))
    return Trial(proposal=proposal, measurement=answer or ok(1.0), started_s=start_s, finished_s=end_s)


def test_simulated_trials_and_those_after_the_search_are_free() -> None:
    trials = [trial(0), trial(1, ok(1.0, fidelity=Fidelity.SIMULATED)), trial(0, phase="final"), trial(0, phase="simplify")]
    assert Ledger(trials).counted == 1
    assert Ledger(trials[1:2]).counted == 1, "in a study that only simulates, simulations are what is counted"


def test_failures_in_a_row_look_at_the_newest_only() -> None:
    bad = Measurement(status=Status.TIMEOUT)
    assert failures_in_a_row([trial(0, bad), trial(1), trial(2, bad), trial(3, bad)]) == 2
    assert failures_in_a_row([trial(0, bad), trial(1)]) == 0


def test_time_for_the_final_is_kept_back() -> None:
    trials = [trial(x, ok(1.0, cost_s=10.0)) for x in range(4)]
    budget = toy_task(wall_s=200.0).budget
    assert over(budget, trials, 40.0, 0, workers=1) is None
    assert over(budget, trials, 90.0, 15, workers=1) is Stop.WALL
    assert over(budget, trials, 90.0, 15, workers=4) is None
    assert over(toy_task(cost_s=150.0).budget, trials * 2, 0.0, 15, workers=1) is Stop.COST


def test_compiling_once_is_not_counted() -> None:
    """The first trial of DeepSpeed compiled for four minutes: of a budget of six nothing was left."""
    first = replace(ok(1.0, cost_s=240.0), conditions={"compile_s": 210.0})
    trials, budget = [trial(0, first)], toy_task(wall_s=360.0).budget
    assert counted_s(245.0, trials, 1) == 35.0
    assert over(budget, trials, counted_s(245.0, trials, 1), 8, workers=1, least=6) is None
    assert over(budget, [trial(0, ok(1.0, cost_s=240.0))], 245.0, 8, workers=1, least=6) is Stop.WALL
    assert over(toy_task(cost_s=120.0).budget, trials, 0.0, 0, workers=1) is None
    assert counted_s(245.0, trials * 2, 2) == 35.0, "two compile at the same time, or wait for each other"


def test_time_is_kept_back_for_whole_measurements() -> None:
    stopped = [trial(x, Measurement(status=Status.BOUNDED, cost_s=1.0, bounds={"time_s": 1.0})) for x in range(4, 40)]
    trials = [*(trial(x, ok(1.0, cost_s=10.0)) for x in range(4)), *stopped]
    assert over(toy_task(wall_s=300.0).budget, trials, 76.0, 15, workers=1) is None
    assert over(toy_task(wall_s=300.0).budget, trials, 145.0, 15, workers=1) is Stop.WALL, "trials that were stopped early are no measure"


def test_the_final_is_judged_by_its_own_trials_once_it_has_begun() -> None:
    cold = [trial(x, ok(1.0, cost_s=170.0)) for x in range(2)]
    warm = [trial(x, ok(1.0, cost_s=130.0), phase="final") for x in (0, 1, 1, 0)]
    budget = toy_task(wall_s=1200.0).budget
    assert out_of_time(budget, cold, 900.0, 1, soon=2) is Stop.WALL
    assert out_of_time(budget, [*cold, *warm], 900.0, 1, soon=2) is None, "caches are warm by then"
    assert out_of_time(budget, [*cold, *warm], 950.0, 1, soon=2) is Stop.WALL


def test_a_long_final_leaves_the_search_half_of_the_budget() -> None:
    trials = [trial(0, ok(1.0, cost_s=10.0))]
    long = Finals(finalists=2, rounds=50).trials
    assert over(toy_task(wall_s=100.0).budget, trials, 10.0, long, workers=1) is None
    assert over(toy_task(wall_s=100.0).budget, trials, 41.0, long, workers=1) is Stop.WALL
    assert over(toy_task(cost_s=100.0).budget, trials, 10.0, long, workers=1) is None
    assert over(toy_task(cost_s=100.0).budget, trials * 5, 10.0, long, workers=1) is Stop.COST


def test_failures_of_earlier_sittings_may_have_been_mended() -> None:
    trials = [trial(x, Measurement(status=Status.CRASHED)) for x in range(4)]
    budget = toy_task(failures=3).budget
    assert over(budget, trials, 0.0, Finals(), workers=1) is Stop.FAILURES
    assert over(budget, trials, 0.0, Finals(), workers=1, earlier=3) is None


def test_failures_that_a_simulator_foresees_break_nothing() -> None:
    bad, foreseen = Measurement(status=Status.TIMEOUT), Measurement(status=Status.OOM_START, fidelity=Fidelity.SIMULATED)
    assert failures_in_a_row([trial(0), trial(1, bad), trial(2, foreseen), trial(3, foreseen)]) == 1
    assert failures_in_a_row([trial(0, bad), trial(1, foreseen), trial(2, bad)]) == 2, "nor do they end a row"
    assert failures_in_a_row([trial(0), trial(1, foreseen), trial(2, foreseen)], earlier=1) == 0
    assert failures_in_a_row([trial(1, foreseen), trial(2, foreseen)]) == 2, "on a virtual cluster they are all there is"


def test_the_same_refusal_of_every_configuration_ends_a_study() -> None:
    refused = Measurement(status=Status.INVALID, reason="no such command")
    budget = toy_task(wall_s=200.0).budget
    trials = [trial(x, refused) for x in range(REFUSED)]
    assert over(budget, trials, 0.0, 0, workers=1) is Stop.REFUSED
    assert over(budget, trials[1:], 0.0, 0, workers=1) is None, "two may have a knob in common"
    assert over(budget, [*trials, trial(9)], 0.0, 0, workers=1) is None
    assert over(budget, [*trials, trial(9, Measurement(status=Status.INVALID, reason="x too large"))], 0.0, 0, workers=1) is None
    assert over(budget, trials, 0.0, 0, workers=1, earlier=REFUSED) is None, "it may have been fixed since"


def test_the_shortest_final_with_an_interval_may_take_more_than_half_but_the_search_has_something_to_compare() -> None:
    finals, budget = Finals(finalists=1, rounds=5), toy_task(wall_s=1200.0).budget
    assert finals.least == 6
    few = [trial(x, ok(1.0, cost_s=130.0)) for x in range(3)]
    assert over(budget, few, 390.0, finals.trials, workers=1) is None, "half is left"
    assert over(budget, few, 390.0, finals.trials, workers=1, least=finals.least) is Stop.WALL
    assert over(toy_task(cost_s=1150.0).budget, few, 0.0, finals.trials, workers=1, least=finals.least) is Stop.COST
    slow = [trial(0, ok(1.0, cost_s=300.0))]
    assert over(budget, slow, 310.0, finals.trials, workers=1, least=finals.least) is None, "there is nothing to compare yet"
    cheap = [trial(x, ok(1.0, cost_s=1.0)) for x in range(100)]
    assert over(budget, cheap, 590.0, 1000, workers=1, least=finals.least) is None, "half is more than enough"


def test_time_in_which_no_pair_fits_is_the_searchs() -> None:
    """A trial takes seven of twenty-five minutes: three are searched, and not two because one is kept back that compares nothing."""
    finals, budget = Finals(), toy_task(wall_s=1500.0).budget
    two = [trial(x, ok(1.0, cost_s=445.0)) for x in range(2)]
    assert over(budget, two, 894.0, finals.trials, workers=1, least=finals.least) is None
    three = [trial(x, ok(1.0, cost_s=290.0)) for x in range(3)]
    assert over(budget, three, 880.0, finals.trials, workers=1, least=finals.least) is Stop.WALL, "a pair is kept back"


def test_the_end_says_what_was_left_and_what_that_was_too_short_for() -> None:
    trials = [trial(x, ok(1.0, cost_s=480.0)) for x in range(2)]
    budget = toy_task(wall_s=1500.0, cost_s=1200.0).budget
    assert ending(Stop.WALL, budget, trials, 1140.0) == "not enough left for another measurement (one takes 8 m 00 s, 6 m 00 s left)"
    assert ending(Stop.COST, budget, trials, 0.0) == "not enough left for another measurement (one takes 8 m 00 s, 4 m 00 s left)"
    between = ending(Stop.WALL, budget, trials, 900.0, rounds=2)
    assert between == "not enough left for another round of the final (a measurement takes 8 m 00 s, 10 m 00 s left)"
    assert ending(Stop.WALL, budget, trials, 900.0) == "search and final are done (10 m 00 s left of 25 m 00 s)"
    assert ending(Stop.WALL, budget, trials, 1500.0) == "wall-clock budget used"
    assert ending(Stop.WALL, budget, [], 1500.0, is_cut_off=True).startswith("wall-clock budget used in the middle of a measurement")
    assert ending(Stop.TRIALS, budget, trials, 0.0) == "trial budget used"

from __future__ import annotations

from collections.abc import Callable

import pytest

from _toys import FromFunction, ok, toy_task
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.origin import Origin
from autoscout.core.protocols import Evaluator
from autoscout.core.trial import Fidelity, Measurement, Proposal, Status, Trial
from autoscout.evaluate.adaptive import AdaptiveEvaluator, AdaptiveOptions
from autoscout.evaluate.noisy import NoisyEvaluator, NoisyOptions

TASK = toy_task()


def truth(config: Config) -> float:
    x = float(config["x"])  # type: ignore[arg-type]
    return 1.0 + abs(x - 60) / 20


def evaluators(predict: Callable[[Config], Measurement], **options: float) -> tuple[AdaptiveEvaluator, FromFunction]:
    real = FromFunction(lambda config: ok(truth(config)))
    cheap = FromFunction(predict)
    return AdaptiveEvaluator(cheap, real, TASK, AdaptiveOptions(**options)), real  # type: ignore[arg-type]


def simulated(value: float) -> Measurement:
    return ok(value, 0.0, Fidelity.SIMULATED)


def ask(evaluator: AdaptiveEvaluator, *xs: int) -> list[Measurement]:
    return evaluator.evaluate([Proposal(config=Config(x=x), origin=Origin.from_json({"by": "search"})) for x in xs])


def study(evaluator: AdaptiveEvaluator, order: list[int], profiles: int, real: FromFunction) -> float:
    """A small loop as the study runs it: rechecks first, settled at the end; returns the best measured value within so many profiles."""
    best, coming, settled = float("inf"), iter(order), False
    while len(real.calls) < profiles:
        proposals = evaluator.recheck()[:1] or [Proposal(config=Config(x=x)) for x in [next(coming, None)] if x is not None]
        if not proposals:
            if settled:
                break
            settled = True
            evaluator.settle()
            continue
        (answer,) = evaluator.evaluate(proposals)
        if answer.fidelity is Fidelity.MEASURED and answer.ok:
            best = min(best, answer.metrics["time_s"])
    return best


def test_it_simulates_until_the_check_and_names_the_incumbent() -> None:
    evaluator, real = evaluators(lambda config: simulated(truth(config)), interval=4)  # 2 until it is proven
    assert isinstance(evaluator, Evaluator)
    assert ask(evaluator, 10)[0].fidelity is Fidelity.SIMULATED
    assert evaluator.recheck() == []
    ask(evaluator, 50)
    (wanted,) = evaluator.recheck()
    assert wanted.config == Config(x=50)
    assert wanted.repeat == -1
    assert not real.calls
    (answer,) = evaluator.evaluate([wanted])
    assert answer.fidelity is Fidelity.MEASURED
    assert answer.conditions["predicted"] == pytest.approx(truth(Config(x=50)))
    assert evaluator.recheck() == []


def test_the_default_and_what_a_person_asked_for_are_measured_at_once() -> None:
    evaluator, real = evaluators(lambda config: simulated(truth(config)))
    for by in ("default", "given"):
        (answer,) = evaluator.evaluate([Proposal(config=Config(x=len(by)), origin=Origin.from_json({"by": by}))])
        assert answer.fidelity is Fidelity.MEASURED
    assert len(real.calls) == 2


def test_a_constant_bias_is_corrected_and_does_not_end_simulation() -> None:
    evaluator, _ = evaluators(lambda config: simulated(3.0 * truth(config)), interval=1, patience=99)
    evaluator.evaluate([Proposal(config=Config(x=0), origin=Origin.from_json({"by": "default"}))])
    for x in (10, 20, 30, 40):
        (answer,) = ask(evaluator, x)
        assert answer.metrics["time_s"] == pytest.approx(truth(Config(x=x)))
        evaluator.evaluate(evaluator.recheck())
    assert not evaluator.switched
    assert evaluator.error() == pytest.approx(0.0)


def test_a_large_error_that_ranks_badly_ends_simulation_and_profiles_the_top() -> None:
    wrong = {10: 1.0, 20: 9.0, 30: 2.0, 40: 8.0, 50: 3.0, 55: 2.5}
    evaluator, real = evaluators(lambda config: simulated(wrong.get(int(config["x"]), 5.0)), interval=1, top=2)  # type: ignore[call-overload]
    for x in (10, 30, 50, 20, 40, 55):
        ask(evaluator, x)
        for proposal in evaluator.recheck()[:1]:
            if proposal.origin.by == "check":
                evaluator.evaluate([proposal])
    assert evaluator.switched
    left = evaluator.recheck()
    assert [proposal.origin.by for proposal in left] == ["top"] * len(left)
    assert ask(evaluator, 60)[0].fidelity is Fidelity.MEASURED
    assert real.calls


def test_a_reversed_order_ends_simulation_whatever_error_is_tolerated() -> None:
    evaluator, _ = evaluators(lambda config: simulated(4.5 - truth(config)), interval=1, error=1e9, patience=99)
    for x in (0, 20, 40, 60, 80, 5):
        ask(evaluator, x)
        evaluator.evaluate([proposal for proposal in evaluator.recheck() if proposal.origin.by == "check"])
    assert "rank" in evaluator.switched


def test_good_ranking_outweighs_a_large_error() -> None:
    evaluator, _ = evaluators(lambda config: simulated(truth(config) ** 3), interval=1, error=0.05, patience=99)
    for x in (0, 20, 40, 60, 80):
        ask(evaluator, x)
        evaluator.evaluate(evaluator.recheck())
    assert evaluator.rank() == 1.0
    assert evaluator.error() > 0.05
    assert not evaluator.switched


def test_simulation_ends_after_so_many_answers_and_after_idle_checks() -> None:
    evaluator, _ = evaluators(lambda config: simulated(truth(config)), simulations=3, interval=99)
    ask(evaluator, 1, 2, 3)
    assert "3 configurations" in evaluator.switched
    idle, _ = evaluators(lambda config: simulated(truth(config)), interval=1, patience=2)
    idle.evaluate([Proposal(config=Config(x=60), origin=Origin.from_json({"by": "default"}))])
    for x in (50, 40, 30):
        ask(idle, x)
        idle.evaluate([proposal for proposal in idle.recheck() if proposal.origin.by == "check"])
    assert "nothing better" in idle.switched


def test_predictions_that_run_into_failures_end_simulation() -> None:
    real = FromFunction(lambda config: Measurement(status=Status.OOM_START, reason="no"))
    evaluator = AdaptiveEvaluator(FromFunction(lambda config: simulated(1.0)), real, TASK, AdaptiveOptions(interval=1, least=2))
    for x in (1, 2):
        ask(evaluator, x)
        evaluator.evaluate([proposal for proposal in evaluator.recheck() if proposal.origin.by == "check"])
    assert "100% of what was predicted to run failed" in evaluator.switched


def test_the_state_is_rebuilt_from_stored_trials() -> None:
    evaluator, _ = evaluators(lambda config: simulated(2.0 * truth(config)), interval=2)
    trials = []
    for x in (10, 20, 50, 40):
        proposal = Proposal(config=Config(x=x))
        trials.append(Trial(proposal=proposal, measurement=evaluator.evaluate([proposal])[0]))
        for check in evaluator.recheck():
            trials.append(Trial(proposal=check, measurement=evaluator.evaluate([check])[0]))
    again = AdaptiveEvaluator(
        FromFunction(lambda config: simulated(2.0 * truth(config))),
        FromFunction(lambda config: ok(truth(config))),
        TASK,
        AdaptiveOptions(interval=2),
        trials,
    )
    assert again.checks == evaluator.checks
    assert ask(again, 33)[0].metrics["time_s"] == pytest.approx(ask(evaluator, 33)[0].metrics["time_s"])


def test_a_search_that_ends_early_still_gets_its_best_measured() -> None:
    evaluator, _ = evaluators(lambda config: simulated(truth(config)), interval=99)
    ask(evaluator, 10, 58, 90)
    assert evaluator.recheck() == []
    evaluator.settle()
    assert evaluator.recheck()[0].config == Config(x=58)
    assert "nothing more" in evaluator.switched


def test_after_the_switch_good_simulators_still_screen_and_old_answers_come_up_again() -> None:
    evaluator, real = evaluators(lambda config: simulated(truth(config)), interval=1, simulations=12, patience=99, top=2)
    for x in (0, 20, 40, 55, 80, 85, 90, 95, 100, 105, 110, 115):
        ask(evaluator, x)
        evaluator.evaluate([proposal for proposal in evaluator.recheck() if proposal.origin.by == "check"])
    assert evaluator.switched
    assert evaluator.rank() == 1.0
    evaluator.evaluate(evaluator.recheck())
    assert ask(evaluator, 200)[0].fidelity is Fidelity.SIMULATED  # far behind
    assert ask(evaluator, 59)[0].fidelity is Fidelity.MEASURED
    again = evaluator.recheck()
    assert {proposal.origin.by for proposal in again} == {"top"}
    assert again[0].config not in {proposal.config for proposal in real.calls}


def test_two_that_are_called_equal_are_not_ranked() -> None:
    """Favourites are alike: who errs by 10 % cannot order them, and is still far better than no simulator."""
    said = {x: 1.0 + x / 100 for x in range(8)}
    done = {x: said[x] * (1.1 if x % 2 else 0.9) * (1.05 - x / 80) for x in range(8)}  # measured apart, but not as predicted
    evaluator = AdaptiveEvaluator(
        FromFunction(lambda config: simulated(said[int(config["x"])])),  # type: ignore[call-overload]
        FromFunction(lambda config: ok(done[int(config["x"])])),  # type: ignore[call-overload]
        TASK,
        AdaptiveOptions(interval=1),
    )
    for x in reversed(range(8)):
        ask(evaluator, x)
        evaluator.evaluate(evaluator.recheck())
    assert len(evaluator.checks) >= 6
    assert evaluator.rank() is None
    assert not evaluator.switched


def test_trust_that_was_lost_can_be_won_back() -> None:
    wrong = {1: 9.0, 2: 1.0, 3: 8.0, 4: 2.0, 5: 7.0, 6: 1.5}
    evaluator, real = evaluators(lambda config: simulated(wrong.get(int(config["x"]), truth(config))), interval=1, top=0)  # type: ignore[call-overload]
    for x in [*wrong, 59]:
        ask(evaluator, x)
        evaluator.evaluate([proposal for proposal in evaluator.recheck() if proposal.origin.by == "check"])
    assert evaluator.switched
    for x in range(100, 180, 8):  # measured as the search wants it, after what it had wanted before
        while wanted := evaluator.recheck():
            evaluator.evaluate(wanted)
        ask(evaluator, x)
    assert evaluator.error() < 0.01
    calls = len(real.calls)
    assert ask(evaluator, 199)[0].fidelity is Fidelity.SIMULATED  # screened again
    assert len(real.calls) == calls


def test_no_profile_is_left_unused_when_the_search_ends_first() -> None:
    evaluator, real = evaluators(lambda config: simulated(truth(config)), interval=4)
    order = list(range(0, 200, 5))
    assert study(evaluator, order, 10_000, real) == 1.0
    assert sorted(int(proposal.config["x"]) for proposal in real.calls) == order  # type: ignore[call-overload]


def test_aborted_profiles_teach_nothing() -> None:
    real = FromFunction(lambda config: Measurement(status=Status.ABORTED))
    evaluator = AdaptiveEvaluator(FromFunction(lambda config: simulated(1.0)), real, TASK, AdaptiveOptions(interval=1))
    ask(evaluator, 1)
    evaluator.evaluate(evaluator.recheck())
    assert evaluator.checks == ()
    assert evaluator.recheck()


def test_options_are_checked() -> None:
    with pytest.raises(ConfigError) as caught:
        AdaptiveOptions(interval=0, error=0.0, rank=3.0, window=1, least=0, top=-1, simulations=0, patience=0, failures=0.0)
    assert len(caught.value.faults) == 9


def test_a_simulator_that_errs_by_a_tenth_is_worth_more_than_half_of_the_profiles() -> None:
    """What a virtual cluster hides: a lasting surprise of 10 % on every configuration."""
    order = [(37 * step + 11) % 200 for step in range(200)]
    needed, alone = [], []
    for seed in range(10):
        surprised = NoisyEvaluator(FromFunction(lambda config: ok(truth(config))), NoisyOptions(noise=0.1, seed=seed))
        really = {x: surprised.evaluate([Proposal(config=Config(x=x))])[0].metrics["time_s"] for x in order}
        near = 1.05 * min(really.values())
        alone.append(next(place for place, x in enumerate(order, 1) if really[x] <= near))
        real = FromFunction(lambda config, really=really: ok(really[config["x"]]))  # type: ignore[misc]
        evaluator = AdaptiveEvaluator(FromFunction(lambda config: simulated(truth(config))), real, TASK)
        assert study(evaluator, order, 60, real) <= min(really[x] for x in order[:60])
        calls = [really[int(proposal.config["x"])] for proposal in real.calls]  # type: ignore[call-overload]
        needed.append(next((place for place, value in enumerate(calls, 1) if value <= near), 120))
    assert sum(needed) <= 0.5 * sum(alone)


@pytest.mark.parametrize("noise", [0.0, 0.4, 0.8])
def test_it_never_ends_worse_than_profiling_alone(noise: float) -> None:
    order = [(37 * step + 11) % 200 for step in range(200)]  # a search that knows nothing
    profiles = 40
    plain = min(truth(Config(x=x)) for x in order[:profiles])
    for seed in range(5):
        real = FromFunction(lambda config: ok(truth(config)))
        blurred = NoisyEvaluator(FromFunction(lambda config: simulated(truth(config))), NoisyOptions(noise=noise, seed=seed))
        adaptive = AdaptiveEvaluator(blurred, real, TASK, AdaptiveOptions(interval=4))
        assert study(adaptive, order, profiles, real) <= plain * 1.05
    if noise == 0.0:
        real = FromFunction(lambda config: ok(truth(config)))
        adaptive = AdaptiveEvaluator(FromFunction(lambda config: simulated(truth(config))), real, TASK, AdaptiveOptions(interval=4))
        assert study(adaptive, order, 15, real) <= 1.05  # within 5 % of the optimum in fewer than half of the profiles

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from report_studies import DEFAULT, METRIC, make_study, make_task, make_trial, simulated, truth

from autoscout.analysis.gain import paired_gain
from autoscout.analysis.limits import LimitState
from autoscout.analysis.next_step import next_step
from autoscout.analysis.summary import summarise
from autoscout.analysis.verdict import Verdict, decide
from autoscout.core.config import Config
from autoscout.core.task import Budget, Direction, Task
from autoscout.core.trial import Fidelity, Status, Trial

GOOD = DEFAULT.extend(threads=16)
OTHER = DEFAULT.extend(threads=8)


def final(rounds: Sequence[dict[Config, float | None]], start: int = 10) -> list[Trial]:
    """Trials of a final; None is a crash."""
    trials: list[Trial] = []
    for number, values in enumerate(rounds, start=1):
        for config, value in values.items():
            origin = {"phase": "final", "round": number}
            trials.append(make_trial(start + len(trials), config, value, origin=origin, repeat=number))
    return trials


def test_a_gain_that_holds_in_the_final() -> None:
    trials = [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 400.0)]
    trials += final([{DEFAULT: 100.0, GOOD: 120.0}, {DEFAULT: 110.0, GOOD: 133.0}, {DEFAULT: 90.0, GOOD: 108.0}])
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.verdict is Verdict.GAIN
    assert decision.answer == GOOD
    assert decision.gain.ratio == pytest.approx(1.2, abs=0.01)  # not 4: the lucky look of the search does not count
    assert decision.gain.pairs == 3
    assert decision.default is not None
    assert decision.best is not None
    assert decision.default.trials == (10, 12, 14)
    assert (decision.default.value, decision.best.value) == (100.0, 120.0)  # medians


def test_noise_is_not_a_gain() -> None:
    trials = [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 130.0)]
    trials += final([{DEFAULT: 100.0, GOOD: 120.0}, {DEFAULT: 110.0, GOOD: 100.0}, {DEFAULT: 90.0, GOOD: 99.0}])
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED, "a gain of a half is not excluded"
    assert decision.answer == DEFAULT
    assert decision.best is not None
    assert decision.best.config == GOOD
    assert "interval includes" in decision.reason
    quiet = [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 130.0)]
    quiet += final([{DEFAULT: 100.0, GOOD: 102.0}, {DEFAULT: 101.0, GOOD: 100.0}, {DEFAULT: 99.0, GOOD: 101.0}])
    decision = decide(make_task(), quiet, DEFAULT)
    assert (decision.verdict, decision.answer) == (Verdict.NO_GAIN, DEFAULT)


def test_a_busy_machine_leads_to_not_decided_with_its_command() -> None:
    trials = [make_trial(0, DEFAULT, 23.0), make_trial(1, GOOD, 306.0)]
    trials += final([{DEFAULT: 247.8, GOOD: 309.8}, {DEFAULT: 23.31, GOOD: 254.5}, {DEFAULT: 15.65, GOOD: 273.4}])
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.gain.ratio is not None
    assert decision.gain.ratio > 5.0
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.answer == DEFAULT
    step = next_step(decision, trials, Budget(wall_s=360.0), 360.0, "results/llamacpp")
    assert step is not None
    assert "autoscout resume results/llamacpp --rounds 6 --budget" in step.command


def test_worse_than_the_default_hands_back_the_default() -> None:
    trials = [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 130.0)]
    trials += final([{DEFAULT: 100.0, GOOD: 80.0}, {DEFAULT: 101.0, GOOD: 81.0}, {DEFAULT: 99.0, GOOD: 79.0}])
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.verdict is Verdict.NO_GAIN
    assert decision.answer == DEFAULT


def test_minimised_metrics() -> None:
    task = make_task(metric="mean_ttft_ms", direction=Direction.MINIMIZE)
    trials = [make_trial(0, DEFAULT, 100.0, metric="mean_ttft_ms")]
    for number in range(1, 5):
        for config, value in ((DEFAULT, 100.0 + number), (GOOD, 50.0 + number / 2)):
            origin = {"phase": "final", "round": number}
            trials.append(make_trial(len(trials), config, value, metric="mean_ttft_ms", origin=origin, repeat=number))
    decision = decide(task, trials, DEFAULT)
    assert decision.verdict is Verdict.GAIN
    assert decision.gain.ratio == pytest.approx(2.0)


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_too_few_rounds_claim_nothing(rounds: int) -> None:
    trials = [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 300.0)]
    trials += final([{DEFAULT: 100.0, GOOD: 300.0}] * rounds)
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.answer == DEFAULT
    assert "not enough repeats" in decision.reason
    assert decision.gain.ratio == pytest.approx(3.0)
    assert not decision.gain.enough


def test_nothing_better_was_found() -> None:
    decision = decide(make_task(), [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 90.0)], DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED
    assert "nothing measured better" in decision.reason


def test_one_trial() -> None:
    decision = decide(make_task(), [make_trial(0, DEFAULT, 100.0)], DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.answer == DEFAULT
    assert decision.best is None


@pytest.mark.parametrize(
    ("trials", "verdict"),
    [([], Verdict.UNDECIDED), ([make_trial(0, DEFAULT), make_trial(1, GOOD, status=Status.TIMEOUT)], Verdict.NONE)],
)
def test_nothing_ran(trials: list[Trial], verdict: Verdict) -> None:
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.verdict is verdict
    assert decision.answer is None
    assert decision.best is None


def test_a_default_that_does_not_run_is_beaten_by_anything_that_does() -> None:
    trials = [make_trial(0, DEFAULT, status=Status.OOM_START), make_trial(1, GOOD, 90.0), make_trial(2, OTHER, 95.0)]
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.verdict is Verdict.GAIN
    assert decision.answer == OTHER
    assert decision.gain.ratio is None
    assert "does not run" in decision.reason


def test_a_default_that_breaks_a_limit_is_no_answer() -> None:
    task = make_task(limits=["p95_ttft_ms<=100"])
    trials = [
        make_trial(0, DEFAULT, 100.0, metrics={"p95_ttft_ms": 150.0}),
        make_trial(1, GOOD, 90.0, metrics={"p95_ttft_ms": 80.0}),
        make_trial(2, OTHER, 500.0, metrics={"p95_ttft_ms": 101.0}),
    ]
    decision = decide(task, trials, DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED, "each was measured once"
    assert decision.answer == GOOD
    assert "p95_ttft_ms<=100" in decision.reason
    assert decision.default is not None
    assert [check.holds for check in decision.default.limits] == [False]


def test_nothing_keeps_the_limits() -> None:
    task = make_task(limits=["p95_ttft_ms<=10"])
    trials = [make_trial(0, DEFAULT, 100.0, metrics={"p95_ttft_ms": 150.0}), make_trial(1, GOOD, 90.0)]
    decision = decide(task, trials, DEFAULT)
    assert decision.verdict is Verdict.NONE
    assert "limits" in decision.reason


def test_a_finalist_that_breaks_a_limit_on_average_is_passed_over() -> None:
    task = make_task(limits=["p95_ttft_ms<=100"])
    trials = [make_trial(0, DEFAULT, 100.0, metrics={"p95_ttft_ms": 50.0})]
    for number in range(1, 5):
        for config, value, latency in ((DEFAULT, 100.0, 50.0), (GOOD, 200.0, 99.0 + number), (OTHER, 150.0, 60.0)):
            origin = {"phase": "final", "round": number}
            more = {"origin": origin, "repeat": number, "metrics": {"p95_ttft_ms": latency}}
            trials.append(make_trial(len(trials), config, value, **more))
    decision = decide(task, trials, DEFAULT)
    assert decision.answer == OTHER
    assert [finalist.side.limits[0].state for finalist in decision.finalists] == [LimitState.KEPT, LimitState.UNSURE]


def test_a_finalist_that_crashes_once_is_passed_over() -> None:
    trials = final([{DEFAULT: 100.0, GOOD: 200.0, OTHER: 150.0}] * 3 + [{DEFAULT: 100.0, GOOD: None, OTHER: 150.0}])
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.answer == OTHER
    unstable = next(finalist for finalist in decision.finalists if finalist.side.config == GOOD)
    assert unstable.side.failures == 1
    assert not unstable.eligible


def test_what_failed_next_to_the_answer_is_a_warning() -> None:
    """Settings that crash now and then survive a final by luck, too."""
    best, alike, other = DEFAULT.extend(threads=16), DEFAULT.extend(threads=16, batch=64), DEFAULT.extend(flash=True)
    rounds: list[dict[Config, float | None]] = [
        {DEFAULT: 100.0 + number, best: 150.0 + number, alike: None if number % 2 else 152.0, other: None} for number in range(5)
    ]
    summary = summarise(make_task(), final(rounds), DEFAULT)
    assert (summary.verdict, summary.answer) == (Verdict.GAIN, best)
    assert [text for text in summary.warnings if "luck" in text] == [
        "batch=64, threads=16 failed in 2 of 5 runs of the final: it may have been luck that this one did not"
    ]
    steady = [{config: value for config, value in one.items() if config != alike} for one in rounds]
    assert not summarise(make_task(), final(steady), DEFAULT).warnings, "what never ran shares nothing with it"


def test_all_contenders_fail_in_the_final() -> None:
    decision = decide(make_task(), final([{DEFAULT: 100.0, GOOD: None}] * 3), DEFAULT)
    assert decision.verdict is Verdict.NO_GAIN
    assert decision.answer == DEFAULT


def test_sure_beats_lucky_among_finalists() -> None:
    rounds = [
        {DEFAULT: 100.0, GOOD: 90.0, OTHER: 110.0},
        {DEFAULT: 101.0, GOOD: 220.0, OTHER: 111.0},
        {DEFAULT: 99.0, GOOD: 95.0, OTHER: 109.0},
    ]
    decision = decide(make_task(), final(rounds), DEFAULT)
    assert decision.answer == OTHER
    assert decision.verdict is Verdict.GAIN


def test_real_numbers_outrank_simulated_ones() -> None:
    trials = [make_trial(0, DEFAULT, 100.0), simulated(1, GOOD, 9999.0), make_trial(2, OTHER, 110.0)]
    decision = decide(make_task(), trials, DEFAULT)
    assert decision.fidelity is Fidelity.MEASURED
    assert decision.best is not None
    assert decision.best.config == OTHER


def test_a_simulated_study_says_so() -> None:
    decision = decide(make_task(), [simulated(0, DEFAULT, 100.0), simulated(1, GOOD, 150.0)], DEFAULT)
    assert decision.verdict is Verdict.GAIN
    assert decision.fidelity is Fidelity.SIMULATED
    assert "simulated, not measured" in decision.reason
    worse = decide(make_task(), [simulated(0, DEFAULT, 100.0), simulated(1, GOOD, 50.0)], DEFAULT)
    assert worse.verdict is Verdict.NO_GAIN


def test_predictions_of_a_model_are_nobodys_result() -> None:
    trials = [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 900.0, fidelity=Fidelity.PREDICTED)]
    assert decide(make_task(), trials, DEFAULT).best is None


def test_a_default_that_was_never_measured() -> None:
    decision = decide(make_task(), [make_trial(1, GOOD, 900.0)], DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.answer == DEFAULT
    assert "never measured" in decision.reason


def test_editions_of_the_final_are_paired_round_by_round() -> None:
    first = final([{DEFAULT: 100.0, GOOD: 120.0}] * 3)
    second = [
        make_trial(
            trial.number + 20, trial.config, trial.measurement.metrics[METRIC], origin={"phase": "final", "round": r + 3}, repeat=r + 3
        )
        for r in (1, 2, 3)
        for trial in final([{DEFAULT: 50.0, OTHER: 55.0}])
    ]
    decision = decide(make_task(), [*first, *second], DEFAULT)
    assert decision.answer == GOOD
    assert decision.gain.ratio == pytest.approx(1.2)
    assert decision.default is not None
    assert decision.default.value == pytest.approx(100.0)  # as it was beside this finalist, not on the slower day


def test_order_of_trials_does_not_matter() -> None:
    trials = make_study(30)
    shuffled = [trials[i] for i in np.random.default_rng(0).permutation(len(trials))]
    one, other = decide(make_task(), trials, DEFAULT), decide(make_task(), shuffled, DEFAULT)
    assert one == other


def test_equal_configurations_are_rarely_told_apart() -> None:
    """The winner's curse: the best of five finalists that are no better than the default must not look like a gain."""
    rng = np.random.default_rng(1)
    contenders = [DEFAULT.extend(noise=number) for number in (0, 1, 2, 4, 5)]
    claimed, runs = 0, 400
    for _ in range(runs):
        rounds = []
        for _ in range(4):
            drift = np.exp(0.1 * rng.normal())
            rounds.append({config: float(100 * drift * np.exp(0.03 * rng.normal())) for config in (DEFAULT, *contenders)})
        claimed += decide(make_task(), final(rounds), DEFAULT).verdict is Verdict.GAIN
    assert claimed / runs < 0.05


def test_the_synthetic_study_finds_its_known_gain() -> None:
    decision = decide(make_task(), make_study(60), DEFAULT)
    assert decision.verdict is Verdict.GAIN
    assert decision.answer is not None
    true_gain = truth(decision.answer) / truth(DEFAULT)
    assert decision.gain.low is not None
    assert decision.gain.high is not None
    assert decision.gain.low <= true_gain <= decision.gain.high


def final_of(values: dict[Config, list[float]]) -> list[Trial]:
    trials: list[Trial] = []
    for number in range(5):
        for config, found in values.items():
            origin = {"phase": "final", "round": number + 1}
            trials.append(make_trial(len(trials), config, found[number], origin=origin, repeat=number + 1))
    return trials


def test_of_finalists_that_cannot_be_told_apart_the_simplest_is_the_answer() -> None:
    simple, lucky = Config(threads=8, noise=3), Config(threads=8, noise=5)
    default = Config(threads=4, noise=3)
    same = {default: [100.0, 104, 98, 101, 99], lucky: [152.0, 155, 150, 149, 153], simple: [150.0, 154, 151, 150, 151]}
    decision = decide(make_task(), final_of(same), default)
    assert decision.finalists[0].side.config == simple
    assert decision.answer == simple
    assert decision.best is not None
    assert decision.best.config == simple
    assert decision.gain == decision.finalists[0].gain, "the gain is that of what is handed over"
    assert "fewest knobs" in decision.reason
    apart = {**same, simple: [140.0, 144, 139, 138, 141]}
    decision = decide(make_task(), final_of(apart), default)
    assert decision.answer == lucky
    assert "fewest knobs" not in decision.reason


def test_on_several_windows_the_value_nearest_the_default_wins_a_tie() -> None:
    near, far = Config(threads=6, noise=3), Config(threads=16, noise=3)
    default = Config(threads=4, noise=3)
    same = {default: [100.0, 104, 98, 101, 99], far: [152.0, 155, 150, 149, 153], near: [150.0, 154, 151, 150, 151]}
    windows = [{"name": name, "requests": 10, "pairs": [[100, 10]], "held_out": name == "night"} for name in ("day", "evening", "night")]

    def on(*chosen: dict[str, object]) -> Task:
        return replace(make_task(), workload={"traffic": {"windows": list(chosen)}})

    decision = decide(on(*windows), final_of(same), default)
    assert decision.answer == near
    assert "fewest knobs, and these the least" in decision.reason
    for task in (make_task(), on(windows[0], windows[2])):  # one load alone: the one that did best
        decision = decide(task, final_of(same), default)
        assert decision.answer == far
        assert "fewest knobs" not in decision.reason
    apart = {**same, near: [140.0, 144, 139, 138, 141]}
    assert decide(on(*windows), final_of(apart), default).answer == far
    more = {**same, Config(threads=4.1, noise=4): same[far]}
    assert decide(on(*windows), final_of(more), default).answer == near, "fewer changes come first"


def test_a_simpler_finalist_does_not_lose_to_luck() -> None:
    """Its five pairs happen to agree that it is worse, even at 99 %; the noise of all configurations says otherwise."""
    simple, lucky = Config(threads=8, noise=3), Config(threads=8, noise=5)
    default = Config(threads=4, noise=3)
    values = {default: [100.0, 106, 95, 103, 96], lucky: [152.0, 155, 150, 149, 153], simple: [150.0, 153, 148, 147.2, 151.1]}
    pairs = [values[config] for config in (lucky, simple)]
    assert paired_gain(*pairs, minimize=False, confidence=0.99).worse
    assert decide(make_task(), final_of(values), default).answer == simple
    quiet = {**values, default: [100.0, 102, 98.7, 98.1, 100.6]}
    assert decide(make_task(), final_of(quiet), default).answer == lucky, "a small difference counts where the noise is as small"


def test_equal_finalists_are_told_apart_in_few_studies() -> None:
    rng = np.random.default_rng(3)
    default, simple, other = Config(threads=4, noise=3), Config(threads=8, noise=3), Config(threads=8, noise=5)
    levels = {default: 100.0, simple: 150.0, other: 150.0}
    wrong, runs = 0, 400
    for _ in range(runs):
        values = {config: [float(level * np.exp(0.02 * rng.normal())) for _ in range(5)] for config, level in levels.items()}
        wrong += decide(make_task(), final_of(values), default).answer != simple
    assert wrong <= 8, f"{wrong} of {runs}"  # 2 expected


def test_exact_answers_are_alike_only_when_equal() -> None:
    simple, other, default = Config(threads=8, noise=3), Config(threads=8, noise=5), Config(threads=4, noise=3)
    trials = [make_trial(0, default, 100.0), make_trial(1, other, 150.0), make_trial(2, simple, 150.0)]
    assert decide(make_task(), trials, default, exact=True).answer == simple
    trials[2] = make_trial(2, simple, 149.999)
    assert decide(make_task(), trials, default, exact=True).answer == other

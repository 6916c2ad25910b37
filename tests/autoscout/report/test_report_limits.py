"""Verdicts under limits: a limit is kept, broken or not told apart by the interval of its metric, and the verdict says which."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from report_studies import DEFAULT, make_task, make_trial
from rich.console import Console

from autoscout.analysis.contributions import limit_contributions
from autoscout.analysis.gain import Noise
from autoscout.analysis.limits import LimitState, check_limit, repeat_noise
from autoscout.analysis.result import StudyResult
from autoscout.analysis.summary import Summary, summarise
from autoscout.analysis.verdict import Verdict, decide
from autoscout.core.clock import VirtualClock
from autoscout.core.config import Config
from autoscout.core.task import Budget, Direction, Guard, Limit, Task
from autoscout.core.trial import Trial
from autoscout.report.handover import diff_text, hand_over
from autoscout.report.page import page
from autoscout.report.progress import ProgressDisplay
from autoscout.report.sections.header import KINDS
from autoscout.report.text import COLOURS, render
from autoscout.report.view import StudyView
from autoscout.web.studies import studies_table

GOOD = DEFAULT.extend(threads=16)
OTHER = DEFAULT.extend(threads=8)
SAFE = DEFAULT.extend(threads=2)
LIMIT = Limit.parse("p95_ttft_ms<=100")
TASK = make_task(limits=["p95_ttft_ms<=100"])
Runs = Mapping[Config, Sequence[tuple[float, float]]]
"""Throughput and latency of each configuration, round by round."""


def final(runs: Runs, search: Runs | None = None) -> list[Trial]:
    trials: list[Trial] = []
    for config, values in (search or {}).items():
        trials += [make_trial(len(trials), config, value, metrics={"p95_ttft_ms": latency}) for value, latency in values]
    for config, values in runs.items():
        for number, (value, latency) in enumerate(values, start=1):
            more = {"origin": {"phase": "final", "round": number}, "repeat": number, "metrics": {"p95_ttft_ms": latency}}
            trials.append(make_trial(len(trials), config, value, **more))
    return trials


def around(value: float, latency: float, times: int = 5) -> list[tuple[float, float]]:
    """Runs with 2 % noise."""
    factors = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0)[:times]
    return [(value * factor, latency * factors[-1 - number]) for number, factor in enumerate(factors)]


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ([80.0, 82.0, 81.0], LimitState.KEPT),
        ([120.0, 121.0, 119.0], LimitState.BROKEN),
        ([101.0, 98.0, 104.0], LimitState.UNSURE),
        ([100.0, 100.0, 100.0], LimitState.KEPT),
        ([80.0], LimitState.UNSURE),
        ([], LimitState.MISSING),
        ([0.0, 0.0, 0.0], LimitState.KEPT),
    ],
)
def test_a_limit_is_decided_by_the_interval_of_its_metric(values: list[float], state: LimitState) -> None:
    assert check_limit(LIMIT, values).state is state


def test_few_measurements_are_judged_by_the_noise_of_all() -> None:
    noise = repeat_noise([[100.0, 103.0], [50.0, 51.0, 49.5], [7.0]])
    assert noise is not None
    assert noise.freedom == 3
    assert check_limit(LIMIT, [80.0], noise).state is LimitState.KEPT
    assert check_limit(LIMIT, [97.0], noise).state is LimitState.UNSURE
    assert check_limit(LIMIT, [97.0], Noise(deviation=0.001, freedom=9)).state is LimitState.KEPT
    assert repeat_noise([[7.0]]) is None
    assert check_limit(LIMIT, [101.0], exact=True).state is LimitState.BROKEN


def test_a_limit_is_judged_by_the_noise_of_all_configurations() -> None:
    """Five values that look calm, or wild, by chance say little; those that surely scatter otherwise are judged by themselves."""
    usual = [[50.0, 51.5, 48.5, 50.5, 49.5], [70.0, 72.1, 67.9, 70.7, 69.3], [90.0, 92.7, 87.3, 90.9, 89.1]]

    def interval(values: list[float]) -> tuple[float, float]:
        check = check_limit(LIMIT, values, repeat_noise([*usual, values]))
        assert check.low is not None
        assert check.high is not None
        return check.low, check.high

    calm, wild = [96.0, 97.5, 95.0, 96.8, 94.9], [96.0, 101.0, 91.5, 97.5, 94.0]
    alone = check_limit(LIMIT, wild)
    assert alone.state is LimitState.UNSURE
    assert check_limit(LIMIT, wild, repeat_noise([*usual, wild])).state is LimitState.KEPT
    by_itself = check_limit(LIMIT, calm)
    assert by_itself.low is not None
    assert by_itself.low > interval(calm)[0] + 0.4
    rough = [96.0, 125.0, 72.0, 105.0, 90.0]
    assert interval(rough) == (check_limit(LIMIT, rough).low, check_limit(LIMIT, rough).high)
    assert check_limit(LIMIT, [100.0] * 5, repeat_noise([*usual, [100.0] * 5])).state is LimitState.KEPT, "exact"


def test_where_the_default_breaks_a_limit_the_simpler_of_two_that_keep_it_is_the_answer() -> None:
    """Whether its goal is surely better than the default's is no merit here."""
    goal = [97.0, 103.0, 99.0, 104.0, 99.5]
    simple = [(value, 80.0 + number) for number, value in enumerate(goal)]
    both = [(value * 1.03 + 0.1 * number, 80.0 + number) for number, value in enumerate(goal)]
    default = [(value * 0.985 * (1.03, 0.97, 1.02, 0.98, 1.0)[number], 150.0 + number) for number, value in enumerate(goal)]
    decision = decide(TASK, final({DEFAULT: default, GOOD: simple, GOOD.extend(batch=64): both}), DEFAULT)
    better = {finalist.side.config: finalist.gain.better for finalist in decision.finalists}
    assert (decision.verdict, decision.answer) == (Verdict.KEEPS, GOOD), better


def test_a_default_near_its_limit_is_not_disqualified_by_chance() -> None:
    """Its median breaks the limit, a configuration that differs in an inert knob has one that keeps it: that is no gain."""
    default = [(100.0, 99.0), (101.0, 102.0), (99.0, 100.5), (100.0, 98.0), (101.0, 101.0)]
    inert = [(100.0, 98.0), (99.0, 99.0), (101.0, 101.0), (100.5, 99.5), (100.0, 97.0)]
    decision = decide(TASK, final({DEFAULT: default, GOOD: inert}), DEFAULT)
    assert decision.verdict is Verdict.NO_GAIN
    assert decision.answer == DEFAULT
    assert decision.default is not None
    assert decision.default.limits[0].state is LimitState.UNSURE
    assert "not told apart" in decision.reason


def test_a_default_that_clearly_breaks_a_limit_is_replaced_and_the_price_is_told() -> None:
    decision = decide(TASK, final({DEFAULT: around(100.0, 150.0), GOOD: around(60.0, 80.0)}), DEFAULT)
    assert decision.verdict is Verdict.KEEPS
    assert decision.answer == GOOD
    doubtful = decide(TASK, final({DEFAULT: around(100.0, 150.0), GOOD: around(60.0, 99.0)}), DEFAULT)
    assert doubtful.verdict is Verdict.UNDECIDED, "it may break the limit as well"
    assert doubtful.answer == GOOD


def test_what_may_break_a_limit_is_no_gain() -> None:
    """The default keeps its limit beyond doubt: nobody trades that for a coin toss, whatever the throughput."""
    decision = decide(TASK, final({DEFAULT: around(100.0, 50.0), GOOD: around(150.0, 99.0)}), DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.answer == DEFAULT
    assert "it looks like +50.0 %, but it is not certain that it keeps the limits: p95_ttft_ms<=100 (99.00 [" in decision.reason
    beyond = decide(TASK, final({DEFAULT: around(100.0, 50.0), GOOD: around(150.0, 101.0)}), DEFAULT)
    assert beyond.verdict is Verdict.UNDECIDED
    assert beyond.answer == DEFAULT
    broken = decide(TASK, final({DEFAULT: around(100.0, 50.0), GOOD: around(150.0, 140.0)}), DEFAULT)
    assert broken.verdict is Verdict.NO_GAIN
    doubtful = decide(TASK, [make_trial(90, DEFAULT), *final({GOOD: around(150.0, 99.0)})], DEFAULT)
    assert (doubtful.verdict, doubtful.answer) == (Verdict.UNDECIDED, GOOD), "the default does not run"
    sure = decide(TASK, [make_trial(90, DEFAULT), *final({GOOD: around(150.0, 80.0)})], DEFAULT)
    assert (sure.verdict, sure.answer) == (Verdict.GAIN, GOOD)


def test_the_smaller_gain_that_surely_keeps_the_limits_is_the_answer() -> None:
    runs = {DEFAULT: around(100.0, 50.0), GOOD: around(150.0, 99.0), SAFE: around(120.0, 80.0)}
    decision = decide(TASK, final(runs), DEFAULT)
    assert (decision.verdict, decision.answer) == (Verdict.GAIN, SAFE)
    assert "looks like +50.0 %, but it is not certain that it keeps the limits: p95_ttft_ms<=100 (99.00 [" in decision.reason
    even = decide(TASK, final({**runs, SAFE: around(100.0, 80.0)}), DEFAULT)
    assert even.verdict is Verdict.UNDECIDED, "what surely keeps the limits gains nothing"
    assert even.best is not None
    assert even.best.config == GOOD


def test_a_guard_is_judged_round_by_round_beside_the_default() -> None:
    """The machine is twice as slow in some rounds; a configuration that is 10 % over the default in each keeps a guard of 20 %."""
    task = Task(system="toy", objective=replace(make_task().objective, guards=(Guard.parse("p95_ttft_ms<=1.2x"),)))
    drift = (1.0, 2.0, 1.1, 1.9, 1.0)
    runs = {
        DEFAULT: [(100.0, 50.0 * factor) for factor in drift],
        GOOD: [(150.0 + number, 55.0 * factor * (1.0 + 0.001 * number)) for number, factor in enumerate(drift)],
        OTHER: [(180.0 + number, 80.0 * factor * (1.0 + 0.001 * number)) for number, factor in enumerate(drift)],
    }
    decision = decide(task, final(runs), DEFAULT)
    states = {finalist.side.config: finalist.side.limits[0].state for finalist in decision.finalists}
    assert states == {GOOD: LimitState.KEPT, OTHER: LimitState.BROKEN}
    assert decision.default is not None
    assert decision.default.limits[0].state is LimitState.KEPT
    assert (decision.verdict, decision.answer) == (Verdict.GAIN, GOOD)


def test_of_equal_finalists_the_one_with_a_margin_goes_first() -> None:
    simple, safe = DEFAULT.extend(threads=16), DEFAULT.extend(threads=16, batch=64)
    runs = {DEFAULT: around(100.0, 50.0), simple: around(150.0, 99.0), safe: around(150.0, 80.0)}
    decision = decide(TASK, final(runs), DEFAULT)
    assert (decision.verdict, decision.answer) == (Verdict.GAIN, safe)


def test_what_kept_the_limits_in_the_search_is_not_forgotten_when_all_finalists_fall() -> None:
    search = {DEFAULT: [(100.0, 150.0)], GOOD: [(99.0, 99.0)], SAFE: [(60.0, 50.0)], OTHER: [(50.0, 40.0)]}
    decision = decide(TASK, final({DEFAULT: around(100.0, 150.0), GOOD: around(99.0, 150.0)}, search), DEFAULT)
    assert decision.verdict is Verdict.UNDECIDED
    assert decision.answer == SAFE
    assert "2 other configurations that kept every limit" in decision.reason
    del search[SAFE], search[OTHER]
    decision = decide(TASK, final({DEFAULT: around(100.0, 150.0), GOOD: around(99.0, 150.0)}, search), DEFAULT)
    assert decision.verdict is Verdict.NONE
    assert decision.reason.startswith("no configuration kept the limits, of 2 that were tried; the nearest is ")


def test_nothing_works_says_what_came_nearest() -> None:
    search = {DEFAULT: [(100.0, 150.0)], GOOD: [(99.0, 130.0)], SAFE: [(60.0, 110.0)], OTHER: [(50.0, 140.0)]}
    decision = decide(TASK, final({}, search), DEFAULT)
    assert decision.verdict is Verdict.NONE
    assert decision.reason == "no configuration kept the limits, of 4 that were tried; the nearest is threads=2: p95_ttft_ms<=100 (110.0)"


def test_every_limit_of_a_default_that_others_could_not_beat() -> None:
    failed = make_trial(99, GOOD)
    decision = decide(TASK, [*final({}, {DEFAULT: [(100.0, 50.0)]}), failed], DEFAULT)
    assert decision.verdict is Verdict.NO_GAIN


def seconds(config: Config, number: int, ratio: float, cpu_time_s: float) -> Trial:
    factor = (1.0, 1.02, 0.98, 1.01, 0.99)[number - 1]
    origin = {"phase": "final", "round": number}
    metrics = {"ratio": ratio}
    return make_trial(
        10 * number + len(config), config, cpu_time_s * factor, metric="cpu_time_s", metrics=metrics, origin=origin, repeat=number
    )


def compression() -> tuple[Task, list[Trial], Config]:
    """The default compresses to 3.37, the limit is 3.8, and level 9 takes 3.8 times as long."""
    task = make_task(metric="cpu_time_s", direction=Direction.MINIMIZE, limits=["ratio>=3.8"])
    default, level = Config(level=3), Config(level=9, window=1)
    rounds = [trial for number in range(1, 6) for trial in (seconds(default, number, 3.37, 0.06), seconds(level, number, 3.82, 0.23))]
    return task, rounds, default


def shown(summary: Summary) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(render(summary))
    return console.file.getvalue()


def test_keeping_a_limit_is_never_called_a_gain_below_zero(tmp_path: Path) -> None:
    task, trials, default = compression()
    result = StudyResult(task=task, trials=trials, default_config=default)
    summary = result.summary
    assert summary.verdict is Verdict.KEEPS
    assert summary.headline == "Keeps the limits: ratio 3.370 -> 3.820 (limit ratio>=3.8); costs: cpu_time_s 3.8x"
    text = shown(summary)
    assert "KEEPS THE LIMITS  ratio 3.370 -> 3.820 (limit ratio>=3.8)" in text
    assert "cpu_time_s: 3.833x worse" in text
    html = page(StudyView(result=result))
    hero = html[html.index('class="hero kept"') :].split("</svg>")[0]
    assert "3.370 → 3.820" in hero
    hand_over(tmp_path / "best", summary, {}, default)
    readme = (tmp_path / "best" / "README.md").read_text()
    assert "a configuration that keeps the limits" in readme
    assert "holds the default" not in readme
    assert json.loads((tmp_path / "best" / "gain.json").read_text())["handed_over"] == "best"
    for words in (text.split("Default and best")[0], readme):
        assert "-73" not in words
        assert "-74" not in words
    assert "contributes" not in (tmp_path / "best" / "diff.txt").read_text()
    assert {one.metric for one in result.contributions} == {"ratio"}, "what a knob does to the goal is no merit here"


def test_where_a_limit_is_newly_kept_a_knob_is_worth_what_it_does_for_that() -> None:
    task, trials, default = compression()
    both, level = Config(level=9, window=1), Config(level=9)
    trials += [seconds(level, number, 3.81, 0.23) for number in range(1, 6)]
    result = StudyResult(task=task, trials=trials, default_config=default)
    assert result.summary.verdict is Verdict.KEEPS
    assert result.best_config == level, "the smaller of two that are as good"
    (worth,) = result.contributions
    assert (worth.knob, worth.metric) == ("level", "ratio")
    assert worth.ratio == pytest.approx(3.81 / 3.37)
    text = "ratio 1.131x [1.131, 1.131] better, measured"
    assert str(worth) == text
    assert text in diff_text(result.summary.changes, result.contributions)
    assert text in page(StudyView(result=result))
    assert limit_contributions(trials, default, both, task.objective.limits)[1].ratio == pytest.approx(3.82 / 3.81)


def test_a_running_study_says_that_the_limit_is_what_it_gains() -> None:
    task, rounds, default = compression()
    search = [
        make_trial(number, config, value, metric="cpu_time_s", metrics={"ratio": ratio})
        for number, (config, value, ratio) in enumerate([(default, 0.06, 3.37), (rounds[1].config, 0.23, 3.82)])
    ]
    console = Console(file=io.StringIO(), width=200)
    with ProgressDisplay(task, default, console=console, clock=VirtualClock()) as progress:
        progress.phase("search")
        for trial in search:
            progress.finished(trial)
        progress.phase("final")
        for trial in rounds:
            progress.finished(trial)
    text = console.file.getvalue()
    assert "keeps the limits so far, which the default does not" in text
    assert "keeps the limits, which the default does not" in text
    assert "-7" not in text


def test_undecided_and_no_gain_are_told_apart_and_the_way_to_a_verdict_is_told(tmp_path: Path) -> None:
    task = make_task()
    short = [trial for trial in final({DEFAULT: around(100.0, 1.0), GOOD: around(200.0, 1.0)}) if trial.proposal.repeat <= 2]
    open_ = summarise(task, short, DEFAULT, folder="results/x y")
    assert open_.verdict is Verdict.UNDECIDED
    assert open_.next is not None
    assert (open_.next.measurements, open_.next.seconds) == (2, 16.0)
    assert open_.next.command == "autoscout resume 'results/x y'"
    assert "a verdict needs at least 2 more measurements, about 16 s: autoscout resume" in shown(open_)
    assert open_.to_json()["next"] == {"measurements": 2, "seconds": 16.0, "command": open_.next.command}
    hand_over(tmp_path / "best", open_, {}, DEFAULT)
    assert "autoscout resume 'results/x y'" in (tmp_path / "best" / "README.md").read_text()
    html = page(StudyView(result=StudyResult(task=task, trials=short, default_config=DEFAULT, folder="results/x")))
    assert "<code>autoscout resume results/x</code>" in html
    equal = summarise(task, final({DEFAULT: around(100.0, 1.0), GOOD: around(100.0, 1.0)}), DEFAULT)
    assert (equal.verdict, equal.next) == (Verdict.NO_GAIN, None)
    assert equal.headline.startswith("No gain: keep the default")


def test_the_command_that_decides_gives_the_time_that_is_missing() -> None:
    task = make_task()
    timed = Task(system=task.system, objective=task.objective, budget=Budget(wall_s=20.0))
    trials = [make_trial(0, DEFAULT, 100.0), make_trial(1, GOOD, 300.0)]
    step = summarise(timed, trials, DEFAULT).next
    assert step is not None
    assert (step.measurements, step.seconds) == (6, 48.0)
    assert step.command == "autoscout resume DIR --budget 2m"  # 16 s so far, nine measurements with some slack
    nothing = summarise(timed, [], DEFAULT).next  # a budget that the first measurement has outlasted
    assert nothing is not None
    assert nothing.command == "autoscout resume DIR --budget 40s"
    without_final = summarise(make_task(trials=2), trials, DEFAULT).next
    assert without_final is not None
    assert without_final.command == "autoscout resume DIR --rounds 5"
    doubtful = summarise(TASK, final({DEFAULT: around(100.0, 50.0), GOOD: around(150.0, 101.0)}), DEFAULT).next
    assert doubtful is not None
    assert doubtful.command == "autoscout resume DIR --rounds 10"


def test_five_verdicts_have_five_looks() -> None:
    base = {"key": "k", "title": "n", "running": 0, "metric": "m", "best": None, "simulated": False, "gain": {}, "system": "s", "trials": 1}
    base |= {"state": "finished", "tags": [], "note": ""}
    rows = [{**base, "created_s": 0.0, "verdict": verdict.value} for verdict in Verdict]
    listed = str(studies_table(rows, "studies"))
    for verdict in Verdict:
        assert f'<span class="badge {KINDS[verdict]}">{verdict.value}</span>' in listed
    for looks in (KINDS, COLOURS):
        assert set(looks) == set(Verdict)
        assert len(set(looks.values())) == len(Verdict)

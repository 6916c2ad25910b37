from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from report_studies import DEFAULT, KNOBS, METRIC, make_study, make_task, make_trial, page_of, result_of, simulated
from rich.console import Console

from autoscout.analysis.importance import knob_importance
from autoscout.analysis.labels import differences, namer, one_line
from autoscout.analysis.summary import summarise
from autoscout.common.text import show, show_duration, show_gain, show_number, show_percent
from autoscout.core.config import Config
from autoscout.core.trial import Status, Trial
from autoscout.report.metrics import MOST_METRICS
from autoscout.report.text import comparison_table, render
from autoscout.space import Choice


def plain_text(*parts: object, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(render(*parts))  # type: ignore[arg-type]
    return capture.get()


def test_a_whole_study() -> None:
    trials = make_study(60)
    summary = summarise(make_task(limits=["p95_ttft_ms<=90"]), trials, DEFAULT, knobs=KNOBS)
    assert summary.study == "synthetic"
    assert summary.spent.trials == len(trials) == 75
    assert summary.spent.cost_s == pytest.approx(8.0 * 75)
    assert summary.spent.configs == 60
    assert sum(summary.counts["measured"].values()) == 75
    assert sum(len(group.trials) for group in summary.failures) == 75 - summary.counts["measured"]["ok"]
    assert summary.changes[0].knob == "threads"
    assert len(summary.points) == 75
    assert "over the default" in summary.headline
    assert json.loads(json.dumps(summary.to_json(), allow_nan=False))["verdict"] == "gain"


def test_failures_are_grouped_by_what_they_say() -> None:
    trials = [
        make_trial(0, DEFAULT, status=Status.OOM_START, reason="failed to allocate 100 MiB at 0x7f01", log_tail="first"),
        make_trial(1, DEFAULT.extend(noise=1), status=Status.OOM_START, reason="failed to allocate 2.5 MiB at 0xdead", log_tail="second"),
        make_trial(2, DEFAULT.extend(noise=2), status=Status.CRASHED, reason="failed to allocate 100 MiB at 0x7f01"),
        make_trial(3, DEFAULT.extend(noise=4), status=Status.TIMEOUT),
        make_trial(4, DEFAULT.extend(noise=5), status=Status.ABORTED, reason="stopped by us"),
    ]
    failures = summarise(make_task(), trials, DEFAULT).failures
    assert [(group.status, group.trials) for group in failures] == [
        (Status.OOM_START, (0, 1)),
        (Status.CRASHED, (2,)),
        (Status.TIMEOUT, (3,)),
    ]
    assert failures[0].log_tail == "second"
    assert failures[2].reason == "no reason given"


def test_noisy_and_disturbed_trials_are_counted() -> None:
    trials = [
        make_trial(0, DEFAULT, 10.0, samples={METRIC: (5.0, 15.0)}),
        make_trial(1, DEFAULT.extend(noise=1), 10.0, samples={METRIC: (10.0, 10.1)}, conditions={"dirty_repeats": 2.0, "dirty": 1.0}),
        make_trial(2, DEFAULT.extend(noise=2), 10.0, conditions={"dirty_repeats": 1.0, "cpu_pressure": 3.0}),
    ]
    summary = summarise(make_task(), trials, DEFAULT)
    assert summary.noisy == (0,)
    assert summary.dirty == (1,)


def test_doubts_are_told() -> None:
    def again(number: int, value: float, **more: object) -> object:
        return make_trial(number, DEFAULT, value, origin={"phase": "final", "round": number}, repeat=number, **more)

    trials = [again(1, 10.0), again(2, 20.0, conditions={"dirty": 1.0}), again(3, 12.0, conditions={"too_few": 1.0})]
    summary = summarise(make_task(), trials, DEFAULT)  # type: ignore[arg-type]
    assert summary.warnings == (
        "1 of the 3 measurements behind this were disturbed by other work on the machine",
        "1 of the 3 measurements behind this had too few requests for a percentile that counts",
        "the default scatters by 38% between repeats",
    )
    assert "! 1 of the 3" in plain_text(summary)
    assert summarise(make_task(), make_study(30), DEFAULT).warnings == ()


@pytest.mark.parametrize(("slower", "said"), [(0.031, False), (0.06, True)])
def test_unequal_machines_are_told(slower: float, said: bool) -> None:
    trials = [
        make_trial(number, config, 10.0, machine=f"m{number % 2}", conditions={"machine_probe_s": (0.03, slower)[number % 2]})
        for number, config in enumerate([DEFAULT, DEFAULT.extend(noise=1)])
    ]
    told = "the machines behind this are unequal: the slowest took 2.0 times as long for the same work as the fastest"
    assert (told in summarise(make_task(), trials, DEFAULT).warnings) is said


def test_simulated_and_measured_are_kept_apart() -> None:
    trials = [simulated(0, DEFAULT, 1.0), simulated(1, DEFAULT.extend(noise=1), 2.0), make_trial(2, DEFAULT, 100.0)]
    summary = summarise(make_task(), trials, DEFAULT)
    assert summary.counts == {"simulated": {"ok": 2}, "measured": {"ok": 1}}
    assert summary.default is not None
    assert summary.default.trials == (2,)


@pytest.mark.parametrize(
    ("trials", "words"),
    [
        ([], ["NOT DECIDED", "nothing has been measured yet", "0 trials"]),
        ([make_trial(0, DEFAULT, reason="boom [red]not markup[/red]")], ["NOTHING WORKS", "boom [red]not markup[/red]"]),
        ([make_trial(0, DEFAULT, 10.0)], ["NOT DECIDED", "nothing but the default was measured"]),
        ([make_trial(0, DEFAULT, 10.0), make_trial(1, DEFAULT.extend(noise=1), 20.0)], ["NOT DECIDED", "not enough repeats"]),
        ([simulated(0, DEFAULT, 10.0), simulated(1, DEFAULT.extend(noise=1), 20.0)], ["GAIN  2.00x", "simulated, not measured"]),
    ],
)
def test_text_of_small_studies(trials: list[object], words: list[str]) -> None:
    text = plain_text(summarise(make_task(), trials, DEFAULT, knobs=KNOBS))  # type: ignore[arg-type]
    for word in words:
        assert word in text


def test_a_limit_on_what_was_not_measured_is_not_called_broken() -> None:
    trials = [make_trial(0, DEFAULT, 10.0), make_trial(1, DEFAULT.extend(noise=1), 20.0)]
    text = plain_text(summarise(make_task(limits=["p42_ms<=70"]), trials, DEFAULT, knobs=KNOBS), width=140)
    assert "not measured" in text
    assert "BROKEN" not in text


def test_text_of_a_whole_study() -> None:
    task, trials = make_task(limits=["p95_ttft_ms<=70"]), make_study(40)
    text = plain_text(summarise(task, trials, DEFAULT, knobs=KNOBS), knob_importance(task, trials), width=140)
    assert "BROKEN" in text
    task = make_task(limits=["p95_ttft_ms<=90"])
    text = plain_text(summarise(task, trials, DEFAULT, knobs=KNOBS), knob_importance(task, trials), width=140)
    for word in ("GAIN", "95% interval", "kept", "threads that compute", "Finalists", "Knob importance", "Failures", "failed to allocate"):
        assert word in text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 140


def test_names_of_changed_knobs_are_whole_in_a_narrow_terminal() -> None:
    name = "wait_policy_of_idle_threads"
    default, best = Config({name: "default"}), Config({name: "passive"})
    note = Choice(name, ["default", "passive"], help="how idle threads wait: they spin for a while, spin always, or sleep")
    trials = [make_trial(0, default, 100.0), make_trial(1, best, 150.0)]
    assert name in plain_text(summarise(make_task(), trials, default, knobs=[note]), width=80).split("Changed knobs")[1]


def test_differences_see_types_and_inactive_knobs() -> None:
    one, other = Config(a=1, b=True, gone="x", same=2.0), Config(a=1.0, b=1, new=None, same=2.0)
    found = {change.knob: (change.before, change.after) for change in differences(one, other)}
    assert found == {"a": ("1", "1"), "b": ("on", "1"), "gone": ("x", "-"), "new": ("-", "not given")}


def test_names_come_from_the_knobs() -> None:
    name_of = namer(DEFAULT, KNOBS)
    assert name_of(DEFAULT) == "default"
    assert name_of(DEFAULT.extend(noise=9, flash=True)) == "flash=on, noise=9"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.85, "850 ms"), (4.25, "4.2 s"), (59.6, "1 m 00 s"), (200.0, "3 m 20 s"), (7500.0, "2 h 05 m"), (273600.0, "3 d 4 h"), (None, "-")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert show_duration(seconds) == text


def test_numbers() -> None:
    assert [show_number(value) for value in (None, 0.0, 1234.5678, 0.0123456, 123456.0, 1e-9, 3e9)] == [
        "-",
        "0",
        "1,235",
        "0.01235",
        "123,456",
        "1.000e-09",
        "3.000e+09",
    ]
    assert show_percent(1.25) == "+25.0 %"
    assert show_percent(0.9) == "-10.0 %"
    assert show_gain(1.25, 1.1, 2.5) == "+25.0 % (+10.0 % to +150.0 %)"
    assert show_gain(2.5, 1.1, 4.0) == "2.50x (1.10x to 4.00x)"
    assert show_gain(1.25, None, None) == "+25.0 %"
    assert show_gain(None) == "-"
    assert [show(value) for value in (True, False, None, 1e-5, "x", 4)] == ["on", "off", "not given", "1e-05", "x", "4"]


def test_one_line_is_one_line() -> None:
    assert one_line("\n\n  a\tb\x1b[31m\x00 c\nsecond") == "a b [31m c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"
    assert one_line("") == ""


def test_the_report_says_what_the_interval_speaks_for() -> None:
    summary = summarise(make_task(), make_study(), DEFAULT, load="8 clients over HTTP.")
    assert "this run of the study on this machine" in summary.scope
    assert summary.scope.endswith("Load: 8 clients over HTTP.")
    assert summary.to_json()["load"] == "8 clients over HTTP."
    assert "8 clients over HTTP." in page_of(make_task(), make_study(), load="8 clients over HTTP.")
    assert summarise(make_task(), [make_trial(0, DEFAULT, 1.0)], DEFAULT).scope == "", "no interval, nothing to say"


def test_the_terminal_shows_ten_metrics_and_says_how_many_more_there_are() -> None:
    def numbered(trial: Trial) -> Trial:
        factor = 3.0 if trial.config == DEFAULT else 4.0
        metrics = {**trial.measurement.metrics, **{f"p{number}_wait_ms": factor * number for number in range(30)}, "peak_mem_gib": factor}
        return replace(trial, measurement=replace(trial.measurement, metrics=metrics))

    def shown(trials: list[Trial]) -> str:
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(comparison_table(result_of(make_task(limits=["p95_ttft_ms<=90"]), trials).summary))
        return console.export_text()

    few = make_study()
    assert "more in report.html" not in shown(few)
    text = shown([numbered(trial) if trial.ok else trial for trial in few])
    names = [line.split("│")[1].strip() for line in text.splitlines() if "│" in line]
    assert names[:2] == [METRIC, "p95_ttft_ms"], "goal and limits come first"
    assert "peak_mem_gib" in names, "what it costs is named"
    assert len([name for name in names if name.endswith(("_ms", "_gib", METRIC))]) <= MOST_METRICS
    assert "... 29 more in report.html" in names

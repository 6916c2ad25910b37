from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from report_studies import make_task, make_trial, page_of
from rich.console import Console

from autoscout.analysis.front import Front, Standing
from autoscout.analysis.summary import Summary, summarise
from autoscout.core.config import Config
from autoscout.core.task import Direction, Goal, Limit, Objective, Task
from autoscout.core.trial import Fidelity, Status, Trial
from autoscout.report.front_files import hand_over_front
from autoscout.report.sections.tradeoff import axes, tradeoff
from autoscout.report.text import render

DEFAULT = Config(batch=1)
LIMITS = (Limit.parse("mem_gib<=9"),)
TWO = Objective(metric="rate_per_s", direction=Direction.MAXIMIZE, limits=LIMITS, also=(Goal(metric="late_ms"),))
TASK = Task(system="toy", objective=TWO)
TRUTH = {1: (100.0, 10.0), 2: (180.0, 12.0), 4: (300.0, 30.0), 8: (330.0, 90.0)}  # batch -> rate, latency: all on the front


def study(truth: dict[int, tuple[float, float]], rounds: int = 3, noise: float = 0.01, seed: int = 0) -> list[Trial]:
    """Each batch once in the search, then all in rounds."""
    rng = np.random.default_rng(seed)
    names = sorted(Config(batch=batch).key for batch in truth)
    trials: list[Trial] = []
    for number in range(rounds + 1):
        origin = {"phase": "final", "round": number, "field": names} if number else {"by": "random"}
        for batch, (rate, late) in truth.items():
            metrics = {"rate_per_s": rate, "late_ms": late, "mem_gib": 8.0}
            noisy = {name: value * float(np.exp(noise * rng.normal())) for name, value in metrics.items() if name != "mem_gib"}
            trial = make_trial(
                len(trials), Config(batch=batch), metrics={**metrics, **noisy}, origin=origin, repeat=number, status=Status.OK
            )
            trials.append(trial)
    return trials


def summary_of(trials: Sequence[Trial], task: Task = TASK, **how: bool) -> Summary:
    return summarise(task, trials, DEFAULT, study="two", **how)


def front_of(trials: Sequence[Trial], task: Task = TASK, **how: bool) -> Front:
    found = summary_of(trials, task, **how).front
    assert found is not None
    return found


def test_every_point_has_intervals_and_a_name_that_says_what_it_is_good_at() -> None:
    front = front_of(study(TRUTH))
    assert [point.name for point in front.points] == ["best-rate-per-s", "balanced", "between-1", "default"], "nothing is less late than 1"
    assert [point.config["batch"] for point in front.points] == [8, 4, 2, 1]
    assert {point.standing for point in front.points} == {Standing.ON_FRONT}
    assert front.default == front.points[-1]
    assert "front of 4 points, the default among them" in front.headline
    for point in front.points:
        for number, reading in enumerate(point.values.values()):
            assert reading.low is not None and reading.high is not None  # noqa: PT018 - narrows both
            assert reading.low <= reading.value <= reading.high < 1.2 * reading.low
            assert reading.low <= TRUTH[int(str(point.config["batch"]))][number] * 1.03


def test_a_default_that_is_beaten_is_no_point_and_takes_no_name() -> None:
    late = {**TRUTH, 1: (100.0, 13.0)}
    exact = front_of(study(late, rounds=0, noise=0.0), exact=True)
    assert [(point.name, point.config["batch"]) for point in exact.points] == [("best-rate-per-s", 8), ("balanced", 4), ("best-late-ms", 2)]
    assert [point.name for point in exact.compared] == ["best-rate-per-s", "balanced", "best-late-ms", "default"]
    measured = front_of(study(late))
    assert [point.name for point in measured.handed_over] == ["best-rate-per-s", "balanced", "best-late-ms"]
    assert measured.default is not None
    assert measured.default.remark == "dominated by best-late-ms"
    assert "the default among them" not in measured.headline


def test_a_default_that_nothing_beats_is_the_front() -> None:
    alone = front_of(study({1: (100.0, 10.0), 2: (90.0, 12.0)}, rounds=0, noise=0.0), exact=True)
    assert [point.name for point in alone.points] == ["default"]
    assert "front of 1 point, the default;" in alone.headline
    assert summary_of(study({1: (100.0, 10.0)}, rounds=0)).front is None, "nothing was compared"


def test_a_point_that_may_be_dominated_is_said_so() -> None:
    front = front_of(study({**TRUTH, 5: (299.0, 30.1), 6: (200.0, 60.0)}))
    by_batch = {int(str(point.config["batch"])): point for point in front.points}
    assert by_batch[5].standing is Standing.UNSURE
    assert by_batch[4].name in by_batch[5].rivals
    assert by_batch[6].standing is Standing.DOMINATED
    assert by_batch[4].name in by_batch[6].rivals
    assert by_batch[6] not in front.handed_over
    assert by_batch[5] in front.handed_over


def test_statements_about_points_are_seldom_wrong() -> None:
    truth = {1: (100.0, 10.0), 2: (150.0, 14.0), 3: (149.0, 14.2), 4: (300.0, 30.0)}  # 3 is dominated by 2, by less than the noise
    wrong = 0
    for seed in range(60):
        points = front_of(study(truth, noise=0.03, seed=seed)).points
        standings = {int(str(point.config["batch"])): point.standing for point in points}
        wrong += standings[3] is Standing.ON_FRONT or standings[2] is Standing.DOMINATED or standings[4] is Standing.DOMINATED
    assert wrong <= 6, "at most one in twenty, plus chance"


def test_the_interval_of_the_hypervolume_holds_the_truth() -> None:
    exact = front_of(study(TRUTH, rounds=0, noise=0.0), exact=True)
    held = 0
    for seed in range(40):
        found = front_of(study(TRUTH, noise=0.02, seed=seed))
        assert found.volume.low is not None and found.volume.high is not None  # noqa: PT018 - narrows both
        held += found.volume.low <= exact.volume.value + 0.02 and exact.volume.value - 0.02 <= found.volume.high
    assert held >= 34
    assert exact.default_volume is not None
    assert exact.default_volume.value < exact.volume.value < 1.0
    assert exact.volume.low is None


def test_exact_answers_need_no_rounds() -> None:
    front = front_of(study({**TRUTH, 6: (200.0, 60.0)}, rounds=0, noise=0.0), exact=True)
    assert {point.config["batch"] for point in front.points} == {1, 2, 4, 8}, "what is dominated is no point of it"
    assert {point.standing for point in front.points} == {Standing.ON_FRONT}
    measured_once = front_of(study(TRUTH, rounds=0))
    assert {point.standing for point in measured_once.points} == {Standing.UNSURE}
    assert "there was no final" in measured_once.note


def test_what_failed_again_or_breaks_a_limit_is_no_point() -> None:
    trials = study(TRUTH)
    bad = [trial for trial in trials if trial.config["batch"] == 8 and trial.proposal.repeat]
    crashed = make_trial(bad[0].number, bad[0].config, origin=bad[0].proposal.origin.to_json(), repeat=1)
    front = front_of([crashed if trial is bad[0] else trial for trial in trials])
    assert {point.config["batch"] for point in front.points} == {1, 2, 4}
    tight = replace(TWO, limits=(Limit.parse("late_ms<=50"),))
    assert {point.config["batch"] for point in front_of(trials, replace(TASK, objective=tight)).points} == {1, 2, 4}


def test_limits_of_points_are_judged_by_intervals() -> None:
    """The default is 0.5 over its limit in the median of three rounds, and so is a point; another point is surely far over it."""
    memory = {1: (9.6, 8.7, 9.5), 2: (9.5, 8.6, 9.6), 4: (8.6, 9.1, 8.4), 8: (12.0, 12.1, 11.9)}
    trials = []
    for trial in study(TRUTH):
        number = trial.proposal.origin.round
        value = memory[int(str(trial.config["batch"]))][number - 1] if number else 8.0
        metrics = {**trial.measurement.metrics, "mem_gib": value}
        trials.append(replace(trial, measurement=replace(trial.measurement, metrics=metrics)))
    front = front_of(trials)
    points = {int(str(point.config["batch"])): point for point in front.points}
    assert points.keys() == {1, 2, 4}, "8 breaks its limit beyond doubt"
    assert front.default is points[1], "a default near its limit is not disqualified by chance"
    assert points[2].name == "doubtful-1"
    assert "mem_gib<=9 not told apart (9.5" in points[2].remark
    assert points[4].name == "best-rate-per-s"
    assert "mem_gib<=9 not told apart (8.6" in points[4].remark
    assert front.handed_over == (points[4], points[1])
    assert points[4].to_json()["limits"][0]["state"] == "not told apart"


def test_best_is_the_point_that_is_best_by_the_first_goal() -> None:
    summary = summary_of(study(TRUTH))
    assert summary.answer == Config(batch=8)
    other = Objective(metric="late_ms", limits=LIMITS, also=(Goal(metric="rate_per_s", direction=Direction.MAXIMIZE),))
    assert summary_of(study(TRUTH), Task(system="toy", objective=other)).answer == DEFAULT, "nothing is faster than the default"
    assert [cost.metric for cost in summary.costs] == ["late_ms"]


def test_one_goal_has_no_front() -> None:
    one = Task(system="toy", objective=TWO.only(TWO.goals[0]))
    assert summary_of(study(TRUTH), one).front is None
    assert "front" not in summary_of(study(TRUTH), one).to_json()


def test_three_goals() -> None:
    three = Objective(metric="rate_per_s", direction=Direction.MAXIMIZE, also=(Goal(metric="late_ms"), Goal(metric="mem_gib")))
    front = front_of(study(TRUTH), Task(system="toy", objective=three))
    assert len(front.points) == 4
    assert 0.0 < front.volume.value <= 1.0


def test_files_of_the_points(tmp_path: Path) -> None:
    summary = summary_of(study(TRUTH))
    assert summary.front is not None
    exported = {point.config: ({"run.sh": f"#!/bin/sh\necho {point.config['batch']}\n"}, {"N": "1"}) for point in summary.front.points}
    (tmp_path / "front" / "old").mkdir(parents=True)
    names = hand_over_front(tmp_path / "front", summary, summary.front, exported, DEFAULT)
    assert sorted(path.name for path in (tmp_path / "front").iterdir()) == sorted(names)
    assert sorted(names) == ["balanced", "best-rate-per-s", "between-1", "default"]
    folder = tmp_path / "front" / "best-rate-per-s"
    assert "echo 8" in (folder / "run.sh").read_text()
    assert "batch  1 -> 8" in (folder / "diff.txt").read_text()
    assert json.loads((folder / "point.json").read_text())["config"] == {"batch": 8}
    readme = (folder / "README.md").read_text()
    assert "maximize `rate_per_s`" in readme
    assert "| default |" in readme.splitlines()[4]


def test_the_terminal_and_the_page_show_the_front() -> None:
    trials = study({**TRUTH, 6: (200.0, 60.0)})
    summary = summary_of(trials)
    console = Console(width=200, record=True)
    console.print(render(summary))
    text = console.export_text()
    assert sum(line.startswith("│ default ") for line in text.splitlines()) == 1
    assert "between-2" in text
    assert "dominated by balanced" in text
    assert "hypervolume" in text
    html = page_of(TASK, trials, DEFAULT)
    assert "front/best-rate-per-s/" in html
    assert "front/default/" in html
    assert html.count('class="plot tradeoff"') == 1
    assert "maximize rate_per_s and minimize late_ms" in html


SERVED = {"p95_ttft_ms": 80.0, "mean_ttft_ms": 50.0}


def test_serving_reports_with_one_goal_have_the_picture_too() -> None:
    task = make_task(limits=["p95_ttft_ms<=90"])
    trials = [make_trial(n, Config(batch=n), 100.0 + 9 * n, metrics={**SERVED, "p95_ttft_ms": 70.0 + 6 * n}) for n in range(1, 6)]
    across, up = axes(task.objective, trials) or (None, None)
    assert (across and across.metric, up and up.metric) == ("p95_ttft_ms", "output_throughput")
    html = page_of(task, trials, DEFAULT)
    assert "Throughput and latency" in html
    picture = html[html.index('class="plot tradeoff"') :].partition("</svg>")[0]
    assert picture.count("<circle") == len(trials) + 2, "and rings around the default and the best"
    assert picture.count("dot broken") == 2
    assert "line.limit" not in picture
    assert 'class="limit"' in picture


@pytest.mark.parametrize("metrics", [{}, {"mean_ttft_ms": 50.0}])
def test_no_picture_without_a_pair_of_metrics(metrics: dict[str, float]) -> None:
    task = make_task(metric="wall_s", direction=Direction.MINIMIZE)
    trials = [make_trial(n, Config(batch=n), 9.0 + n, metric="wall_s", metrics=metrics) for n in range(3)]
    assert axes(task.objective, trials) is None
    assert 'id="tradeoff"' not in page_of(task, trials, DEFAULT)


def test_predictions_and_lone_trials_are_not_drawn() -> None:
    task = make_task()
    one = make_trial(0, DEFAULT, 5.0, metrics=SERVED)
    guess = make_trial(1, Config(batch=2), 50.0, metrics=SERVED, fidelity=Fidelity.PREDICTED)
    across, up = axes(task.objective, [one]) or (None, None)
    assert across is not None and up is not None  # noqa: PT018 - narrows both
    assert tradeoff(task.objective, [one, guess], DEFAULT, across, up) is None

from __future__ import annotations

from dataclasses import replace

import pytest
from report_studies import DEFAULT, make_task, make_trial, simulated

from autoscout.analysis.curves import busy_s, curve, ordered
from autoscout.core.task import Direction
from autoscout.core.trial import Fidelity


def test_best_so_far_follows_the_direction_and_the_limits() -> None:
    task = make_task(limits=["p95_ttft_ms<=100"])
    fine, late = {"p95_ttft_ms": 50.0}, {"p95_ttft_ms": 500.0}
    trials = [
        make_trial(0, DEFAULT, 10.0, metrics=fine),
        make_trial(1, DEFAULT.extend(noise=1)),
        make_trial(2, DEFAULT.extend(noise=2), 99.0, metrics=late),
        make_trial(4, DEFAULT.extend(noise=4), 8.0, metrics=fine),
        make_trial(3, DEFAULT.extend(noise=5), 12.0, metrics=fine),
    ]
    points = curve(task, trials)
    assert [point.number for point in points] == [0, 1, 2, 3, 4]
    assert [point.best for point in points] == [10.0, 10.0, 10.0, 12.0, 12.0]
    assert [point.improved for point in points] == [True, False, False, True, False]
    assert [point.allowed for point in points] == [True, False, False, True, True]
    assert [point.spent_s for point in points] == [8.0, 16.0, 24.0, 32.0, 40.0]
    down = curve(make_task(direction=Direction.MINIMIZE), trials)
    assert [point.best for point in down] == [10.0, 10.0, 10.0, 10.0, 8.0]


def test_the_final_sets_no_records() -> None:
    trials = [make_trial(0, DEFAULT, 10.0), make_trial(1, DEFAULT, 50.0, origin={"phase": "final", "round": 1}, repeat=1)]
    assert [point.best for point in curve(make_task(), trials)] == [10.0, 10.0]
    assert curve(make_task(), trials)[1].phase == "final"


def test_each_fidelity_has_its_own_curve() -> None:
    trials = [simulated(0, DEFAULT, 500.0), make_trial(1, DEFAULT, 10.0), simulated(2, DEFAULT, 600.0), make_trial(3, DEFAULT, 11.0)]
    assert [point.best for point in curve(make_task(), trials)] == [500.0, 10.0, 600.0, 11.0]


def test_predictions_are_left_out() -> None:
    assert ordered([make_trial(0, DEFAULT, 1.0, fidelity=Fidelity.PREDICTED)]) == []


def test_pauses_do_not_count_and_parallel_trials_count_once() -> None:
    base = make_trial(0, DEFAULT, 1.0)
    spans = [(100.0, 110.0), (105.0, 120.0), (5000.0, 5030.0)]
    trials = [replace(base, number=i, started_s=start, finished_s=end) for i, (start, end) in enumerate(spans)]
    assert busy_s(trials) == pytest.approx(50.0)
    assert [point.elapsed_s for point in curve(make_task(), trials)] == pytest.approx([10.0, 20.0, 50.0])
    assert busy_s([]) == 0.0

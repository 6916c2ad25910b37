"""Timelines, slices and maps, and how they thin out what is too much to draw."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from report_studies import DEFAULT, Note, make_study, make_task, make_trial, page_of, result_of

from autoscout.analysis.predicted import PredictedTrial, Predictions
from autoscout.common.draw import thin
from autoscout.core.trial import Status, Trial
from autoscout.report.meanings import axis_name
from autoscout.report.sections.header import intervals
from autoscout.report.sections.predicted import predicted_plot
from autoscout.report.sections.slices import contour_plot, slice_plot
from autoscout.report.sections.timeline import MOST_BARS, timeline


def test_thinning_keeps_what_must_be_kept() -> None:
    assert thin(5, 10) == [0, 1, 2, 3, 4]
    chosen = thin(100_000, 1_000, [77, 99_999])
    assert {77, 99_999} <= set(chosen)
    assert 1_000 <= len(chosen) <= 1_002


def at(trial: Trial, begun_s: float, ended_s: float, worker: str = "a:1:x") -> Trial:
    return replace(trial, started_s=begun_s, finished_s=ended_s, worker=worker)


def test_a_timeline_has_a_lane_for_each_trial_that_runs_at_the_same_time() -> None:
    trials = [at(make_trial(0, DEFAULT, 10.0), 100, 110), at(make_trial(1, DEFAULT.extend(noise=1), 11.0), 102, 112)]
    trials.append(at(make_trial(2, DEFAULT.extend(noise=2), status=Status.CRASHED), 112, 115))
    trials.append(at(make_trial(3, DEFAULT.extend(noise=4), 11.0), 10_000, 10_005, "b:2:x"))  # after a long pause
    drawn = timeline(make_task(), trials)
    assert drawn is not None
    assert drawn.count('class="run ') == 4
    assert drawn.count("run failed") == 1
    assert len(set(re.findall(r'<text[^>]*y="([\d.]+)"[^>]*>[ab]:', drawn))) == 3, "two lanes of one worker, one of the other"
    last = re.findall(r'<rect x="([\d.]+)"[^>]*data-n="3"', drawn)
    assert float(last[0]) < 880, "the pause is left out"


def test_a_long_timeline_counts_instead() -> None:
    trials = [at(make_trial(i, DEFAULT.extend(noise=i), 10.0), 100 + i, 101 + i) for i in range(MOST_BARS + 1)]
    drawn = timeline(make_task(), trials)
    assert drawn is not None
    assert drawn.count('class="run ') <= 160
    assert timeline(make_task(), []) is None


@pytest.mark.parametrize("knob", ["threads", "flash", "kv"])
def test_a_slice_shows_every_trial_that_ran(knob: str) -> None:
    trials = make_study(40)
    drawn = slice_plot(make_task(), trials, knob, DEFAULT)
    assert drawn is not None
    assert drawn.count("<circle") == sum(trial.ok for trial in trials)
    assert slice_plot(make_task(), trials, "nothing", DEFAULT) is None


def test_a_map_needs_enough_configurations_and_two_knobs_that_varied() -> None:
    trials = make_study(60)
    drawn = contour_plot(make_task(), trials, "threads", "flash", DEFAULT)
    assert drawn is not None
    cells = [float(value) for value in re.findall(r"--standing:([\d.]+)", drawn)]
    assert min(cells) == 0.0
    assert max(cells) == 1.0
    assert contour_plot(make_task(), trials[:5], "threads", "flash", DEFAULT) is None


def test_predicted_against_measured() -> None:
    rows = tuple(PredictedTrial(trial=i, name="x", predicted=10.0 + i, measured=11.0 + i) for i in range(5))
    drawn = predicted_plot(Predictions(simulator="s", metric="m", rows=rows))
    assert drawn is not None
    assert drawn.count("<circle") == 5
    assert predicted_plot(Predictions(simulator="s", metric="m", rows=rows[:1])) is None


def test_axes_name_units_where_names_do_not_end_with_them() -> None:
    knobs = [Note("batch", "tokens"), Note("size_mb", "mb"), *(Note(name) for name in ("threads", "flash", "kv", "noise"))]
    text = page_of(make_task(), make_study(), knobs=knobs)
    assert ">output_throughput (tokens/s)<" in text
    assert ">batch (tokens)<" in text
    assert axis_name("size_mb", "mb", log=True) == "size_mb (log)"
    assert axis_name("p95_ttft_ms") == "p95_ttft_ms"


def test_gains_of_one_picture_are_written_alike() -> None:
    summary = result_of(make_task(), make_study(finalists=3)).summary
    gains = [finalist.gain.ratio or 0.0 for finalist in summary.finalists]
    assert max(gains) > 2.0
    low = replace(summary.finalists[-1], gain=replace(summary.finalists[-1].gain, ratio=1.25))
    drawing = str(intervals([*summary.finalists[:-1], low]))
    assert "1.25x" in drawing
    assert "%<" not in drawing
    assert "+25.0 %" in str(intervals([low]))

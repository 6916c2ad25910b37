"""Predicted beside measured: figures, words and the part of the page."""

from __future__ import annotations

import pytest
from report_studies import make_task, result_of

from autoscout.analysis.predicted import PredictedTrial, Predictions
from autoscout.report.sections.predicted import SHOWN, predicted_section
from autoscout.report.view import StudyView


def predictions(*pairs: tuple[float, float | None], pictures: tuple[str, ...] = ()) -> Predictions:
    rows = [
        PredictedTrial(trial=number, name=f"<c{number}>", predicted=predicted, measured=measured, status="ok" if measured else "oom_start")
        for number, (predicted, measured) in enumerate(pairs, 1)
    ]
    return Predictions(simulator="training", metric="step_s", rows=tuple(rows), pictures=pictures)


def test_error_and_rank_count_what_ran() -> None:
    found = predictions((1.1, 1.0), (1.8, 2.0), (3.0, 3.0), (0.5, None))
    assert found.mean_error == pytest.approx(0.2 / 3)
    assert found.rank == pytest.approx(1.0)
    assert found.sentence == "training predicted 3 measured configurations with a mean error of 7%, rank agreement 1.00; 1 failed"
    assert [row["error"] for row in found.to_json()["rows"]] == [pytest.approx(0.1), pytest.approx(-0.1), 0.0, None]


def test_nothing_measured_is_said_so() -> None:
    found = predictions((1.0, None))
    assert found.mean_error is None
    assert found.rank is None
    assert "no measured configuration" in found.sentence


def test_the_section_escapes_names_keeps_pictures_and_is_cut() -> None:
    result = result_of(make_task(), [])
    shown = predictions(*[(1.0, 2.0)] * (SHOWN + 5), (1.0, None), pictures=("<svg>bar</svg>",))
    page = predicted_section(StudyView(result=result, predictions=shown))
    assert "&lt;c66&gt;" in page
    assert "<c66>" not in page
    assert "<svg>bar</svg>" in page
    assert "-50.0 %" in page
    assert "oom_start" in page
    assert f"the last {SHOWN} of {SHOWN + 6}" in page
    assert predicted_section(StudyView(result=result)) == ""

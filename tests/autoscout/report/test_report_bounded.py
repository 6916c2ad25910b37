"""Trials that were stopped early, and what trials spent their seconds on, as people see them."""

from __future__ import annotations

import csv
import io

from report_studies import DEFAULT, METRIC, make_task, make_trial, result_of
from rich.console import Console

from autoscout.analysis.summary import summarise
from autoscout.core.clock import VirtualClock
from autoscout.core.trial import Status
from autoscout.report.progress import ProgressDisplay
from autoscout.report.sections.convergence import convergence_plot
from autoscout.report.sections.header import facts
from autoscout.report.sections.trials import trials_section
from autoscout.report.tables import summary_csv
from autoscout.report.text import spent_line
from autoscout.report.view import StudyView

SPENT = {"start_s": 80.0, "warm_up_s": 4.0, "measure_s": 16.0}
BOUNDED = make_trial(
    2,
    DEFAULT.extend(noise=2),
    70.0,
    status=Status.BOUNDED,
    bounds={METRIC: 75.0},
    conditions=SPENT,
    reason=f"{METRIC} is at most 75, and 100 is to beat",
)
TRIALS = [make_trial(0, DEFAULT, 100.0, conditions=SPENT), make_trial(1, DEFAULT.extend(noise=1), 120.0), BOUNDED]


def test_a_summary_says_where_the_time_went() -> None:
    summary = summarise(make_task(), TRIALS, DEFAULT)
    assert summary.spent.parts == {"start_s": 160.0, "warm_up_s": 8.0, "measure_s": 32.0}
    assert summary.spent.describe == "80 % starting, 4 % warming up, 16 % measuring; 1 trial stopped early"
    assert summary.failures == ()
    assert summary.best is not None
    assert summary.best.value == 120.0
    assert summary.spent.describe in str(spent_line(summary))
    assert summary.to_json()["spent"]["bounded"] == 1
    page = str(facts(summary))
    assert "stopped early" in page
    assert "80 % starting" in page


def test_a_study_whose_trials_say_nothing_has_no_line_for_it() -> None:
    summary = summarise(make_task(), TRIALS[1:2], DEFAULT)
    assert summary.spent.describe == ""
    assert "stopped early" not in str(facts(summary))


def test_tables_show_the_bound_and_not_the_numbers_of_a_part() -> None:
    rows = list(csv.DictReader(io.StringIO(summary_csv(make_task(), TRIALS))))
    assert [row["status"] for row in rows] == ["ok", "ok", "bounded"]
    assert [row[f"metric.{METRIC}"] for row in rows] == ["100.0", "120.0", ""]
    assert [row[f"bound.{METRIC}"] for row in rows] == ["", "", "75.0"]
    assert [row["start_s"] for row in rows] == ["80.0", "", "80.0"]
    page = str(trials_section(StudyView(result=result_of(make_task(), TRIALS))))
    assert "at best 75.00" in page
    assert "70.00" not in page
    assert "starting 1 m 20 s" in page


def test_pictures_tell_it_from_a_failure() -> None:
    summary = summarise(make_task(), TRIALS, DEFAULT)
    picture = str(convergence_plot(make_task(), summary.points, 100.0))
    assert "dot bounded" in picture
    assert "dot failed" not in picture
    assert ">stopped<" in picture


def test_a_line_of_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=200)
    with ProgressDisplay(make_task(), DEFAULT, console=console, clock=VirtualClock(), live=False) as progress:
        progress.phase("search")
        for trial in TRIALS:
            progress.finished(trial)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert "bounded: " in lines[-1]
    assert "at most 75, and 100 is to beat" in lines[-1]
    assert "(starting 1 m 20 s, warming up 4.0 s, measuring 16 s)" in lines[-1]
    assert "best 120" in lines[-1]

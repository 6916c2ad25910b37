from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from report_studies import DEFAULT, KNOBS, METRIC, make_study, make_task, make_trial, result_of
from rich.console import Console

from autoscout.analysis.contributions import Contribution, contributions, duels, effects
from autoscout.analysis.labels import differences
from autoscout.analysis.summary import summarise
from autoscout.common.text import show_percent
from autoscout.core.config import Config
from autoscout.core.origin import By
from autoscout.core.trial import Status, Trial
from autoscout.report.handover import diff_text, hand_over
from autoscout.report.metrics import show_change
from autoscout.report.page import page
from autoscout.report.tables import report_json
from autoscout.report.text import render
from autoscout.report.view import StudyView

START = Config(a=0, b=0, c=0)
BOTH, ONE = Config(a=1, b=1, c=0), Config(a=1, b=0, c=0)


def heat(values: dict[Config, list[float | None]], first: int = 0, contenders: str = "final", phase: str = "final") -> list[Trial]:
    trials = []
    for config, found in values.items():
        for number, value in enumerate(found, start=1):
            origin = {"by": By.SIMPLER, "phase": phase, "round": number, "field": [contenders]}
            trials.append(make_trial(first + len(trials), config, value, origin=origin, repeat=number))
    return trials


def test_a_duel_is_any_pair_of_which_one_has_some_of_the_others_changes() -> None:
    found = duels(METRIC, heat({BOTH: [20.0, 22.0, 21.0], ONE: [10.0, 11.0, 10.4], Config(a=0, b=0, c=1): [9.0, 9.0, 9.0]}), START)
    assert [(duel.incumbent, duel.candidate, duel.knobs) for duel in found] == [(BOTH, ONE, ("b",))]
    assert found[0].pairs == ((20.0, 10.0), (22.0, 11.0), (21.0, 10.4))
    assert found[0].noise is not None
    assert found[0].noise.freedom == 4


def test_contributions_are_measured_in_a_duel_over_one_knob_else_unknown() -> None:
    trials = heat({BOTH: [20.0, 22.0, 21.0], ONE: [10.0, 11.0, 10.4]})
    a, b = contributions(make_task(), trials, START, BOTH)
    assert a == Contribution(knob="a")
    assert (str(a), a.words) == ("unknown", "")
    assert (b.knob, b.source) == ("b", "measured")
    assert b.ratio == pytest.approx(2.0, rel=0.02)
    assert b.low is not None
    assert b.high is not None
    assert b.low < b.ratio < b.high
    assert str(b).endswith("measured")


def test_the_configuration_itself_counts_before_others() -> None:
    other = heat({Config(a=1, b=1, c=1): [30.0, 30.0, 30.0], Config(a=1, b=0, c=1): [10.0, 10.0, 10.0]}, first=50, contenders="other")
    trials = [*heat({BOTH: [20.0, 22.0, 21.0], ONE: [10.0, 11.0, 10.4]}), *other]
    assert contributions(make_task(), trials, START, BOTH)[1].ratio == pytest.approx(2.0, rel=0.02)


def test_the_rounds_of_the_final_measure_contributions_too() -> None:
    values = {START: [5.0, 5.5, 5.2], BOTH: [20.0, 22.0, 21.0], ONE: [10.0, 11.0, 10.4]}
    a, b = contributions(make_task(), heat(values), START, BOTH)
    assert (b.knob, b.source) == ("b", "measured")
    assert b.ratio == pytest.approx(2.0, rel=0.02)
    assert a.source == "unknown", "a alone was measured, but not what the answer is without it"


def test_the_longer_heat_of_the_same_pair_counts() -> None:
    short = heat({BOTH: [30.0], ONE: [10.0]}, first=50, contenders="cut short")
    trials = [*heat({BOTH: [20.0, 22.0, 21.0], ONE: [10.0, 11.0, 10.4]}), *short]
    assert contributions(make_task(), trials, START, BOTH)[1].ratio == pytest.approx(2.0, rel=0.02)


def test_another_value_of_the_knob_measures_nothing_about_this_one() -> None:
    trials = heat({Config(a=1, b=2, c=0): [30.0, 30.0, 30.0], ONE: [10.0, 10.0, 10.0]})
    assert [one.source for one in contributions(make_task(), trials, START, BOTH)] == ["unknown", "unknown"]


def test_a_single_change_contributes_the_gain_itself() -> None:
    trials = heat({START: [5.0, 5.5, 5.2, 5.1], ONE: [10.0, 11.0, 10.4, 10.1], Config(a=0, b=0, c=1): [5.0, 5.1, 5.2, 5.3]})
    summary = summarise(make_task(), trials, START)
    assert summary.best is not None
    assert summary.best.config == ONE
    (only,) = contributions(make_task(), trials, START, ONE, gain=summary.gain)
    assert (only.ratio, only.low, only.high, only.source) == (summary.gain.ratio, summary.gain.low, summary.gain.high, "measured")


def test_exact_answers_need_no_duel() -> None:
    trials = [make_trial(0, START, 5.0), make_trial(1, BOTH, 20.0), make_trial(2, ONE, 10.0)]
    found = contributions(make_task(), trials, START, BOTH, exact=True)
    assert [(one.knob, one.ratio, one.source) for one in found] == [("a", None, "unknown"), ("b", pytest.approx(2.0), "measured")]


def test_a_models_guess_is_no_contribution() -> None:
    trials = make_study(60, noise=0.01)
    result = result_of(make_task(), trials, knobs=KNOBS)
    best = result.best_config
    assert best is not None
    changed = {change.knob for change in differences(DEFAULT, best)}
    assert len(changed) > 1
    assert {one.knob: one.source for one in result.contributions} == dict.fromkeys(changed, "unknown")
    assert "contribut" not in diff_text(result.summary.changes, result.contributions)
    assert "contributes" not in page(StudyView(result=result)), "a column without numbers is left out"
    expected = effects(make_task(), trials, DEFAULT, best)
    assert max(expected, key=lambda knob: expected[knob]) == "threads", "the order of what is tried rests on it still"
    assert effects(make_task(), trials[:5], DEFAULT, best) == {}, "too few for a model"


def test_a_knob_and_the_goal_have_one_number_on_the_page() -> None:
    result = result_of(make_task(), make_study(40, noise=0.05), knobs=KNOBS)
    knob = result.summary.changes[0].knob
    vars(result)["contributions"] = [Contribution(knob=knob, ratio=1.5, low=1.4, high=1.6, source="measured")]
    text = page(StudyView(result=result))
    assert result.ablation is not None
    assert result.ablation.steps
    assert text.count("1.500x [1.400, 1.600] measured") == 2, "in the table of knobs and on the way from the default to the best"
    assert not any(f">{show_percent(step.gain)}<" in text for step in result.ablation.steps), "no second number for a step"
    assert show_change(result.summary, METRIC) == show_percent(result.summary.gain.ratio), "as in the headline"


def test_contributions_are_shown_wherever_the_changes_are(tmp_path: Path) -> None:
    trials = make_study(40)
    result = result_of(make_task(), trials, knobs=KNOBS)
    summary = result.summary
    worth = [Contribution(knob="threads", ratio=1.5, low=1.4, high=1.6, source="measured")]
    vars(result)["contributions"] = worth
    words = "1.500x [1.400, 1.600] measured"
    assert f"contributes {words}; threads that compute" in diff_text(summary.changes, worth)
    assert words in page(StudyView(result=result))
    assert report_json(result)["contributions"] == [worth[0].to_json()]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(summary, contributions=worth))
    assert words in console.export_text()
    hand_over(tmp_path / "best", summary, {}, DEFAULT, knobs=KNOBS, contributions=worth)
    for name in ("diff.txt", "README.md"):
        assert words in (tmp_path / "best" / name).read_text()
    assert json.loads((tmp_path / "best" / "gain.json").read_text())["contributions"] == [worth[0].to_json()]


def test_failed_trials_of_a_heat_do_not_break_it() -> None:
    trials = heat({BOTH: [None, None, None], ONE: [None, None, None]})
    assert all(trial.measurement.status is Status.CRASHED for trial in trials)
    assert [duel.pairs for duel in duels(METRIC, trials, START)] == [()]
    assert [one.source for one in contributions(make_task(), trials, START, BOTH)] == ["unknown", "unknown"]

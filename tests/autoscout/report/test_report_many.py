"""Very many trials: what a report draws, learns from and compares is bounded, and short ways lead to the same words."""

from __future__ import annotations

import random

import pytest
from report_studies import DEFAULT, KNOBS, make_task, make_trial, result_of

from autoscout.analysis import ablation, curves, importance, verdict
from autoscout.analysis.curves import curve, shown_points
from autoscout.analysis.importance import varied_knobs
from autoscout.analysis.labels import differences, namer
from autoscout.analysis.verdict import decide
from autoscout.common import forest
from autoscout.core.config import Config
from autoscout.core.trial import Trial
from autoscout.report.page import page
from autoscout.report.sections import convergence, trials
from autoscout.report.sections.convergence import dotted
from autoscout.report.sections.coordinates import crossings
from autoscout.report.sections.trials import listed
from autoscout.report.view import StudyView


def many(count: int) -> list[Trial]:
    rng = random.Random(1)
    values = [
        DEFAULT,
        *(DEFAULT.extend(threads=rng.choice([1, 2, 4, 8]), batch=64 * rng.randrange(1, 9), noise=i) for i in range(count - 1)),
    ]
    return [make_trial(number, config, rng.uniform(10.0, 20.0)) for number, config in enumerate(values)]


def test_a_page_knows_only_the_trials_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "MOST_ROWS", 30)
    monkeypatch.setattr(convergence, "MOST_DOTS", 25)
    view = StudyView(result=result_of(make_task(), many(400), knobs=KNOBS), most_lines=20)
    assert listed(view) == range(370, 400), "the newest"
    assert len(dotted(view.summary.points)) < 50
    text = page(view)
    assert text.count('"title":') == len({*crossings(view), *dotted(view.summary.points), *listed(view)})
    assert "The newest 30 of 400; all are in summary.csv." in text


def test_a_document_tells_an_even_choice_of_the_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MOST_POINTS", 50)
    result = result_of(make_task(), many(400), knobs=KNOBS)
    numbers = {point["number"] for point in result.summary.to_json()["points"]}
    assert len(numbers) < 80
    assert {point.number for point in result.summary.points if point.improved} <= numbers
    few = curve(make_task(), many(40))
    assert shown_points(few) == list(range(40))


def test_the_models_of_a_report_learn_from_some_configurations(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    make = forest.Forest.__init__

    def watched(self: forest.Forest, rows: forest.Matrix, *others: object, **more: object) -> None:
        sizes.append(len(rows))
        make(self, rows, *others, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(forest.Forest, "__init__", watched)
    for module, name in ((importance, "_MAX_CONFIGS"), (ablation, "_MOST_FIT")):
        monkeypatch.setattr(module, name, 60)
    result = result_of(make_task(), many(300), knobs=KNOBS)
    assert result.importance.is_known
    assert result.ablation is not None
    assert result.ablation.steps[-1].value == result.summary.best.value if result.summary.best else False
    assert max(sizes) <= 62, "the default and the best are always among them"


def test_of_very_many_configurations_the_foremost_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    task, some = make_task(limits=["output_throughput<=18"]), many(200)
    whole = decide(task, some, DEFAULT)
    monkeypatch.setattr(verdict, "MOST_CONTENDERS", 20)
    few = decide(task, some, DEFAULT)
    assert len(whole.finalists) == 199
    assert len(few.finalists) == 20
    assert (few.verdict, few.answer, few.finalists[:5]) == (whole.verdict, whole.answer, whole.finalists[:5])


def test_names_say_what_differs() -> None:
    others = [Config(threads=4), DEFAULT.extend(threads=4.0), DEFAULT.extend(flash=True, tile=3), DEFAULT.extend(zeta="a\nb", alpha=None)]
    name_of = namer(DEFAULT, KNOBS)
    for other in others:
        changes = differences(DEFAULT, other, KNOBS)
        words = [f"{one.knob}={one.after}" for one in changes if not one.best_absent] or [f"without {one.knob}" for one in changes]
        assert name_of(other) == ", ".join(words)


def test_knobs_vary_by_value_type_and_absence() -> None:
    configs = [Config(a=1, b=1, c=1), Config(a=1, b=1.0), Config(a=1, b=1, c=1)]
    assert varied_knobs([make_trial(number, config, 1.0) for number, config in enumerate(configs)], (), None) == ["b", "c"]

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from report_studies import METRIC, make_task, make_trial, result_of
from rich.console import Console

from autoscout.analysis.price import Cost, costs, costs_text, mark
from autoscout.analysis.result import StudyResult
from autoscout.analysis.summary import Summary, summarise
from autoscout.analysis.verdict import Verdict
from autoscout.core.config import Config
from autoscout.core.task import Direction, Guard, Limit, Objective
from autoscout.report.handover import gain_facts, hand_over
from autoscout.report.page import page
from autoscout.report.tables import report_json
from autoscout.report.text import render
from autoscout.report.view import StudyView

DEFAULT, FAST = Config(threads=4), Config(threads=8)
GOAL = Objective(metric=METRIC, direction=Direction.MAXIMIZE)


def final(rounds: int = 4, **changes: tuple[float, float]) -> list[object]:
    """A study whose best doubles the throughput; other metrics as (default, best)."""
    trials = []
    for number in range(1, rounds + 1):
        for index, (config, value) in enumerate([(DEFAULT, 100.0 + number), (FAST, 200.0 + 3 * number)]):
            metrics = {name: pair[index] for name, pair in changes.items()}
            origin = {"phase": "final", "round": number}
            trials.append(make_trial(len(trials), config, value, origin=origin, repeat=number, metrics=metrics))
    return trials


def result(limits: tuple[str, ...] = (), guards: tuple[str, ...] = (), **changes: tuple[float, float]) -> StudyResult:
    task = make_task(limits=limits)
    task = replace(task, objective=replace(task.objective, guards=tuple(map(Guard.parse, guards))))
    return result_of(task, final(**changes), DEFAULT, study="priced")


def study(limits: tuple[str, ...] = (), guards: tuple[str, ...] = (), **changes: tuple[float, float]) -> Summary:
    return result(limits, guards, **changes).summary


def test_what_got_worse_is_named_with_the_worst_first() -> None:
    default = {METRIC: 100.0, "p95_tpot_ms": 1.36, "peak_mem_gib": 10.0, "p95_ttft_ms": 50.0, "requests": 10.0, "request_throughput": 5.0}
    best = {METRIC: 200.0, "p95_tpot_ms": 7.9, "peak_mem_gib": 14.0, "p95_ttft_ms": 59.0, "requests": 90.0, "request_throughput": 2.0}
    found = costs(GOAL, default, best)
    assert costs_text(found) == "costs: p95_tpot_ms 5.8x, request_throughput 2.5x, peak_mem_gib 1.4x"


def test_one_statistic_stands_for_all_of_a_metric() -> None:
    names = ("median_ttft_ms", "p50_ttft_ms", "mean_itl_ms", "p95_ttft_ms", "wait_ms", "p99_itl_ms")
    found = [Cost(metric=name, default=1.0, best=2.0, times=2.0) for name in names]
    assert costs_text(found) == "costs: median_ttft_ms 2.0x, mean_itl_ms 2.0x, wait_ms 2.0x"


def test_limits_and_guards_give_a_direction_where_the_name_gives_none() -> None:
    goal = Objective(metric="score", direction=Direction.MAXIMIZE, limits=(Limit.parse("hits>=1"),), guards=(Guard.parse("misses<=2x"),))
    found = costs(goal, {"score": 9.0, "hits": 10.0, "misses": 1.0, "other": 1.0}, {"score": 6.0, "hits": 5.0, "misses": 1.9, "other": 9.0})
    assert [(cost.metric, cost.times) for cost in found] == [("hits", 2.0), ("misses", 1.9), ("score", 1.5)]


@pytest.mark.parametrize(
    ("default", "best", "text"),
    [(0.0, 5.0, "wait_ms 0 to 5.000"), (1.0, 250.0, "wait_ms 250x"), (-1.0, 5.0, ""), (5.0, 0.0, ""), (0.0, 0.0, ""), (10.0, 12.0, "")],
)
def test_ratios_at_their_edges(default: float, best: float, text: str) -> None:
    assert ", ".join(map(str, costs(GOAL, {"wait_ms": default}, {"wait_ms": best}))) == text


def test_a_long_list_is_cut() -> None:
    many = [Cost(metric=f"m{number}_ms", default=1.0, best=2.0, times=2.0) for number in range(9)]
    assert costs_text(many).endswith("m5_ms 2.0x and 3 more")


def test_marks() -> None:
    assert mark("wait_ms", 10.0, 9.0, GOAL) == "better"
    assert mark("wait_ms", 10.0, 11.0, GOAL) == "worse"
    assert mark(METRIC, 10.0, 11.0, GOAL) == "better"
    assert mark("wait_ms", 10.0, 10.1, GOAL) == "", "within what is mostly noise"
    assert mark("requests", 10.0, 99.0, GOAL) == "", "nobody knows which way is better"
    assert mark("wait_ms", None, 11.0, GOAL) == ""


def test_the_price_is_told_wherever_the_gain_is(tmp_path: Path) -> None:
    found = result(p95_tpot_ms=(1.36, 7.9), p95_ttft_ms=(50.0, 40.0))
    summary = found.summary
    line = "costs: p95_tpot_ms 5.8x"
    assert summary.price == line
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render(summary))
    text = console.export_text()
    assert line in text
    assert "worse" in text
    assert "better" in text
    expected = [{"metric": "p95_tpot_ms", "default": 1.36, "best": 7.9, "times": pytest.approx(5.8, abs=0.01)}]
    assert gain_facts(summary)["costs"] == expected
    assert report_json(found)["costs"] == expected
    html = page(StudyView(result=found))
    assert f'<p class="price worse">{line}</p>' in html
    assert '<span class="worse">+480.9 % worse</span>' in html
    assert '<span class="better">-20.0 % better</span>' in html
    hand_over(tmp_path / "best", summary, {}, DEFAULT)
    assert f"**{line}**" in (tmp_path / "best" / "README.md").read_text()
    assert json.loads((tmp_path / "best" / "gain.json").read_text())["costs"] == expected


def test_no_gain_costs_nothing() -> None:
    task = make_task()
    summary = summarise(task, final(rounds=2, p95_tpot_ms=(1.0, 9.0)), DEFAULT)
    assert summary.verdict is Verdict.UNDECIDED
    assert summary.costs == ()


def test_a_guard_is_judged_against_the_default_of_the_final() -> None:
    broken = study(guards=("p95_tpot_ms<=1.2x",), p95_tpot_ms=(1.0, 1.3))
    assert broken.verdict is Verdict.NO_GAIN
    assert broken.answer == DEFAULT
    found = result(guards=("p95_tpot_ms<=1.4x",), p95_tpot_ms=(1.0, 1.3))
    kept = found.summary
    assert kept.verdict is Verdict.GAIN
    assert [str(check) for check in kept.best.limits] == ["p95_tpot_ms<=1.4 kept (1.300)"]
    assert "p95_tpot_ms&lt;=1.4x (1.400)" in page(StudyView(result=found))


def test_a_terminal_of_usual_width_shows_all_figures_next_to_a_guard() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(render(study(guards=("loss_after<=1.02x",), loss_after=(5.128991683323198, 5.12), free_mem_gib=(11.4, 11.3))))
    text = console.file.getvalue()
    assert "limit loss_after<=1.02x " in text
    assert "102.5 ± 1.3 % │ 207.5 ± 1.9 % │ +102.4 % better" in text
    assert "…" not in text


def test_a_guard_without_a_default_to_compare_with_is_a_warning() -> None:
    summary = study(guards=("p95_tpot_ms<=1.4x",))
    assert any("p95_tpot_ms<=1.4x" in warning for warning in summary.warnings)

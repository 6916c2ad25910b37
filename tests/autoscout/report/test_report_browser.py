"""The report in a real browser, from a phone to the widest screen: nothing is cut off."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_studies import DEFAULT, METRIC, Note, make_study, make_task, page_of

from _page_checks import CUT
from autoscout.core.config import Config
from autoscout.core.trial import Trial

sys.path.insert(0, str(Path(__file__).parents[3]))

from benchmarks._browser import browser, missing

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "a browser is here")]

WIDTHS = (400, 1400, 2560)
NAMES = {
    "threads": "max_num_batched_tokens",
    "batch": "long_prefill_token_threshold",
    "flash": "enable_flash_attention_in_prefill",
    "kv": "kv_cache_type_of_keys_and_values",
    "noise": "compilation_config_cudagraph_mode",
}
UNITS = {"long_prefill_token_threshold": "tokens"}
OVERLAPS = """() => {
  const boxes = (words) => [...document.querySelectorAll(words)].map((one) => one.getBoundingClientRect());
  const lines = boxes("svg.intervals line.default");
  const crosses = (text, line) => line.top < text.bottom && text.top < line.bottom && text.left < line.left && line.left < text.right;
  return boxes("svg.intervals text.range-label").filter((text) => lines.some((line) => crosses(text, line))).length;
}"""


def renamed(config: Config) -> Config:
    return Config({NAMES.get(name, name): value for name, value in config.items()})


def wide_study() -> str:
    """A study whose names and numbers are as long as those of real engines."""
    trials: list[Trial] = []
    for trial in make_study(60, finalists=3):
        metrics = dict(trial.measurement.metrics)
        if METRIC in metrics:
            metrics = {METRIC: metrics[METRIC] * 12345.678, **{f"{part}_wait_between_tokens_ms": 1234.5678 for part in ("p95", "median")}}
            metrics["p95_ttft_ms"] = 80.0 + trial.number % 7
        proposal = replace(trial.proposal, config=renamed(trial.proposal.config))
        trials.append(replace(trial, proposal=proposal, measurement=replace(trial.measurement, metrics=metrics)))
    knobs = [Note(name, UNITS.get(name, ""), "what this setting does, in a sentence of ordinary length") for name in NAMES.values()]
    return page_of(make_task(limits=["p95_ttft_ms<=90"]), trials, renamed(DEFAULT), knobs=knobs)


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("wide") / "report.html"
    path.write_text(wide_study(), encoding="utf-8")
    return path


@pytest.fixture
def opened(chrome: Any, report: Path) -> Iterator[Any]:
    page = chrome.new_page(viewport={"width": 1400, "height": 900})
    page.goto(report.as_uri())
    yield page
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_off(opened: Any, width: int) -> None:
    opened.set_viewport_size({"width": width, "height": 900})
    assert opened.evaluate(CUT) == []
    assert opened.evaluate(OVERLAPS) == 0, "names of finalists do not lie on the line of the default"


def test_any_two_metrics_are_set_against_each_other(opened: Any) -> None:
    plot = opened.locator("svg.tradeoff")
    before = plot.inner_html()
    assert "output_throughput (tokens/s)" in before
    opened.select_option("select[data-axis=up]", label="median_wait_between_tokens_ms")
    opened.select_option("select[data-axis=across]", label=METRIC)
    names = plot.locator("text.axis-name").all_text_contents()
    assert names == ["output_throughput (tokens/s)", "median_wait_between_tokens_ms"]
    assert plot.locator("circle.dot").count() > 40, "every trial that ran"
    assert plot.locator("circle.ring").count() == 2, "default and best"
    assert plot.locator("path.best").count() == 1, "both have a better direction"
    assert opened.evaluate(CUT) == []
    opened.select_option("select[data-axis=up]", label=METRIC)
    opened.select_option("select[data-axis=across]", label="p95_ttft_ms")
    assert plot.inner_html() == before, "the picture of the page comes back"


def test_without_javascript_the_picture_is_the_same_and_nothing_can_be_chosen(chrome: Any, report: Path) -> None:
    context = chrome.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert page.locator("svg.tradeoff text.axis-name").count() == 2
    assert not page.locator("select[data-axis=up]").is_visible()
    context.close()

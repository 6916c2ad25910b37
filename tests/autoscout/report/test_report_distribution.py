"""The distribution of good and bad configurations: counts, what is a sample and what is not, and the section of the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from report_studies import DEFAULT, METRIC, make_study, make_task, make_trial, page_of, result_of, simulated

from _cli_program import campaign
from autoscout.analysis.distribution import Distribution, distribution_of, share_interval
from autoscout.cli.main import main
from autoscout.core.config import Config, Value
from autoscout.core.task import Direction
from autoscout.core.trial import Status, Trial
from autoscout.report.tables import report_json


def changed(**values: Value) -> Config:
    return Config({**DEFAULT.to_json(), **values})


def drawn(values: list[float | None], by: str = "random", **more: object) -> list[Trial]:
    return [make_trial(number, changed(batch=number), value, origin={"by": by}, **more) for number, value in enumerate(values, 1)]


def found_in(trials: list[Trial], **facts: object) -> Distribution:
    found = distribution_of(make_task(**facts), trials, DEFAULT)  # type: ignore[arg-type]
    assert found is not None
    return found


def test_counts_are_of_configurations_near_the_best() -> None:
    trials = [make_trial(0, DEFAULT, 50.0, origin={"by": "default"}), *drawn([100.0, 96.0, 94.0, 91.0, 60.0, 49.0, None, None])]
    spread = found_in(trials).sample
    assert spread is not None
    assert (spread.configs, spread.failed) == (8, 2)
    assert [spread.near(share) for share in (0.05, 0.1, 0.5)] == [2, 4, 5]
    assert spread.worst == pytest.approx(100 / 49)


def test_of_times_the_shortest_is_best() -> None:
    times = [make_trial(n, changed(batch=n), value, metric="step_s") for n, value in enumerate([1.0, 1.05, 1.06, 4.0], 1)]
    spread = found_in(times, metric="step_s", direction=Direction.MINIMIZE).sample
    assert spread is not None
    assert (spread.near(0.05), spread.worst) == (2, 4.0)


def test_a_broken_limit_and_an_early_end_are_no_good_configurations() -> None:
    slow = make_trial(9, changed(batch=9), 500.0, metrics={"p95_ttft_ms": 99.0})
    early = make_trial(10, changed(batch=10), status=Status.BOUNDED, bounds={METRIC: 90.0})
    trials = [*drawn([100.0, 99.0], metrics={"p95_ttft_ms": 10.0}), slow, early]
    spread = found_in(trials, limits=["p95_ttft_ms<=50"]).sample
    assert spread is not None
    assert (spread.configs, spread.failed, spread.broken, spread.bounded, spread.near(0.05)) == (4, 0, 1, 1, 2)


def test_what_a_searcher_chose_is_no_sample() -> None:
    found = found_in(drawn([100.0, 99.0], by="hybrid"))
    assert found.sample is None
    assert not found.to_json()["is_sample"]
    assert "no sample of the space" in found.caveat
    assert "interval" not in found.sentence


def test_a_sample_is_counted_apart_from_the_search_but_by_the_best_of_both() -> None:
    searched = [make_trial(20 + n, changed(batch=20 + n), value, origin={"by": "hybrid"}) for n, value in enumerate([200.0, 199.0])]
    found = found_in([*drawn([100.0, 190.0, None], by="profiling"), *searched])
    assert found.sample is not None
    assert found.searched is not None
    assert (found.sample.configs, found.sample.near(0.05), found.searched.near(0.05)) == (3, 1, 2)
    assert found.sentence.startswith("1 of 3 configurations drawn at random are within 10% of the best found (33%; 95 % interval")


def test_a_grid_in_stages_follows_results() -> None:
    stages = drawn([100.0, 99.0], by="grid")
    staged = drawn([100.0, 99.0], by="")
    staged = [make_trial(t.number, t.config, 100.0, origin={"by": "grid", "notes": {"stage": 1}}) for t in staged]
    assert found_in(stages).by_grid
    assert "first combinations" in found_in(stages).caveat
    assert found_in(staged).sample is None


def test_only_simulated_configurations_did_not_fail() -> None:
    trials = [simulated(30, changed(batch=30), 900.0), *drawn([100.0, 50.0])]
    spread = found_in(trials).sample
    assert spread is not None
    assert (spread.configs, spread.failed, spread.worst) == (2, 0, 2.0)


def test_groups_are_by_changed_knobs() -> None:
    one = [make_trial(n, changed(batch=n), 10.0 * n) for n in (1, 2)]
    three = make_trial(3, changed(batch=3, threads=8, kv="q8_0"))
    found = found_in([*one, three])
    assert {count: (spread.configs, spread.failed) for count, spread in found.by_changes.items()} == {1: (2, 0), 3: (1, 1)}


def test_nothing_is_said_where_nothing_can_be_compared() -> None:
    assert distribution_of(make_task(), drawn([None, None]), DEFAULT) is None
    assert distribution_of(make_task(), drawn([-1.0, 2.0]), DEFAULT) is None
    assert distribution_of(make_task(), [make_trial(0, DEFAULT, 5.0, origin={"by": "default"})], DEFAULT) is None
    assert report_json(result_of(make_task(), []))["distribution"] is None


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 0.278), (10, 0.722, 1.0), (5, 0.237, 0.763)])
def test_the_interval_of_a_share(count: int, low: float, high: float) -> None:
    assert share_interval(count, 10) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_the_page_and_the_document_say_the_same() -> None:
    trials = make_study(60)
    text = page_of(make_task(), trials)
    found = report_json(result_of(make_task(), trials))["distribution"]
    assert found["is_sample"]
    assert found["sentence"] in text
    assert "Good and bad configurations" in text
    assert 'class="plot distribution"' in text
    assert sum(group["configs"] for group in found["by_changes"].values()) == found["sample"]["configs"]


def test_a_random_study_shows_it_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = campaign(tmp_path, search={"searcher": "random"}, budget={"trials": 12}, finals={"rounds": 1})
    for words in (["tune", str(file), "--output-dir", str(tmp_path / "out"), "--json"], ["explain", str(tmp_path / "out/numbers")]):
        with pytest.raises(SystemExit) as leave:
            main(words)
        assert leave.value.code == 0
    said = capsys.readouterr().out
    found = json.loads((tmp_path / "out/numbers/report.json").read_text())["distribution"]
    assert found["sample"]["configs"] == 11
    assert found["sentence"] in said
    assert found["caveat"] in said
    assert 'id="distribution"' in (tmp_path / "out/numbers/report.html").read_text()

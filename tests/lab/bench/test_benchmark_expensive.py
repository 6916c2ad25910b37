"""`benchmarks.expensive`: its virtual engine takes the time it says, stops where it may, and its page says what was found."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from autoscout.core.clock import VirtualClock
from autoscout.core.task import Direction
from autoscout.core.to_beat import ToBeat
from autoscout.core.trial import Measurement, Proposal, Status

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT))

from benchmarks.expensive import LOAD_S, METHODS, WARM_UP_S, Case, Engine, Row, page, run, saved, truth  # noqa: E402

CASE = Case("torch_training", table="torch_training")
ALL = frozenset({"stop", "cost"})


def measured(value: float | None, part5: frozenset[str] = ALL) -> tuple[Measurement, float]:
    """A trial of the default against a time to beat, and how long it took."""
    known, clock = truth(CASE, 0), VirtualClock()
    goal = None if value is None else ToBeat(metric="value", direction=Direction.MINIMIZE, value=value * known.usual, spread=0.02)
    (answer,) = Engine(known, 0, clock, part5).evaluate([Proposal(config=known.space.default(), to_beat=goal)])
    return answer, clock.span_s()


def test_a_trial_takes_the_time_of_its_parts() -> None:
    answer, took_s = measured(None)
    assert answer.ok
    assert took_s == pytest.approx(answer.cost_s) == pytest.approx(sum(answer.spent.values()))
    assert 70 <= answer.spent["start_s"] <= 110
    assert (answer.spent["warm_up_s"], answer.spent["measure_s"]) == (WARM_UP_S, pytest.approx(LOAD_S))


def test_a_trial_that_cannot_win_ends_after_a_part_of_its_load() -> None:
    answer, took_s = measured(0.7)
    assert answer.status is Status.BOUNDED
    assert answer.spent["measure_s"] == pytest.approx(LOAD_S / 4)
    assert took_s < measured(None)[1]
    assert measured(0.05)[0].spent["measure_s"] < LOAD_S / 8, "no longer than a certain winner takes"
    assert measured(1.0)[0].ok


def test_as_if_trials_were_cheap_nothing_is_stopped_and_no_cost_is_told() -> None:
    answer, took_s = measured(0.05, frozenset())
    assert answer.ok
    assert (answer.cost_s, answer.spent) == (0.0, {})
    assert took_s == measured(None)[1]


def test_finished_studies_are_not_run_again(tmp_path: Path) -> None:
    kept = tmp_path / "rows.jsonl"
    lines = [json.dumps([CASE.name, method, seed, asdict(row(1000.0 + seed))]) for method in METHODS for seed in (3, 4)]
    kept.write_text("\n".join(lines) + "\n")
    assert run([CASE], [4, 3], 1, kept) == {CASE.name: {method: [row(1004.0), row(1003.0)] for method in METHODS}}


def row(near_s: float) -> Row:
    return Row(near_s=near_s, near_trials=5, search_s=2 * near_s, answer=1.02, bounded=3, failed=1)


def test_the_page_says_what_was_saved() -> None:
    plain, fast = [row(1000.0), row(4000.0)], [row(500.0), row(2000.0)]
    assert saved(plain, fast) == (pytest.approx(0.5), pytest.approx(0.0))
    text = page({"case": {"as if cheap": plain, "expensive": fast}}, 2)
    assert "| case | as if cheap | 2000 |  | 5.0 | 5000 | 3.0 | 1.0 | 1.020 |" in text
    assert "50% ± 0% of the engine time to 5% is saved, 50% of that of a whole search" in text
    assert "The answers differ by +0.0%" in text

"""Changes of regime: planted ones are seen within minutes, quiet weeks stay quiet, and an answer must be predicted to pay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autosched.arrivals.arrivals import DAY_S, HOUR_S, WEEK_S
from autosched.arrivals.synthetic import Recipe, generate
from autosched.predict.predictor import PredictorOptions
from autosched.sim.cluster import Cluster
from autosched.sim.trace import Trace, concatenate
from autosched.tune.case import Case
from autosched.tune.loop import Loop
from autosched.tune.modes import MODES
from autosched.tune.regimes import LOOK_S, WINDOW_S, alarms

GPUS = 64


def steady(seed: int = 0, days: int = 15) -> Trace:
    """Jobs at random moments, sixty an hour at most, as quiet as jobs get."""
    rng = np.random.default_rng(seed)
    jobs = days * 24 * 20
    return Trace.of(np.sort(rng.random(jobs) * days * DAY_S), rng.exponential(1_800, jobs), rng.choice([1.0, 2.0, 4.0], jobs))


def planted(jobs: Trace, at_s: float, count: int, gpus: float, duration_s: float = 3_600.0) -> Trace:
    """The same with jobs that come within ten minutes of a moment."""
    more = Trace.of(at_s + np.linspace(0, 600, count), [duration_s] * count, [gpus] * count, job_id=[f"planted-{n}" for n in range(count)])
    both = concatenate(jobs, more)
    return both.take(np.argsort(both.submit_s, kind="stable"))


@pytest.mark.parametrize(("count", "gpus", "word"), [(60, 4.0, "burst"), (1, 32.0, "large job")])
def test_a_planted_change_is_seen_within_minutes(count: int, gpus: float, word: str) -> None:
    at_s = 10 * DAY_S + 3 * HOUR_S + 100
    seen = alarms(planted(steady(), at_s, count, gpus), GPUS, WEEK_S, 14 * DAY_S)
    mine = [each for each in seen if at_s <= each.at_s <= at_s + 2 * WINDOW_S]
    assert mine
    assert word in mine[0].words
    assert mine[0].at_s - at_s <= 600 + LOOK_S


def test_quiet_weeks_stay_quiet() -> None:
    counts = [len(alarms(steady(seed), GPUS, WEEK_S, 14 * DAY_S)) for seed in range(20)]
    assert sum(counts) <= 1, f"false alarms in twenty quiet weeks: {counts}"


def test_a_look_knows_nothing_of_what_is_still_to_come() -> None:
    jobs = planted(steady(), 10 * DAY_S, 60, 4.0)
    whole = alarms(jobs, GPUS, WEEK_S, 14 * DAY_S)
    for until_s in (9.9 * DAY_S, 10 * DAY_S + 400, 10 * DAY_S + 900):
        known = alarms(jobs.between(-np.inf, until_s), GPUS, WEEK_S, until_s)
        assert known == [each for each in whole if each.at_s < until_s]


def test_without_a_past_nothing_is_unusual() -> None:
    assert alarms(planted(steady(), 0.5 * DAY_S, 60, 4.0), GPUS, 0.0, 0.9 * DAY_S) == []
    assert alarms(steady().take(slice(0)), GPUS, 0.0, DAY_S) == []


def burst_case(times: float) -> Case:
    jobs = generate(Recipe(profile="philly", jobs=700, days=5, load=0.9, cluster_gpus=24, start_s=0.0, seed=3))
    jobs = planted(jobs, 4 * DAY_S + 2 * HOUR_S + 130, round(80 * times), 2.0, 5_000.0) if times else jobs
    return Case(trace=jobs, cluster=Cluster.parse("3x8"), scheduler="tiresias", from_s=4 * DAY_S, to_s=4.5 * DAY_S)


def test_a_burst_brings_a_decision_at_once_and_it_must_pay() -> None:
    mode = replace(MODES["default"], start_trials=5, predictor=PredictorOptions(model="frequency"), every_s=12 * HOUR_S)
    mode = replace(mode, search=replace(mode.search, trials=8), draws=2)
    found = Loop(burst_case(2.0), mode, "default", 1).run()
    mine = [each for each in found.decisions if "a burst" in " ".join(each.steps)]
    assert mine, "seen"
    assert mine[0].at_s - (4 * DAY_S + 2 * HOUR_S + 130) <= 900 + LOOK_S
    for each in mine:
        assert not each.changed or each.predicted >= mode.watch_gain
    unmoved = Loop(burst_case(2.0), replace(mode, watch_gain=1e6), "default", 1).run()
    assert not any(each.changed for each in unmoved.decisions if "a burst" in " ".join(each.steps)), "nothing pays as much"
    assert not any("a burst" in " ".join(each.steps) for each in Loop(burst_case(0.0), mode, "default", 1).run().decisions)

"""Knobs that need a column which no job of a trace has are not offered; what schedulers look at is supplied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autosched.arrivals.synthetic import Recipe, generate
from autosched.schedulers.lucid import Lucid
from autosched.sim.cluster import Cluster
from autosched.sim.forecast import Forecast
from autosched.sim.simulation import Simulation
from autosched.sim.trace import Trace
from autoscout.core import plugins

CLUSTER = Cluster.parse("3x8")


def trace() -> Trace:
    return generate(Recipe(profile="philly", jobs=400, days=3, load=1.1, cluster_gpus=24, start_s=0.0, seed=1))


def with_column(name: str, *values: float) -> Trace:
    jobs = trace()
    return replace(jobs, extra={**jobs.extra, name: np.resize(np.asarray(values), len(jobs))})


def open_knobs(jobs: Trace, scheduler: str) -> set[str]:
    space = Simulation(trace=jobs, cluster=CLUSTER, scheduler=scheduler).offered()
    return {name for name, knob in space.knobs.items() if len(knob.values) > 1}


def test_knobs_without_their_column_rest() -> None:
    assert "pack_limit" not in open_knobs(trace(), "tiresias")
    assert not {"pack", "estimate_factor", "quiet_jobs"} & open_knobs(trace(), "lucid")
    assert "pack_limit" in open_knobs(with_column("skew", 1.0, 4.0), "tiresias")
    assert {"pack", "estimate_factor", "quiet_jobs"} <= open_knobs(with_column("sharing", 0.0, 1.0, 2.0), "lucid")


@pytest.mark.parametrize("name", plugins.available("scheduler"))
def test_other_knobs_are_offered(name: str) -> None:
    kind = plugins.get("scheduler", name)
    declared = {knob for knob, values in kind.space(CLUSTER).knobs.items() if len(values.values) > 1}
    assert open_knobs(trace(), name) == declared - set(getattr(kind, "needs", {}))


def test_every_offered_knob_of_lucid_acts() -> None:
    """Of each, two values must give different answers on some trace: a knob that cannot is no knob."""
    jobs = with_column("sharing", 0.0, 1.0, 2.0)
    question = Simulation(trace=jobs, cluster=CLUSTER, scheduler="lucid")
    space = question.offered()
    base = space.default()
    for name in ("pack", "estimate_factor", "quiet_jobs"):
        values = space.knobs[name].values
        answers = {question(space.project(base, base.only(space.ancestors(name)).extend({name: value})))["mean_jct_s"] for value in values}
        assert len(answers) > 1, name


def test_a_forecast_knows_nothing_of_the_next_hour() -> None:
    jobs = trace()
    whole = Forecast.of_past(jobs.submit_s, jobs.gpus, float(jobs.submit_s[-1]))
    for at_s in (3_600.0 * 7, 86_400.0 * 1.5, 86_400.0 * 2.9):
        past = jobs.between(-np.inf, at_s)
        known = Forecast.of_past(past.submit_s, past.gpus, float(jobs.submit_s[-1]))
        soon = whole.at_s <= at_s + 3_000.0  # what Lucid looks at: five steps
        assert np.array_equal(whole.jobs[soon], known.jobs[soon])
        assert np.array_equal(whole.gpus[soon], known.gpus[soon])


def test_a_forecast_is_the_same_hour_of_the_days_before() -> None:
    minutes = np.arange(0.0, 4 * 86_400.0, 120.0)
    busy = minutes[(minutes % 86_400.0) < 43_200.0]  # five jobs in ten minutes, half of the day
    forecast = Forecast.of_past(busy, np.ones(len(busy)), 4 * 86_400.0)
    later = forecast.at_s >= 86_400.0
    by_day = (forecast.at_s % 86_400.0) < 43_200.0
    assert set(forecast.jobs[later & by_day]) == {5.0}
    assert set(forecast.jobs[later & ~by_day]) == {0.0}


def test_lucid_is_told_what_to_expect() -> None:
    question = Simulation(trace=trace(), cluster=CLUSTER, scheduler="lucid")
    built = question.build(question.space().default())
    assert isinstance(built, Lucid)
    assert len(built.forecast.at_s) > 100

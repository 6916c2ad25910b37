"""The policy as a knob: a choice of schedulers with estimates from the past alone, and what it must not be bought with."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from autosched.arrivals.arrivals import DAY_S, HOUR_S
from autosched.arrivals.synthetic import Recipe, generate
from autosched.predict.estimates import ESTIMATE, Believed, Estimator
from autosched.predict.predictor import PredictorOptions
from autosched.schedulers.srtf import SRTF
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.policies import POLICY, Policies, policies_of, scheduler_kind
from autosched.sim.trace import Trace
from autosched.tune.case import Case
from autosched.tune.goals import GUARDS, Goal
from autosched.tune.loop import Loop, ModeRun
from autosched.tune.measures import groups
from autosched.tune.modes import MODES, Mode
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError

CLUSTER = Cluster.parse("3x8")
CHOICE = "tiresias+srtf+qssf+themis+lucid"


@cache
def trace() -> Trace:
    return generate(Recipe(profile="philly", jobs=500, days=4, load=1.2, cluster_gpus=24, start_s=0.0, seed=0))


def case(choice: str = CHOICE, slack: float = 1.1, jobs: Trace | None = None) -> Case:
    return Case(trace=jobs or trace(), cluster=CLUSTER, scheduler=choice, from_s=3 * DAY_S, to_s=3.5 * DAY_S, slack=slack)


def small(name: str) -> Mode:
    mode = MODES[name]
    every = np.inf if np.isinf(mode.every_s) else 3 * HOUR_S
    search = replace(mode.search, trials=6)
    return replace(mode, every_s=every, start_trials=8, search=search, predictor=PredictorOptions(model="frequency"))


@cache
def course(name: str, choice: str = CHOICE, slack: float = 1.1) -> ModeRun:
    return Loop(case(choice, slack), small(name), name, 1).run()


def test_a_choice_has_the_knobs_of_each_under_its_name() -> None:
    kind = scheduler_kind(CHOICE)
    space = kind.space(CLUSTER)
    start = space.default()
    assert start[POLICY] == "tiresias"
    assert {name.split("_")[0] for name in start} == {POLICY, "tiresias"}
    built = {each[POLICY]: type(kind.of(each)).__name__ for each in policies_of(space)}
    assert built == {"tiresias": "Tiresias", "srtf": "SRTF", "qssf": "QSSF", "themis": "Themis", "lucid": "Lucid"}
    deep = space.project({}, Config({POLICY: "tiresias", "tiresias_queues": 3, "tiresias_starvation": "limit"}))
    assert kind.of(deep).thresholds == (18_000.0, 72_000.0)
    assert kind.of(deep).starve_limit_s == 86_400.0
    assert not kind.of(policies_of(space)[1]).oracle, "nobody is told true durations"


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("tiresias+magic", "must be one of"),
        ("tiresias+slurm", "time limits of users"),
        ("tiresias+tiresias", "two schedulers at least"),
    ],
)
def test_wrong_choices_are_refused(names: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scheduler_kind(names)


def test_who_outlives_an_estimate_is_believed_to_run_as_long_again() -> None:
    """One GPU: a job that was to take 100 s is believed to need 200 s at 200 s, and one of 190 s takes over."""
    jobs = Trace.of([0, 10], [1_000, 190], [1, 1], extra={ESTIMATE: [100, 190]})
    result = simulate(jobs, Cluster.parse("1x1"), SRTF(oracle=False, round_s=0.0), Run())
    assert result.start_s[1] == pytest.approx(200, abs=1)
    assert result.end_s[1] == pytest.approx(390, abs=1)
    assert result.preemptions.tolist() == [1, 0]
    true = simulate(jobs, Cluster.parse("1x1"), SRTF(), Run())
    assert true.start_s[1] == pytest.approx(10, abs=1)


def test_two_jobs_far_beyond_their_estimates_stop_each_other_seldom() -> None:
    jobs = Trace.of([0, 10], [200_000, 200_000], [1, 1], extra={ESTIMATE: [1, 1]})
    result = simulate(jobs, Cluster.parse("1x1"), SRTF(oracle=False), Run())
    assert result.ended.all()
    assert result.preemptions.sum() <= 2 * np.log2(200_000 / 60) + 2, "each estimate is doubled, not chased"


def test_estimates_know_nothing_of_what_has_not_ended() -> None:
    """Other durations of all jobs that have not ended change no estimate."""
    jobs = trace()
    ends = jobs.submit_s + jobs.duration_s
    at_s, first = 2 * DAY_S, int(np.searchsorted(jobs.submit_s, 2 * DAY_S))
    ended = ends <= at_s
    known = np.where(ended, ends, np.inf)
    other = replace(jobs, duration_s=np.where(ended, jobs.duration_s, jobs.duration_s * 7 + 5_000))
    asked = [
        Believed(each, DAY_S, seed=1).arrivals(end_s, at_s, first, at_s + 6 * HOUR_S).extra[ESTIMATE]
        for each, end_s in ((jobs, known), (other, known), (jobs, ends))
    ]
    assert len(asked[0]) > 5
    assert np.isfinite(asked[0]).all()
    assert np.array_equal(asked[0], asked[1])
    assert np.array_equal(asked[0], asked[2]), "ends that are still to come are not looked at"
    past = Estimator(seed=1).past_s(Believed(jobs, DAY_S)._history(ends, at_s, first), DAY_S, at_s)
    assert len(past) == first - int(np.searchsorted(jobs.submit_s, DAY_S))


def test_jobs_that_come_one_after_the_other_fare_as_in_one_run() -> None:
    whole = simulate(trace().between(-np.inf, 3.5 * DAY_S), CLUSTER, scheduler_kind("themis").of(Config()), Run(until_s=3.5 * DAY_S))
    found = course("static", "themis+srtf")
    assert np.array_equal(whole.end_s, found.result.end_s, equal_nan=True)


@pytest.mark.parametrize("name", ["fixed-history", "default", "fixed-oracle"])
def test_a_policy_is_chosen_with_its_settings(name: str) -> None:
    found = course(name, slack=1e9)
    assert case().space.check(found.start) == []
    assert found.metrics["jobs"] == course("static").metrics["jobs"]
    assert found.metrics["time_s"] <= course("static").metrics["time_s"] * 1.02
    assert ESTIMATE in found.result.trace.extra
    if name == "fixed-history":
        assert course(name, "fifo+srtf", 1e9).start[POLICY] == "srtf", "nobody waits behind a long job"


def test_nothing_is_chosen_that_breaks_a_guard() -> None:
    """With no slack at all and a guard that every other policy breaks, the one in force stays."""
    strict = course("default", slack=1e-6)
    assert strict.start == case().space.default()
    assert not any(each.changed for each in strict.decisions)
    assert course("default", slack=1e9).start != strict.start


def test_guards_are_limits_next_to_the_published_default() -> None:
    default = {"time_s": 10.0, "worst_slowdown": 2.0, "longest_queue_s": 10.0}
    limits = {limit.metric: limit.value for limit in Goal().guarded(1.2).objective(default).limits}
    assert limits == {"worst_slowdown": pytest.approx(2.4), "longest_queue_s": pytest.approx(12.0)}
    assert Goal().objective({}).limits == ()
    assert case("tiresias").aim.bounds == ()
    assert tuple(bound.metric for bound in case().aim.bounds) == GUARDS


def test_the_worst_group_is_a_user_or_else_a_size() -> None:
    named = Trace.of([0, 1, 2], [1, 1, 1], [1, 2, 16], user=["a", "b", "a"])
    assert groups(named).tolist() == [0, 1, 0]
    nameless = Trace.of([0, 1, 2, 3], [1, 1, 1, 1], [1, 2, 7, 16])
    assert groups(nameless).tolist() == [0, 1, 1, 3]


def test_policies_know_their_columns() -> None:
    assert Policies.of_names(["lucid", "tiresias"]).needs["lucid_pack"] == "sharing"
    assert not Policies.of_names(["tiresias", "themis"]).believes
    assert "lucid_pack" not in [name for name, knob in case().space.knobs.items() if len(knob.values) > 1]

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from autosched.arrivals.arrivals import DAY_S, HOUR_S
from autosched.predict.predictor import PredictorOptions
from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.engine import Run, simulate
from autosched.sim.trace import Trace
from autosched.tune.assess import Assessment, assess
from autosched.tune.case import Case, last_window
from autosched.tune.draws import Observation, reordered
from autosched.tune.explain import causes, moment, trust, why
from autosched.tune.futures import Future
from autosched.tune.loop import Decision, Loop, ModeRun, Shared
from autosched.tune.modes import MODES, Mode
from autosched.tune.plots import comparison_page, settings_over_time, wanted
from autosched.tune.search import Found
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError

CLUSTER = Cluster.parse("3x8")


@cache
def trace() -> Trace:
    return generate_trace(0)


def generate_trace(seed: int) -> Trace:
    from autosched.arrivals.synthetic import Recipe, generate

    return generate(Recipe(profile="philly", jobs=500, days=4, load=1.2, cluster_gpus=24, start_s=0.0, seed=seed))


def case(jobs: Trace | None = None, scheduler: str = "tiresias", goal: str = "time") -> Case:
    return Case(trace=jobs or trace(), cluster=CLUSTER, scheduler=scheduler, from_s=3 * DAY_S, to_s=3.5 * DAY_S, goal=goal)


def small(name: str) -> Mode:
    """A mode with little to do."""
    mode = MODES[name]
    every = np.inf if np.isinf(mode.every_s) else 3 * HOUR_S
    predictor = replace(mode.predictor, model="frequency")
    return replace(
        mode,
        every_s=every,
        start_trials=8,
        draws=min(2, mode.draws),
        search=replace(mode.search, trials=6),
        predictor=predictor,
        watch_s=0.0,
    )


@cache
def course(name: str, scheduler: str = "tiresias", goal: str = "time") -> ModeRun:
    return Loop(case(scheduler=scheduler, goal=goal), small(name), name, 1).run()


def at_the_start() -> tuple[Loop, Observation, Future]:
    """A loop when its window begins, what it sees, and the past that it is tuned on."""
    loop = Loop(case(), small("default"), "default", 1)
    loop._session.step(case().from_s)
    observation = loop._view()
    past = loop._past(observation)
    assert past is not None
    return loop, observation, past


def test_a_loop_that_changes_nothing_is_one_run() -> None:
    whole = simulate(trace().between(-np.inf, 3.5 * DAY_S), CLUSTER, Tiresias(), Run(until_s=3.5 * DAY_S))
    found = course("static")
    assert np.array_equal(whole.end_s, found.result.end_s, equal_nan=True)
    assert found.decisions == ()
    assert found.cpu_s == found.start_cpu_s


@pytest.mark.parametrize("name", [name for name in MODES if name != "static"])
def test_every_mode_runs_through_the_window(name: str) -> None:
    found = course(name)
    assert found.metrics["jobs"] == course("static").metrics["jobs"]
    assert found.metrics["time_s"] > 0
    for decision in found.decisions:
        assert decision.predicted >= 1.0  # the settings in force are always among those tried
        assert decision.changed or not decision.contributions
        assert not decision.changed or np.isfinite(decision.realised)
        assert decision.simulations >= 1 or decision.unfinished == 0
        assert case().space.check(decision.after) == []
    if np.isfinite(MODES[name].every_s):
        assert len(found.decisions) == (4 if MODES[name].start == "default" else 3)
    assert (found.model is not None) == MODES[name].causal


@pytest.mark.parametrize(("scheduler", "goal"), [("themis", "fair"), ("lucid", "time")])
def test_other_schedulers_and_goals(scheduler: str, goal: str) -> None:
    found = course("default", scheduler, goal)
    assert 0 <= found.metrics["fair_share"] <= 1
    assert found.metrics["time_s"] > 0


def test_what_modes_share_changes_no_course_and_is_charged_to_each() -> None:
    shared = Shared()
    found = {name: Loop(case(), small(name), name, 1, shared).run() for name in ("fixed-history", "default")}
    for name, one in found.items():
        assert (one.start, one.metrics) == (course(name).start, course(name).metrics)
        assert [each.after for each in one.decisions] == [each.after for each in course(name).decisions]
    assert found["default"].start_cpu_s >= found["fixed-history"].start_cpu_s * 0.5


def test_changes_are_judged_although_looks_in_between_follow() -> None:
    watching = Loop(case(), replace(small("paper"), every_s=HOUR_S, watch_s=600.0), "paper", 1).run()
    changed = [each for each in watching.decisions if each.changed]
    assert any(np.isfinite(each.realised) for each in changed)
    for each, after in pairwise(changed):  # the next change comes too early to tell, or the change is judged
        assert np.isfinite(each.realised) == (after.at_s - each.at_s >= HOUR_S / 2)


def test_a_stressed_start_is_as_good_on_the_past_as_a_tuned_one() -> None:
    """Where nearly nothing queued, settings are chosen by what they do when something does."""
    jobs = generate_trace(0)
    calm = replace(jobs, duration_s=jobs.duration_s * 0.55)
    there = replace(case(calm), from_s=2.5 * DAY_S, to_s=3 * DAY_S)
    past_s, busy_s = {}, {}
    for name in ("fixed-history", "default"):
        mode = replace(small(name), every_s=np.inf, start_trials=12)
        loop = Loop(there, mode, name, 1)
        start = loop.run().start
        before, until = calm.between(0.5 * DAY_S, 2.5 * DAY_S), 2.5 * DAY_S
        past_s[name] = simulate(before, CLUSTER, Tiresias.of(start)).jct_s.mean()
        faster = replace(before, submit_s=until - (until - before.submit_s) / 2)
        busy_s[name] = simulate(faster, CLUSTER, Tiresias.of(start)).jct_s.mean()
    assert past_s["default"] <= past_s["fixed-history"] * 1.02
    assert busy_s["default"] <= busy_s["fixed-history"] * 1.02


def test_a_start_that_fails_when_more_jobs_come_is_not_taken() -> None:
    """Jobs that go up and down all the time: the run over the busier week is stopped on the way."""
    loop, observation, past = at_the_start()
    default = case().space.default()
    calm = loop._question([past], observation, default)
    restless = Config({**dict(default), "threshold": 60.0, "starvation": "promote", "promote": 0.5})
    known = calm(default)
    tuned = Found(best=restless, metrics=known, start=known, runs=((default, known), (restless, known)), rejected=0, frozen={})
    faster = replace(past.arrivals, submit_s=past.at_s + (past.arrivals.submit_s - past.at_s) / 3)
    assert loop._steady(calm, tuned, replace(past, arrivals=faster), observation) != restless


def test_settings_must_prove_themselves_on_weeks_that_they_were_not_chosen_on() -> None:
    loop, observation, past = at_the_start()
    default = case().space.default()
    good = Loop(case(), small("fixed-oracle"), "fixed-oracle", 1).run().start
    assert good != default
    assert loop._is_proven(default, good, past, observation, 1.0)
    assert not loop._is_proven(good, default, past, observation, 1.0)
    assert not loop._is_proven(default, good, past, observation, 50.0)
    assert loop._is_proven(good, good, past, observation, 50.0), "nothing changes"


def test_a_week_in_another_order_has_the_same_jobs() -> None:
    _, _, past = at_the_start()
    other = reordered(past, 0.5 * DAY_S)
    one, two = past.arrivals, other.arrivals
    assert sorted(one.job_id.tolist()) == sorted(two.job_id.tolist())
    assert two.gpu_seconds == pytest.approx(one.gpu_seconds)
    assert np.all(np.diff(two.submit_s) >= 0)
    assert two.submit_s[0] >= past.at_s
    assert two.submit_s[-1] <= one.submit_s[-1]
    early = set(one.between(-np.inf, past.at_s + 0.5 * DAY_S).job_id.tolist())
    assert set(two.job_id.tolist()[-len(early) :]) == early


@pytest.mark.parametrize("name", ["default", "paper", "future-oracle"])
def test_nothing_is_searched_where_there_is_nothing_to_gain(name: str) -> None:
    """Long jobs on a cluster with room for all: what is above their work is the wait for the next round."""
    jobs = replace(trace(), duration_s=np.full(len(trace()), 200_000.0))
    found = Loop(replace(case(jobs), cluster=Cluster.parse("400x8")), small(name), name, 1).run()
    assert found.decisions
    assert not found.changes
    for each in found.decisions:
        assert "nothing to gain" in each.words
        assert each.simulations == small(name).draws


def test_equal_seeds_equal_courses() -> None:
    again = Loop(case(), small("paper"), "paper", 1).run()
    one, other = course("paper"), again
    assert [each.after for each in one.decisions] == [each.after for each in other.decisions]
    assert one.metrics == other.metrics


def test_the_best_fixed_in_hindsight_is_no_worse_than_the_default() -> None:
    assert course("fixed-oracle").metrics["time_s"] <= course("static").metrics["time_s"] * 1.000001


@pytest.mark.parametrize(
    ("name", "start"), [("paper", "default"), ("default", "default"), ("default", "stressed"), ("selftune", "default")]
)
def test_nobody_but_an_oracle_sees_the_future(name: str, start: str) -> None:
    """Another future, in which other jobs come and those that run take longer: the same first settings."""
    jobs, at = trace(), 3 * DAY_S
    alive = simulate(jobs.between(-np.inf, at), CLUSTER, Tiresias(), Run(until_s=at))
    before = int(np.searchsorted(jobs.submit_s, at))
    longer = jobs.duration_s.copy()
    longer[:before][~alive.ended] += 50_000.0
    longer[before:] = longer[before:][::-1]
    first = []
    for each in (jobs, replace(jobs, duration_s=longer)):
        mode = replace(small(name), every_s=DAY_S, start=start)
        found = Loop(replace(case(each), to_s=at + 6 * HOUR_S), mode, name, 1).run()
        assert len(found.decisions) == (start == "default")
        first.append((found.start, [(made.after, made.predicted) for made in found.decisions]))
    assert first[0] == first[1]


def test_what_an_oracle_predicts_comes_true() -> None:
    """Where the simulated future is the time until the next decision, prediction and outcome are the same run."""
    mode = replace(small("future-oracle"), horizon_s=3 * HOUR_S, cap_s=3 * HOUR_S)
    changed = [each for each in Loop(case(), mode, "future-oracle", 1).run().decisions if each.changed]
    assert changed
    assert [each.realised for each in changed] == pytest.approx([each.predicted for each in changed], rel=1e-9)


def test_decisions_in_words() -> None:
    config = Config(queues=2, threshold=18_000.0)
    made = Decision(
        at_s=7_200.0,
        before=config,
        after=Config(queues=3, threshold=18_000.0, ratio_3=4.0),
        predicted=1.25,
        load=1.5,
        waiting=3,
        unfinished=10,
        simulations=40,
        rejected=5,
        cpu_s=0.1,
        words="two futures",
        contributions={"queues": 1.2},
        realised=1.1,
    )
    told = why(made)
    assert "hour 2.0: 10 jobs in the system, 3 of them waiting, 1.50 times the GPUs wanted" in told
    assert "queues 2 -> 3, ratio_3 unset -> 4" in told
    assert "1.250 times as good, 1.200 times by queues; on the jobs that then came it was 1.100" in told
    assert "Nothing was changed" in why(replace(made, after=config))
    assert "1 changes were predicted to gain 1.250" in trust([made])
    assert "No change" in trust([])
    assert moment(1_506_038_400.0) == "2017-09-22 00:00"


def test_causes_in_words() -> None:
    found = course("paper")
    assert found.model is not None
    told = causes(found.model.graph)
    assert "acts on" in told
    assert "Learned by" in told


def test_plots_show_load_and_settings() -> None:
    found = {name: course(name) for name in ("static", "future-oracle")}
    at = np.asarray([3 * DAY_S, 3.25 * DAY_S])
    result = found["static"].result
    there = (result.trace.submit_s[:, None] <= at) & ~(result.end_s[:, None] <= at)
    assert wanted(result, at) == pytest.approx((there * result.trace.gpus[:, None]).sum(axis=0))
    page = comparison_page(case(), found)
    assert page.startswith("<svg ")
    assert "GPUs wanted" in page
    assert ("settings under future-oracle" in page) == (found["future-oracle"].changes > 0)
    assert settings_over_time(case(), found["static"]) == {}


def made_up(**times: float | list[float]) -> Assessment:
    """Courses of which only the mean time matters."""
    base = course("static")
    return Assessment(
        case=case(),
        each={
            name.replace("_", "-"): [replace(base, metrics={**base.metrics, "time_s": each}) for each in np.atleast_1d(value).tolist()]
            for name, value in times.items()
        },
    )


def test_recommendations() -> None:
    assert "Leave the default" in made_up(static=100.0, fixed_history=99.5, default=99.0, future_oracle=97.0).recommendation()
    once = made_up(static=130.0, fixed_history=100.0, default=99.5, fixed_oracle=96.0).recommendation()
    assert "Tune once" in once
    assert "need not re-tune" in once
    assert "1.354 times" in once  # with the best fixed settings
    assert "Use default" in made_up(static=130.0, fixed_history=100.0, default=90.0).recommendation()
    assert "Too few" in made_up(static=100.0).recommendation()


def test_an_assessment_is_told_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("static", "fixed-history", "future-oracle"):
        monkeypatch.setitem(MODES, name, small(name))
    named: list[str] = []
    found = assess(case(), ("static", "fixed-history", "future-oracle"), seed=1, tell=named.append)
    assert named == ["static", "fixed-history", "future-oracle"]
    assert found.gain("static") == 1.0
    page = found.told()
    assert "| future-oracle |" in page
    assert found.recommendation() in page
    assert [row["mode"] for row in found.rows()] == named
    assert case().space.check(found.settings()) == []
    with pytest.raises(ConfigError, match="must be among"):
        assess(case(), ("magic",))


def test_wrong_cases_are_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        Case(trace=trace(), cluster=CLUSTER, scheduler="tiresias", from_s=5.0, to_s=1.0, goal="fame")
    assert len(caught.value.faults) == 2
    with pytest.raises(ConfigError, match="no job"):
        Case(trace=trace(), cluster=CLUSTER, scheduler="tiresias", from_s=9 * DAY_S, to_s=10 * DAY_S)
    with pytest.raises(ConfigError, match=r"spans 3\.9 days"):
        last_window(trace(), CLUSTER, "tiresias", 3.0)
    assert last_window(trace(), CLUSTER, "tiresias", 1.0).to_s > 3.8 * DAY_S


def test_wrong_modes_are_refused_together() -> None:
    with pytest.raises(ConfigError) as caught:
        Mode(words="", start="nowhere", futures="magic", draws=0, least_gain=0.5, predictor=PredictorOptions())
    assert len(caught.value.faults) == 4


def test_it_gives_up_for_a_week_after_changes_that_gained_nothing() -> None:
    from autosched.tune.loop import _has_stopped_gaining

    def decision(day: float, realised: float) -> Decision:
        values = {"predicted": 1.1, "load": 1.0, "waiting": 0, "unfinished": 1, "simulations": 1, "rejected": 0, "cpu_s": 0.0, "words": ""}
        return Decision(at_s=day * DAY_S, before=Config(a=1), after=Config(a=2), realised=realised, **values)  # type: ignore[arg-type]

    bad = [decision(day, 0.99) for day in (1, 2, 3)]
    assert _has_stopped_gaining(bad, 4 * DAY_S)
    assert not _has_stopped_gaining(bad[:2], 4 * DAY_S)
    assert not _has_stopped_gaining([*bad, decision(4, 1.1)], 5 * DAY_S)
    assert not _has_stopped_gaining(bad, 10 * DAY_S)


def test_noise_is_what_the_seeds_differ_by() -> None:
    wide = made_up(static=130.0, fixed_history=[100.0, 140.0, 118.0])
    assert wide.gain("fixed-history") == pytest.approx(130 / 118)
    assert wide.noise("fixed-history") == pytest.approx((1.3 - 130 / 140) / 2)
    assert "Leave the default" in wide.recommendation(), "the seeds differ by more than the gain"
    assert wide.recommended == "static"
    narrow = made_up(static=130.0, fixed_history=[117.0, 119.0, 118.0])
    assert narrow.recommended == "fixed-history"
    assert "over 3 seeds fixed-history gained 1.092 to 1.111 times" in narrow.recommendation()

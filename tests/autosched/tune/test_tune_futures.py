"""Runs over futures are stopped once they cannot win any more, and what they would have cost at least is right."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autosched.schedulers.tiresias import Tiresias
from autosched.sim.cluster import Cluster
from autosched.sim.session import Session
from autosched.sim.trace import Trace
from autosched.tune.futures import Builder, Future, FutureRun, Pruned, Question, outcome
from autosched.tune.goals import Goal
from autosched.tune.measures import Before, measures
from autosched.tune.search import SearchOptions, search
from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.errors import Infeasible
from autoscout.core.seeds import stream
from autoscout.core.task import Objective

CLUSTER = Cluster.parse("2x8")
DEFAULT = Tiresias.space(CLUSTER).default()
RESTLESS = Config({**dict(DEFAULT), "queues": 2, "threshold": 60.0, "starvation": "promote", "promote": 0.5})
"""Jobs return to the first queue as soon as they have waited half as long as they have run, and leave it after a minute."""


def future(seed: int, at_s: float = 0.0) -> Future:
    draw = np.random.default_rng(seed)
    jobs = Trace.of(np.sort(draw.uniform(0, 20_000, 120)), draw.lognormal(8.0, 1.0, 120), draw.choice([1, 2, 4, 8], 120))
    return Future(at_s=at_s, arrivals=jobs)


def question(*futures: Future) -> Question:
    return Question(futures=futures, cluster=CLUSTER, build=Builder(scheduler="tiresias"), reference=DEFAULT)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("config", [DEFAULT, RESTLESS])
def test_what_a_stopped_run_costs_at_least(seed: int, config: Config) -> None:
    there = future(seed)
    whole = outcome(there, CLUSTER, Tiresias.of(config))["time_s"]
    run = FutureRun(there, Session(there.arrivals, CLUSTER, Tiresias.of(config)))
    known = []
    for decisions in (20, 80, 200, 400, 800, 2_000):
        if run.run(float(decisions)):
            break
        known.append(run.least_s())
    assert len(known) >= 3
    assert known == sorted(known)
    assert known[0] >= there.arrivals.duration_s.mean() - 1e-6
    assert known[-1] <= whole + 1e-6
    assert known[-1] > known[0]
    run.run()
    assert run.metrics(fair=False)["time_s"] == whole, "looking at a run changes nothing"


def test_a_configuration_that_cannot_win_is_stopped() -> None:
    there = future(1)
    asked = question(there)
    best = asked(DEFAULT)["time_s"]
    whole = FutureRun(there, Session(there.arrivals, CLUSTER, Tiresias.of(RESTLESS)))
    whole.run()
    assert whole.decisions > 3_000
    with pytest.raises(Pruned, match="at least") as caught:
        asked(RESTLESS)
    assert best <= caught.value.least_s <= whole.metrics(fair=False)["time_s"]
    assert asked.stopped == [caught.value.least_s]
    assert RESTLESS not in asked.each
    assert asked.simulations == 2


@pytest.mark.parametrize("fair", [False, True])
def test_no_settings_gain_more_than_there_is_room_for(fair: bool) -> None:
    asked = Question(
        futures=[future(1), future(5)],
        cluster=CLUSTER,
        build=Builder(scheduler="tiresias"),
        reference=DEFAULT,
        goal=Goal.of("fair" if fair else "time"),
    )
    room = asked.room(DEFAULT)
    assert room > 1.0
    known = 0
    for seed in range(12):
        config = Tiresias.space(CLUSTER).sample(stream(seed, "room"))
        assert config is not None
        try:
            found = asked(config)
        except Pruned:
            continue
        known += 1
        base = asked(DEFAULT)
        assert (found["fair_share"] / base["fair_share"] if fair else base["time_s"] / found["time_s"]) <= room + 1e-9
    assert known >= 6
    quiet = Question(futures=[Future(at_s=0.0, arrivals=Trace.of([0.0], [5_000.0], [1]))], cluster=CLUSTER, build=Builder(scheduler="fifo"))
    assert quiet.room(plugins.get("scheduler", "fifo").space(CLUSTER).default()) == pytest.approx(1.0, abs=1e-3)


def test_a_search_learns_that_a_configuration_was_stopped() -> None:
    asked = question(future(2), future(3))

    def ask(config: Config) -> dict[str, float]:
        return asked(DEFAULT) if config == DEFAULT else asked(RESTLESS)

    found = search(Tiresias.space(CLUSTER), ask, Objective(metric="time_s"), DEFAULT, SearchOptions(searcher="random", trials=3))
    assert found.best == DEFAULT
    assert len(found.runs) == 1
    assert len(asked.stopped) == 3


@pytest.mark.parametrize("scheduler", ["tiresias", "themis", "lucid", "srtf"])
def test_setting_out_from_a_copy_is_setting_out_from_the_snapshot(scheduler: str) -> None:
    """All configurations share the beginning of a future that has a snapshot; each does as it would alone."""
    cluster = Cluster.parse("4x8")
    jobs = future(4).arrivals
    plugin = plugins.get("scheduler", scheduler)
    space = plugin.space(cluster)
    session = Session(jobs.between(0, 9_000), cluster, plugin.of(space.default()))
    session.step(9_000.0)
    there = Future(at_s=9_000.0, arrivals=jobs.between(9_000, np.inf), snapshot=session.snapshot())
    asked = Question(futures=[there], cluster=cluster, build=Builder(scheduler=scheduler))
    for config in (space.default(), *(space.sample(stream(seed, "copy")) for seed in range(6))):
        try:
            alone = outcome(there, cluster, plugin.of(config))
            assert asked(config) == pytest.approx(alone)
        except (Infeasible, Pruned):
            continue
    assert len(asked.each) >= 3


def test_a_configuration_that_is_worse_on_too_many_futures_is_not_tried_on_the_rest() -> None:
    futures = [future(seed) for seed in range(4)]
    asked = replace(question(*futures), least_share=0.75)
    slow = _slower(futures)
    with pytest.raises(Pruned):
        asked(slow)
    assert asked.simulations == len(futures) + 2, "the reference on all, the other until it has lost on two of four"
    assert slow not in asked.each
    whole = asked(slow, whole=True)
    assert whole["time_s"] > asked(DEFAULT)["time_s"]
    assert len(asked.each[slow]) == len(futures)


def _slower(futures: Sequence[Future]) -> Config:
    """Settings that are worse than the default on every future."""
    draw = stream(3, "samples")
    while True:
        config = Tiresias.space(CLUSTER).sample(draw)
        with contextlib.suppress(Pruned):
            if min(question(*futures).gains(config, DEFAULT, "time_s")) > 1.01:
                return config


@pytest.mark.parametrize("scheduler", ["tiresias", "themis", "srtf"])
def test_what_happened_before_a_future_is_not_charged_to_it(scheduler: str) -> None:
    """Stopped half-way or not, the second half of a run has the same metrics; stops and idle GPUs of the first half are not among them."""
    jobs, plugin = future(4).arrivals, plugins.get("scheduler", scheduler)
    session = Session(jobs, CLUSTER, plugin.of(plugin.space(CLUSTER).default()))
    session.step(9_000.0)
    half = session.result()
    before = Before(
        at_s=9_000.0,
        executed_s=half.executed_s,
        remaining_s=np.where(half.ended, 0.0, half.remaining_s),
        preemptions=half.preemptions.astype(np.float64),
        idle_gpu_s=half.counters["idle_while_waiting_gpu_s"],
    )
    assert half.preemptions.sum() or scheduler == "srtf"
    assert before.idle_gpu_s > 0
    there = Future(at_s=9_000.0, arrivals=jobs.between(9_000, np.inf), snapshot=session.snapshot(), until_s=25_000.0)
    alone = outcome(there, CLUSTER, session.scheduler)
    session.step(25_000.0)
    assert alone == pytest.approx(measures(session.result(), before))

from __future__ import annotations

import pickle

import numpy as np
import pytest

from autoscout.core import plugins
from autoscout.core.config import Config
from autoscout.core.seeds import stream
from autoscout.core.task import Direction
from autoscout.core.trial import Fidelity, Proposal, Status
from autoscout.sched.cluster import Cluster
from autoscout.sched.scheduler import Scheduler
from autoscout.sched.simulation import SchedulerEvaluator, Simulation
from autoscout.sched.workload.synthetic import Recipe, generate

CLUSTER = Cluster.parse("8x8")


@pytest.fixture(scope="module")
def question() -> Simulation:
    trace = generate(Recipe(profile="philly", jobs=400, days=1, load=1.2, cluster_gpus=CLUSTER.gpus, seed=4))
    return Simulation(trace=trace, cluster=CLUSTER, scheduler="tiresias")


@pytest.mark.parametrize("name", plugins.available("scheduler"))
def test_every_configuration_of_every_space_runs(name: str, question: Simulation) -> None:
    kind = plugins.get("scheduler", name)
    space = kind.space(CLUSTER)
    assert isinstance(kind(), Scheduler)
    assert kind.of(kind.space(Cluster.parse("64x8")).default()) == kind()
    asked = Simulation(trace=question.trace, cluster=CLUSTER, scheduler=name)
    draw = stream(1, name)
    for _ in range(8):
        config = space.sample(draw)
        metrics = asked(config)
        assert metrics["ended"] == 400
        assert all(np.isfinite(value) for value in metrics.values())


def test_thresholds_follow_the_number_of_queues(question: Simulation) -> None:
    space = question.space()
    assert "threshold" not in space.undecided(Config(queues=1))
    config = space.project(space.default(), Config(queues=4, threshold=240.0, ratio_3=2.0, ratio_4=8.0))
    assert plugins.get("scheduler", "tiresias").of(config).thresholds == (240.0, 480.0, 3_840.0)


def test_starvation_rules_are_apart(question: Simulation) -> None:
    build = plugins.get("scheduler", "tiresias").of
    limited = build(question.space().project(question.space().default(), Config(starvation="limit")))
    assert limited.starve_limit_s == 86_400
    assert limited.promote == 0


def test_measurements(question: Simulation) -> None:
    evaluator = SchedulerEvaluator(question)
    space = question.space()
    good, bad = evaluator.evaluate([Proposal(config=space.default()), Proposal(config=Config(queues=99))])
    assert good.status is Status.OK
    assert good.fidelity is Fidelity.SIMULATED
    assert good.metrics["jobs"] == 400
    assert bad.status is Status.INVALID
    assert "queues" in bad.reason
    evaluator.cancel()
    assert evaluator.evaluate([Proposal(config=space.default())])[0].status is Status.ABORTED
    assert evaluator.recheck() == []


def test_refusals_are_measurements(question: Simulation) -> None:
    small = Simulation(trace=question.trace, cluster=Cluster.parse("1x8"), scheduler="fifo")
    answer = SchedulerEvaluator(small).evaluate([Proposal(config=small.space().default())])[0]
    assert answer.status is Status.INVALID
    assert "larger than the cluster" in answer.reason


@pytest.mark.parametrize("place", ["inline", "local"])
def test_through_an_executor(question: Simulation, place: str) -> None:
    kind = plugins.get("executor", place)
    with kind() as executor:
        evaluator = SchedulerEvaluator(question, executor)
        proposals = [Proposal(config=question.space().default()), Proposal(config=Config(queues=99))]
        here = SchedulerEvaluator(question).evaluate(proposals)
        there = evaluator.evaluate(proposals)
        assert there[0].metrics == here[0].metrics
        assert there[1].status is Status.INVALID


def test_questions_travel(question: Simulation) -> None:
    again: Simulation = pickle.loads(pickle.dumps(question))
    config = question.space().default()
    assert again(config) == question(config)


def test_fixed_fields_and_tasks(question: Simulation) -> None:
    asked = Simulation(trace=question.trace, cluster=CLUSTER, scheduler="tiresias", fixed=(("round_s", 300.0),))
    assert asked.build(asked.space().default()).round_s == 300  # type: ignore[attr-defined]
    assert asked.task("mean_jct_s").objective.direction is Direction.MINIMIZE
    assert asked.task("fair_share_forgiving").objective.direction is Direction.MAXIMIZE
    assert asked.task().hardware["gpus"] == 64

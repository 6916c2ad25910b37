"""Searcher `hybrid` where trials are expensive, and what searchers remember of trials that were stopped early."""

from __future__ import annotations

import math

import pytest

from autoscout.core.config import Config
from autoscout.core.trial import EXPENSIVE_S, Measurement, Proposal, Status, Trial
from autoscout.learning.answers import AnswerSet
from autoscout.search.hybrid import HybridSearcher
from autoscout.space import Choice, Flag, Grid, Space
from autoscout.testing.searcher import TASK

SMALL = Space([Choice("kernel", ["a", "b", "c", "d"]), Flag("fused"), Grid("tile", 1, 16), Grid("depth", 1, 8)])
LARGE = Space([Grid(name, 1, 16, default=8) for name in "abcdefgh"])


def answer(config: Config, time_s: float = 1.0, cost_s: float = 0.0, status: Status = Status.OK) -> Trial:
    metrics = {"time_s": time_s} if status is Status.OK else {}
    return Trial(proposal=Proposal(config=config), measurement=Measurement(status=status, metrics=metrics, cost_s=cost_s))


def changes(space: Space, first: Trial) -> list[int]:
    """Knobs of the default that each proposal after it changes."""
    searcher = HybridSearcher(space, TASK, 3)
    searcher.tell([first])
    found = []
    for _ in range(3):
        (proposal,) = searcher.ask(1)
        found.append(sum(proposal.config[name] != value for name, value in space.default().items()))
        searcher.tell([answer(proposal.config, 2.0, first.measurement.cost_s)])
    return found


@pytest.mark.parametrize("space", [SMALL, LARGE], ids=["listed", "sampled"])
def test_the_first_proposals_change_few_knobs_where_trials_are_expensive(space: Space) -> None:
    assert max(changes(space, answer(space.default(), cost_s=EXPENSIVE_S))) <= 2
    assert max(changes(space, answer(space.default(), cost_s=EXPENSIVE_S / 2))) > 2
    assert max(changes(space, answer(space.default(), cost_s=EXPENSIVE_S, status=Status.OOM_START))) > 2, "the default is no place to start"


def test_a_list_without_near_rows_starts_with_the_nearest() -> None:
    rows = [Config(a=a, b=a, c=a, d=a, e=a, f=a, g=a, h=a) for a in (8, 1, 16, 4, 12)]
    space = LARGE.among(rows)
    assert changes(space, answer(space.default(), cost_s=100.0))[0] == 8


def bounded(x: int, bound: float, so_far: float | None = None) -> Trial:
    metrics = {} if so_far is None else {"time_s": so_far, "memory_gb": 1.0}
    measurement = Measurement(status=Status.BOUNDED, metrics=metrics, bounds={"time_s": bound}, cost_s=30.0)
    return Trial(proposal=Proposal(config=Config(x=x)), measurement=measurement)


def test_a_bounded_answer_is_an_estimate_that_is_no_better_than_its_bound() -> None:
    told = AnswerSet(Space([Grid("x", 0, 9)]), TASK.objective)
    told.add([answer(Config(x=0), 1.0, 10.0), answer(Config(x=1), 3.0), answer(Config(x=2), 5.0)])
    told.add([bounded(3, 2.0), bounded(4, 2.0, 2.5), bounded(5, 2.0, 1.5), bounded(6, 9.0)])
    losses = {trial.config["x"]: (trial.loss, trial.bounded) for trial in told.answers()}
    assert losses[3] == (4.0, True), "the mean of those that are no better"
    assert losses[4] == (2.5, True), "what it had reached"
    assert losses[5] == (2.0, True), "never better than the bound"
    assert losses[6] == (9.0, True)
    assert losses[0] == (1.0, False)
    assert {one.config["x"]: one.cost_s for one in told.answers() if one.config["x"] in (0, 3)} == {0: 10.0, 3: 30.0}


def test_an_answer_that_was_measured_to_its_end_replaces_a_bound() -> None:
    told = AnswerSet(Space([Grid("x", 0, 9)]), TASK.objective)
    again = answer(Config(x=3), 1.9)
    told.add([bounded(3, 2.0), Trial(proposal=Proposal(config=Config(x=3), repeat=1), measurement=again.measurement)])
    told.add([Trial(proposal=Proposal(config=Config(x=3), repeat=2), measurement=again.measurement)])
    (one,) = told.answers()
    assert (one.loss, one.bounded) == (pytest.approx(1.9), False)


def test_a_bound_on_a_limit_alone_is_a_broken_limit() -> None:
    told = AnswerSet(Space([Grid("x", 0, 9)]), TASK.objective)
    told.add([Trial(proposal=Proposal(config=Config(x=1)), measurement=Measurement(status=Status.BOUNDED, bounds={"p95_ms": 1e9}))])
    assert [math.isinf(one.loss) for one in told.answers()] == [True]

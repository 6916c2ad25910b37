from __future__ import annotations

import math

import pytest

from autoscout.core.config import Config
from autoscout.core.guards import as_told
from autoscout.core.journal import decode, encode
from autoscout.core.launch import Launch
from autoscout.core.task import Direction, Guard, Limit, Objective, Task
from autoscout.core.to_beat import VARIABLE, ToBeat
from autoscout.core.trial import Measurement, Proposal, Status, Trial

SLO = Limit.parse("p95_ttft_ms<=500")
FASTER = ToBeat(metric="tps", direction=Direction.MAXIMIZE, value=100.0, limits=(SLO,), spread=0.02)


def test_a_launch_carries_it_to_the_program() -> None:
    launch = FASTER.told_to(Launch(argv=("x",), env={"A": "1"}))
    assert launch.env["A"] == "1"
    assert ToBeat.here(launch.env) == FASTER


@pytest.mark.parametrize("text", ["", "{}", "[]", "nonsense", '{"metric": "m", "direction": "up", "value": 1, "limits": [], "spread": 0}'])
def test_what_cannot_be_read_is_ignored(text: str) -> None:
    assert ToBeat.here({VARIABLE: text}) is None
    assert ToBeat.here({}) is None


def test_lost_once_even_the_best_it_can_reach_is_too_bad() -> None:
    assert FASTER.lost({}) == FASTER.lost({"tps": 100.0, "p95_ttft_ms": 500.0}) == FASTER.lost({"other": 1e9}) == ""
    assert FASTER.lost({"tps": 99.0}) == "tps is at most 99, and 100 is to beat"
    assert FASTER.lost({"tps": 200.0, "p95_ttft_ms": 501.0}) == "p95_ttft_ms is at least 501, which breaks p95_ttft_ms<=500"
    sooner = ToBeat(metric="time_s", direction=Direction.MINIMIZE, value=3.0)
    assert sooner.lost({"time_s": 3.0}) == ""
    assert "at least 3.1" in sooner.lost({"time_s": 3.1})
    assert ToBeat(metric="tps", direction=Direction.MAXIMIZE).lost({"tps": 0.0}) == "", "nothing to beat yet"


def test_short_measurements_leave_room_for_their_error() -> None:
    once, often = FASTER.likely({"tps": [96.0], "x": [1.0]}), FASTER.likely({"tps": [96.0] * 9, "p95_ttft_ms": [490.0, 610.0]})
    assert once == {"tps": pytest.approx(96.0 * 1.06)}
    assert often["tps"] == pytest.approx(96.0 * 1.02)
    assert often["p95_ttft_ms"] < 490.0, "two values that differ this much say little"
    assert not FASTER.lost(once)
    assert FASTER.lost(often)


BOUNDED = Measurement(status=Status.BOUNDED, metrics={"tps": 70.0}, bounds={"tps": 80.0, "p95_ttft_ms": 300.0}, reason="why")


def test_a_bounded_trial_is_no_result_and_no_failure() -> None:
    objective = Objective(metric="tps", direction=Direction.MAXIMIZE, limits=(SLO,))
    assert not BOUNDED.ok
    assert not BOUNDED.status.failed
    assert math.isinf(objective.loss(BOUNDED))
    assert objective.value(BOUNDED) is None
    assert objective.least_loss(BOUNDED) == -80.0
    broken = Measurement(status=Status.BOUNDED, bounds={"tps": 80.0, "p95_ttft_ms": 501.0})
    assert math.isinf(objective.least_loss(broken))
    assert math.isinf(objective.least_loss(Measurement(status=Status.BOUNDED)))
    trial = Trial(proposal=Proposal(config=Config(x=1)), measurement=BOUNDED)
    assert decode(encode(trial)) == trial


def test_a_bound_that_breaks_a_guard_says_nothing_of_the_objective() -> None:
    objective = Objective(metric="tps", direction=Direction.MAXIMIZE, guards=(Guard.parse("p95_ttft_ms<=1.2x"),))
    task = Task(system="s", objective=objective)
    default = Trial(
        proposal=Proposal(config=Config(x=0)), measurement=Measurement(status=Status.OK, metrics={"tps": 1.0, "p95_ttft_ms": 200.0})
    )
    told = as_told(Trial(proposal=Proposal(config=Config(x=1)), measurement=BOUNDED), task, [default], Config(x=0)).measurement
    assert math.isinf(task.objective.least_loss(told))
    kept = Measurement(status=Status.BOUNDED, bounds={"tps": 80.0, "p95_ttft_ms": 210.0})
    told = as_told(Trial(proposal=Proposal(config=Config(x=1)), measurement=kept), task, [default], Config(x=0)).measurement
    assert task.objective.least_loss(told) == -80.0

from __future__ import annotations

import json
import math

import pytest

from autoscout.core.errors import ConfigError
from autoscout.core.task import Budget, Direction, Goal, Guard, Limit, Objective, Task, similarity
from autoscout.core.trial import Measurement, Status


def task(**changes: object) -> Task:
    given = {
        "system": "toy",
        "objective": Objective(metric="speed", direction=Direction.MAXIMIZE, limits=(Limit.parse("p95_ms<=500"),)),
        "workload": {"prompt": 128, "model": "m.gguf"},
        "hardware": {"gpus": 8},
        "budget": Budget(trials=20),
        **changes,
    }
    return Task(**given)  # type: ignore[arg-type]


def test_limits_in_both_grammars() -> None:
    assert Limit.parse(" p95_ttft_ms <= 500 ") == Limit(metric="p95_ttft_ms", op="<=", value=500.0)
    assert Limit.parse("ttft_ms:p95:le:500") == Limit(metric="p95_ttft_ms", op="<=", value=500.0)
    assert str(Limit.parse("a>1e3")) == "a>1000"


@pytest.mark.parametrize("text", ["", "p95", "p95==3", "p95<=fast", "a:b:c", "a:b:about:3", "__import__('os')<=1"])
def test_a_bad_limit_says_how_one_reads(text: str) -> None:
    with pytest.raises(ConfigError, match="a limit reads METRIC<=NUMBER"):
        Limit.parse(text)


def test_loss_is_infinite_for_failures_and_broken_limits() -> None:
    objective = task().objective
    fine = Measurement(status=Status.OK, metrics={"speed": 10.0, "p95_ms": 400.0})
    assert objective.loss(fine) == -10.0
    assert objective.loss(Measurement(status=Status.OK, metrics={"speed": 10.0, "p95_ms": 501.0})) == math.inf
    assert objective.loss(Measurement(status=Status.OK, metrics={"speed": 10.0})) == math.inf, "a limit nobody measured does not hold"
    assert objective.loss(Measurement(status=Status.OOM_RUN)) == math.inf
    assert objective.loss(Measurement(status=Status.OK, metrics={"p95_ms": 1.0})) == math.inf


def test_gain_is_above_one_when_better_whatever_the_direction() -> None:
    assert Objective(metric="t").gain(reference=2.0, value=1.0) == 2.0
    assert Objective(metric="v", direction=Direction.MAXIMIZE).gain(reference=2.0, value=1.0) == 0.5


def test_all_bad_budgets_in_one_error() -> None:
    with pytest.raises(ConfigError) as caught:
        Budget(trials=0, wall_s=-1.0)
    assert [fault.field for fault in caught.value.faults] == ["trials", "wall_s"]


def test_json_round_trip_and_identity() -> None:
    one = task()
    again = Task.from_json(json.loads(json.dumps(one.to_json())))
    assert again == one
    assert task(budget=Budget(trials=99)).key == one.key, "spending more does not make it another task"
    assert task(hardware={"gpus": 4}).key != one.key


def test_similarity() -> None:
    one = task()
    assert similarity(one, one) == 1.0
    assert similarity(one, task(system="other")) == 0.0
    near, far = task(hardware={"gpus": 16}), task(hardware={"gpus": 128}, workload={"prompt": 1, "model": "x"})
    assert 1.0 > similarity(one, near) > similarity(one, far) > 0.0


FRONT = Objective(metric="speed", direction=Direction.MAXIMIZE, limits=(Limit.parse("mem_gib<=9"),), also=(Goal(metric="p95_ms"),))


def test_several_goals_have_a_loss_each() -> None:
    fine = Measurement(status=Status.OK, metrics={"speed": 10.0, "p95_ms": 400.0, "mem_gib": 8.0})
    assert FRONT.several
    assert FRONT.losses(fine) == (-10.0, 400.0)
    assert FRONT.loss(fine) == -10.0
    for bad in (
        {"speed": 10.0, "mem_gib": 8.0},  # one goal was not reported
        {"speed": 10.0, "p95_ms": 400.0, "mem_gib": 10.0},  # a limit is broken
    ):
        assert FRONT.losses(Measurement(status=Status.OK, metrics=bad)) == (math.inf, math.inf)
    assert FRONT.only(FRONT.goals[1]) == Objective(metric="p95_ms", limits=FRONT.limits)


def test_several_goals_are_kept_with_the_task() -> None:
    several = task(objective=FRONT)
    assert Task.from_json(json.loads(json.dumps(several.to_json()))) == several
    assert several.key != task(objective=FRONT.only(FRONT.goals[0])).key


def test_a_task_with_one_goal_is_named_as_before_there_were_several() -> None:
    limits, guards = (Limit.parse("p95_ms<=500"),), (Guard.parse("p99_itl_ms<=1.2x"),)
    one = Task(
        system="toy",
        objective=Objective(metric="speed", direction=Direction.MAXIMIZE, limits=limits, guards=guards),
        hardware={"gpus": 8},
    )
    assert one.key == "0c62e9f6bdb0d3e7"  # of stored studies


@pytest.mark.parametrize(("text", "found"), [("a_ms", ("a_ms", None)), (" score : maximize", ("score", Direction.MAXIMIZE))])
def test_goals_as_people_write_them(text: str, found: tuple[str, Direction | None]) -> None:
    assert Goal.parse(text) == found


@pytest.mark.parametrize("text", ["", "a:up", "a b", ":minimize"])
def test_a_bad_goal_says_how_one_reads(text: str) -> None:
    with pytest.raises(ConfigError, match="a goal reads METRIC"):
        Goal.parse(text)

from __future__ import annotations

import json
import math

import pytest

from autoscout.core.errors import ConfigError
from autoscout.core.task import Budget, Direction, Limit, Objective, Task, similarity
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
    assert Objective(metric="t").gain(baseline=2.0, value=1.0) == 2.0
    assert Objective(metric="v", direction=Direction.MAXIMIZE).gain(baseline=2.0, value=1.0) == 0.5


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

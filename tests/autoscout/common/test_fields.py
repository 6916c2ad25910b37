from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field

from autoscout.common.fields import Block, natural_direction, read_blocks, read_fields, read_objective, refuse_if
from autoscout.common.text import nearest, suggestion
from autoscout.core.errors import ConfigError, Fault
from autoscout.core.task import Budget, Direction, Limit


class Inner(Block):
    depth: int = 1


class Workload(Block):
    file: str
    rows: int = Field(1000, gt=0)
    rate: float = 1.0
    inner: Inner = Inner()


def told(data: dict[str, Any]) -> list[str]:
    return [str(fault) for fault in read_fields(Workload, data, "workload")[1]]


def test_a_block_is_read_with_its_defaults_and_null_is_left_out() -> None:
    found, faults = read_fields(Workload, {"file": "a", "rate": 2, "rows": None}, "workload")
    assert found == Workload(file="a", rate=2.0)
    assert faults == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "workload: file: is required"),
        ({"file": 3}, "workload: file: must be text (found 3)"),
        ({"file": "a", "rows": 0}, "workload: rows: must be above 0 (found 0)"),
        ({"file": "a", "rows": "3"}, "workload: rows: must be a whole number (found '3')"),
        ({"file": "a", "rows": True}, "workload: rows: must be a whole number (found True)"),
        ({"file": "a", "rate": "fast"}, "workload: rate: must be a number (found 'fast')"),
        ({"file": "a", "rwos": 3}, "workload: rwos: unknown key (found 3). Did you mean 'rows'?"),
        ({"file": "a", "inner": {"dpeth": 2}}, "workload: inner.dpeth: unknown key (found 2). Did you mean 'depth'?"),
        ({"file": "a", "inner": 3}, "workload: inner: must be a mapping with text keys (found 3)"),
    ],
)
def test_faults_name_field_value_rule_and_fix(data: dict[str, Any], message: str) -> None:
    assert told(data) == [message]


def test_all_faults_come_together_and_the_rest_is_still_read() -> None:
    found, faults = read_fields(Workload, {"file": "a", "rows": -1, "rate": "x", "other": 1}, "workload")
    assert [fault.field for fault in faults] == ["rows", "rate", "other"]
    assert found == Workload(file="a")
    assert read_fields(Workload, {"file": 3, "rows": 5}, "workload")[0] is None, "nothing without a required field"


def test_a_long_value_is_cut() -> None:
    (message,) = told({"file": ["x" * 500]})
    assert len(message) < 200


def test_blocks_of_a_task() -> None:
    blocks = read_blocks({"system": "sort", "workload": {"a": 1}, "goal": "wall_s", "budget": {"trials": 3}, "hardware": None})
    assert (blocks.workload, blocks.objective, blocks.budget, blocks.hardware) == ({"a": 1}, {"metric": "wall_s"}, Budget(trials=3), {})
    assert not blocks.faults


def test_strange_blocks_are_refused_together() -> None:
    blocks = read_blocks({"wrkload": {}, "hardware": 3, "budget": {"trials": 0, "wall": 3}, "space": {}})
    assert [fault.field for fault in blocks.faults] == ["wrkload", "hardware", "space", "trials", "wall"]
    assert "Did you mean 'workload'?" in str(blocks.faults[0])
    assert not read_blocks({"space": {}}, also=("space",)).faults
    with pytest.raises(ConfigError, match="wrkload"):
        refuse_if(blocks.faults)


def test_an_objective() -> None:
    objective, faults = read_objective({"slo": ["p95_ttft_ms<=5"], "limits": ["wall_s<1"]}, metrics=None, default="output_throughput")
    assert faults == []
    assert (objective.metric, objective.direction) == ("output_throughput", Direction.MAXIMIZE)
    assert objective.limits == (Limit(metric="wall_s", op="<", value=1.0), Limit(metric="p95_ttft_ms", op="<=", value=5.0))


def test_an_objective_with_every_fault() -> None:
    data = {"metric": "wall", "direction": "up", "slo": ["what", "walls<=3"], "limit": []}
    _, faults = read_objective(data, metrics=("wall_s",), default="wall_s")
    assert [(fault.where, fault.field) for fault in faults] == [
        ("goal", "direction"),
        ("goal", "limit"),
        ("slo", ""),
        ("goal", "metric"),
        ("goal", "slo"),
    ]
    assert "Did you mean 'wall_s'?" in faults[3].fix
    (fault,) = read_objective({"metric": "score"}, metrics=("score",), default="wall_s")[1]
    assert fault == Fault(where="goal", field="direction", rule="is more score better, or less?", fix=fault.fix)


@pytest.mark.parametrize(
    ("metric", "direction"),
    [("tokens_per_s", Direction.MAXIMIZE), ("p99_itl_ms", Direction.MINIMIZE), ("peak_mem_gib", Direction.MINIMIZE), ("score", None)],
)
def test_directions_that_names_give_away(metric: str, direction: Direction | None) -> None:
    assert natural_direction(metric) is direction


def test_suggestions() -> None:
    assert suggestion("Bacth", ["batch", "fast"]) == "Did you mean 'batch'?"
    assert suggestion("zzz", ["b", "a"]) == "There are: a, b"
    assert suggestion("zzz", []) == "There are: none"
    assert nearest("tp", ["tps", "pp"], most=1) == ["tps"]


def test_several_metrics_are_several_goals() -> None:
    objective, faults = read_objective({"metrics": ["output_throughput", "p95_ttft_ms", "score:maximize"]}, metrics=None, default="x")
    assert not faults
    assert [str(goal) for goal in objective.goals] == ["output_throughput:maximize", "p95_ttft_ms:minimize", "score:maximize"]
    assert (
        read_objective({"metrics": ["wall_s"]}, metrics=None, default="x")[0]
        == read_objective({"metric": "wall_s"}, metrics=None, default="x")[0]
    )


@pytest.mark.parametrize(
    ("block", "rules"),
    [
        ({"metrics": ["score", "other"]}, ["is more score better, or less?", "is more other better, or less?"]),
        ({"metrics": ["a_ms", "a_ms"]}, ["a metric may be a goal once only"]),
        ({"metrics": ["a_ms", "b_ms"], "metric": "c_ms"}, ["give either metric or metrics"]),
        ({"metrics": ["a_ms", "b_ms"], "direction": "maximize"}, ["each of the metrics has its own"]),
        ({"metrics": ["a_ms", "b_ms", "c_ms", "d_ms", "e_ms"]}, ["at most 4 goals"]),
    ],
)
def test_goals_that_do_not_go_together(block: dict[str, Any], rules: list[str]) -> None:
    assert [fault.rule for fault in read_objective(block, metrics=None, default="x")[1]] == rules


def test_metrics_that_follow_from_others_may_be_goals_of_any_system() -> None:
    objective, faults = read_objective({"metrics": ["tokens_per_joule", "cost_per_million_tokens"]}, metrics=["wall_s"], default="wall_s")
    assert not faults
    assert [goal.direction.value for goal in objective.goals] == ["maximize", "minimize"]

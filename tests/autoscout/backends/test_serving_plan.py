"""The plan of a trial: what is written is read again, and everything wrong with one is said at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autoscout.core.errors import ConfigError
from autoscout.load.plan import AnswerCheck, AnswerReference, Load, TrialGoal, TrialPlan

SERVE = ("server", "--port", "{port}")


def plan(**given: object) -> dict[str, object]:
    return {"serve": list(SERVE), "model": "m", **given}


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = TrialPlan(
        serve=SERVE,
        model="m",
        load=Load(arrival="poisson", request_rate=3.0, input_spread=100),
        goal=TrialGoal(kind="capacity", slo=("p95_ttft_ms<=500",)),
        check=AnswerCheck(reference=AnswerReference(key="k", serve=SERVE)),
        seed=7,
    )
    path = tmp_path / "plan.json"
    path.write_text(written.text())
    assert TrialPlan.read(path) == written
    assert TrialPlan.read(path).goal.limits[0].value == 500


def test_all_faults_at_once() -> None:
    given = plan(
        load={"arrival": "sometimes", "input_tokens": 0},
        goal={"kind": "capacity", "slo": ["p95_ttft<=500", "nonsense"]},
        seeds=3,
    )
    with pytest.raises(ConfigError) as caught:
        TrialPlan.of(given)
    fields = [fault.field for fault in caught.value.faults]
    assert fields == ["load.arrival", "load.input_tokens", "goal.slo", "goal.slo", "seeds"]


@pytest.mark.parametrize(
    ("given", "field"),
    [
        (plan(serve=["server"]), "serve"),
        (plan(goal={"kind": "capacity"}), "goal.slo"),
        (plan(load={"input_tokens": 10, "input_spread": 10}), "load.input_spread"),
        (plan(load={"workload": "trace"}), "load.file"),
        (plan(load={"workload": "trace", "file": "t.csv", "client": "vllm"}), "load.client"),
        (plan(load={"arrival": "poisson"}, goal={"kind": "goodput", "slo": ["p95_ttft_ms<=5"]}), "load.request_rate"),
        (plan(check={"reference": {"key": "../x", "serve": ["s"]}}), "check.reference.key"),
    ],
)
def test_what_does_not_fit_together(given: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TrialPlan.of(given)
    assert [fault.field for fault in caught.value.faults] == [field]


@pytest.mark.parametrize("text", ["", "[]", json.dumps("x"), "{"])
def test_a_file_that_holds_no_plan(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"plan\.json"):
        TrialPlan.read(path)

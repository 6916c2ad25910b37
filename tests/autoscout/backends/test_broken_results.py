"""Files of requests and what programs leave, broken as the soak fuzzer found them: the project's own errors, or a failed measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscout.core.errors import ConfigError
from autoscout.core.launch import Completed
from autoscout.core.trial import Status
from autoscout.engines.workload import read_workload
from autoscout.load import others, plan
from autoscout.load import outcome as serving
from autoscout.load.plan import TrialPlan
from autoscout.load.workload import read_talks, read_trace
from autoscout.training import outcome as training
from autoscout.training.protocol import RESULT

DEEP = "[" * 100_000
HUGE = 10**400


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "timestamp,input_tokens,output_tokens\n1,2,Infinity\n"),
        ("a.jsonl", '{"timestamp": 0, "input_length": 6, "output_length": 5, "hash_ids": [-Infinity]}\n'),
        ("a.jsonl", '{"timestamp": 0, "input_length": ' + DEEP),
    ],
)
def test_broken_request_traces(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError):
        read_trace(tmp_path / name)


@pytest.mark.parametrize("text", [DEEP, '[{"conversations": 5}]', '[{"conversations": "why? because"}]'])
def test_broken_conversations(tmp_path: Path, text: str) -> None:
    (tmp_path / "talks.json").write_text(text)
    with pytest.raises(ConfigError):
        read_talks(tmp_path / "talks.json")


def test_a_plan_nested_too_deep(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"serve": ' + DEEP)
    with pytest.raises(ConfigError):
        TrialPlan.read(tmp_path / "plan.json")


@pytest.mark.parametrize("text", [DEEP, '{"output_token_throughput": {"avg": "' + "a" * 100_000 + '"}}', json.dumps({"duration": HUGE})])
@pytest.mark.parametrize("client", others.PROGRAMS)
def test_broken_results_of_load_programs(tmp_path: Path, client: str, text: str) -> None:
    place = tmp_path / others.PROGRAMS[client].output
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)
    with pytest.raises(others.Unreadable) as caught:
        others.read(TrialPlan.of({"serve": ["x", "{port}"], "model": "m", "load": {"client": client}}), tmp_path)
    assert len(str(caught.value)) < 1000


GOOD: dict[str, Any] = {"metrics": {"step_ms": 3.5, "peak_mem_gib": 1.0}, "samples": {}, "spent": {}}


@pytest.mark.parametrize(
    "left",
    [
        DEEP,
        json.dumps({**GOOD, "samples": 1}),
        json.dumps({**GOOD, "samples": {"step_ms": {"a": 2.0}}}),
        json.dumps({**GOOD, "samples": {"step_ms": "3.5"}}),
        json.dumps({**GOOD, "metrics": {**GOOD["metrics"], "tokens": HUGE}}),
    ],
)
def test_broken_results_of_a_trial_are_wrong_output(left: str) -> None:
    served = serving.outcome(Completed(returncode=0, outputs={plan.RESULT: left}))
    trained = training.outcome(Completed(returncode=0, outputs={RESULT: left}), "step_ms")
    assert (served.status, trained.status) == (Status.WRONG_OUTPUT, Status.WRONG_OUTPUT)


def test_huge_numbers_of_seconds_spent_and_lines_without_end_do_no_harm() -> None:
    served = serving.outcome(Completed(returncode=0, outputs={plan.RESULT: json.dumps({**GOOD, "spent": {"starting_s": HUGE}})}))
    assert served.status is Status.OK
    trained = training.outcome(Completed(returncode=1, stderr="a and " * 200_000), "step_ms")  # took minutes
    assert trained.status is Status.CRASHED


def test_names_of_models_that_no_file_can_have() -> None:
    for name in ("-" * 5000, "a\0b"):
        workload, facts, _ = read_workload({"model": name})
        assert facts.vocab == 0
        assert workload is None or workload.model == name

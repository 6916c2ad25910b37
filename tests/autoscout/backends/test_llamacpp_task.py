"""Tasks of the `llamacpp` backend: what is filled in, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llamacpp_running import HARDWARE, SMALL, fixed_task

from autoscout.backends.llamacpp import LlamaCppBackend
from autoscout.backends.llamacpp.backend import hardware_of
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.backends.llamacpp.workload import ALIASES
from autoscout.common import machine
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction, Limit
from autoscout.load.plan import LATENCIES, METRICS, THROUGHPUTS


def faults_of(**given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        LlamaCppBackend().task(given)
    return [str(fault) for fault in caught.value.faults]


def test_nothing_need_be_given() -> None:
    task = LlamaCppBackend().task({})
    assert task.workload["model"] == "random"
    assert (task.objective.metric, task.objective.direction) == ("output_throughput", Direction.MAXIMIZE)
    assert task.hardware == hardware_of({})
    assert set(task.software) >= {"xllamacpp", "openmp", "gpu_build"}


def test_given_facts_stand() -> None:
    task = LlamaCppBackend().task({"hardware": {**HARDWARE, "cores": 64, "cpu": "an abacus"}, "goal": "p99_ttft_ms"})
    assert task.hardware["cores"] == 64
    assert task.hardware["cpu"] == "an abacus"
    assert task.objective.direction is Direction.MINIMIZE


def test_limits_and_direction() -> None:
    goal = {"metric": "median_e2el_ms", "limits": ["p95_ttft_ms<=500"], "slo": ["tpot_ms:p99:le:30"], "direction": "minimize"}
    objective = LlamaCppBackend().task({"objective": goal}).objective
    assert objective.limits == (Limit(metric="p95_ttft_ms", op="<=", value=500), Limit(metric="p99_tpot_ms", op="<=", value=30))


def test_all_faults_come_together() -> None:
    found = faults_of(
        workload={"inptu_tokens": 3, "concurrency": "many", "repeats": 0, "allow_lossy": "yes", "engine_defaults": "ollama", "limit_s": -1},
        hardware={"cores": 0, "numa_nodes": True},
        goal={"metric": "output_througput", "direction": "up", "slo": ["p95_ttft<=5", "nonsense"]},
        budgets={},
    )
    told = "\n".join(found)
    assert len(found) == 13
    assert "input_tokens" in told, "a close match is suggested"
    assert "Did you mean 'output_throughput'" in told
    assert "p95_ttft_ms" in told
    for field in ("concurrency", "repeats", "allow_lossy", "engine_defaults", "limit_s", "cores", "numa_nodes", "direction", "budgets"):
        assert field in told


def test_metrics_have_a_natural_direction() -> None:
    for metric in (*THROUGHPUTS, *(name for name in METRICS if name.endswith(LATENCIES)), "peak_mem_gib", "start_s", "divergence"):
        objective = (
            LlamaCppBackend().task({"workload": {"request_rate": 2.0}, "goal": {"metric": metric, "slo": ["p95_ttft_ms<=500"]}}).objective
        )
        assert (objective.direction is Direction.MAXIMIZE) == (metric in THROUGHPUTS)


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("none.gguf", None, "No such file"),
        ("folder.gguf", "folder", "cannot be read"),
        ("empty.gguf", b"", "too short"),
        ("text.gguf", b"This is a page of text, and no model at all.", "begins with b'This'"),
        ("old.gguf", b"GGUF" + (1).to_bytes(4, "little") + bytes(40), "version 1"),
        ("cut.gguf", "cut", "broken header"),
        ("bare.gguf", b"GGUF" + (3).to_bytes(4, "little") + bytes(40), "no language model"),
    ],
)
def test_a_model_file_that_is_none(tmp_path: Path, name: str, content: bytes | str | None, why: str) -> None:
    path = tmp_path / name
    if content == "folder":
        path.mkdir()
    elif content == "cut":
        whole = ensure_model("random-tiny", "q8_0", tmp_path / "cache").read_bytes()
        path.write_bytes(whole[:3000])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    (fault,) = faults_of(workload={"model": str(path)})
    assert why in fault
    assert str(path) in fault
    assert "random" in fault, "what to give instead"


def test_a_misspelt_random_model() -> None:
    (fault,) = faults_of(workload={"model": "random-tny"})
    assert "Did you mean 'random-tiny'" in fault


def test_a_users_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ensure_model("random-tiny", "f16", tmp_path)
    monkeypatch.chdir(tmp_path)
    task = LlamaCppBackend().task({"workload": {"model": path.name}})
    assert task.workload["model"] == str(path), "trials run elsewhere, so the path is made absolute"
    assert (task.workload["model_weights"], task.workload["model_layers"], task.workload["model_context"]) == ("f16", 2, 2048)


def test_requests_that_do_not_fit() -> None:
    (fault,) = faults_of(workload={**SMALL, "input_tokens": 2040, "output_tokens": 20})
    assert "2060" in fault
    assert "2048" in fault
    (fault,) = faults_of(workload={**SMALL, "input_tokens": 300, "context": 256})
    assert "304 tokens" in fault
    (fault,) = faults_of(workload={**SMALL, "concurrency": 9, "requests": 8})
    assert "at least the concurrency (9)" in fault
    assert len(faults_of(workload={**SMALL, "concurrency": 300, "requests": 300})) == 1


def test_contexts_are_rounded_as_the_engine_does() -> None:
    assert fixed_task(input_tokens=200, output_tokens=57).workload["context"] == 512
    assert fixed_task(context=1000).workload["context"] == 1024


def test_a_container_counts_its_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CGROUPS", tmp_path)
    free = machine.usable_cores()
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert machine.usable_cores() == 1
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert machine.usable_cores() == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.usable_cores() == free
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("150000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert machine.usable_cores() == 1


@pytest.mark.parametrize(("former", "name", "value"), [("prompt_tokens", "input_tokens", 96)])
def test_former_names_of_fields_are_accepted(former: str, name: str, value: object) -> None:
    assert {former: name}.items() <= ALIASES.items()
    assert fixed_task(**{former: value}).workload == fixed_task(**{name: value}).workload
    (fault,) = faults_of(workload={former: value, name: value})
    assert former in fault
    assert name in fault


def test_the_bound_on_answers_keeps_its_name() -> None:
    task = fixed_task(max_divergence=0.5)
    assert task.workload["max_divergence"] == 0.5
    plan = LlamaCppBackend().plan(LlamaCppBackend().space(task).default(), task, seed=1)
    assert plan.check.max_divergence == 0.5


def test_the_goal_where_only_limits_are_given() -> None:
    slo = {"slo": ["p95_ttft_ms<=500"]}
    assert LlamaCppBackend().task({"goal": slo}).objective.metric == "output_throughput", "of the usual closed loop"
    at_a_rate = LlamaCppBackend().task({"workload": {"request_rate": 2.0}, "goal": slo})
    assert at_a_rate.objective.metric == "goodput"
    named = LlamaCppBackend().task({"goal": {"metric": "capacity_rps", **slo}})
    plan = LlamaCppBackend().plan(LlamaCppBackend().space(named).default(), named, seed=1)
    assert (plan.goal.kind, plan.load.arrival, plan.load.concurrency) == ("capacity", "poisson", 0)
    assert plan.limit_s > plan.goal.search_limit_s


def test_each_window_of_a_traffic_has_its_time() -> None:
    """The limit was that of one window: three at a low rate never came to their end."""

    def limit_s(windows: int) -> float:
        each = [{"name": f"hour {number}", "requests": 100, "seconds": 100, "pairs": [[20, 5]]} for number in range(windows)]
        traffic = {"format": "autoscout traffic 1", "windows": each}
        return float(fixed_task(workload="traffic", traffic=traffic, request_rate=0.5, requests=100).workload["limit_s"])

    assert limit_s(3) == limit_s(1) + 2 * 100 / 0.5


def test_a_capacity_needs_limits() -> None:
    (fault,) = faults_of(goal="capacity_rps")
    assert "needs limits" in fault


def test_conversations_need_a_slot_that_holds_them() -> None:
    task = fixed_task(workload="multi_turn", input_tokens=100, output_tokens=28, turns=4)
    assert task.workload["context"] == 512
    assert task.workload["requests"] == 2 * 8 * 4

"""Tasks of the `llamacpp` backend: what is filled in, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from llamacpp_running import HARDWARE, SMALL, fixed_task

from autoscout.backends.llamacpp import LlamaCppBackend, machine
from autoscout.backends.llamacpp.model import ensure_model
from autoscout.backends.llamacpp.workload import METRICS
from autoscout.catalog import machine as shared_machine
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction, Limit


def faults_of(**given: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        LlamaCppBackend().task(given)
    return [str(fault) for fault in caught.value.faults]


def test_nothing_need_be_given() -> None:
    task = LlamaCppBackend().task({})
    assert task.workload["model"] == "random"
    assert (task.objective.metric, task.objective.direction) == ("output_throughput", Direction.MAXIMIZE)
    assert task.hardware == machine.detect()
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
        workload={"promt_tokens": 3, "concurrency": "many", "repeats": 0, "allow_lossy": "yes", "engine_defaults": "ollama", "limit_s": -1},
        hardware={"cores": 0, "numa_nodes": True},
        goal={"metric": "output_througput", "direction": "up", "slo": ["p95_ttft<=5", "nonsense"]},
        budgets={},
    )
    told = "\n".join(found)
    assert len(found) == 13
    assert "prompt_tokens" in told, "a close match is suggested"
    assert "Did you mean 'output_throughput'" in told
    assert "p95_ttft_ms" in told
    for field in ("concurrency", "repeats", "allow_lossy", "engine_defaults", "limit_s", "cores", "numa_nodes", "direction", "budgets"):
        assert field in told


def test_every_metric_has_a_natural_direction() -> None:
    for metric in METRICS:
        objective = fixed_task().objective if metric == "output_throughput" else LlamaCppBackend().task({"goal": metric}).objective
        assert (objective.direction is Direction.MAXIMIZE) == ("throughput" in metric)


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
    (fault,) = faults_of(workload={**SMALL, "prompt_tokens": 2040, "output_tokens": 20})
    assert "2060" in fault
    assert "2048" in fault
    (fault,) = faults_of(workload={**SMALL, "prompt_tokens": 300, "context": 256})
    assert "304 tokens" in fault
    (fault,) = faults_of(workload={**SMALL, "concurrency": 9, "requests": 8})
    assert "at least the concurrency (9)" in fault
    assert len(faults_of(workload={**SMALL, "concurrency": 300, "requests": 300})) == 1


def test_contexts_are_rounded_as_the_engine_does() -> None:
    assert fixed_task(prompt_tokens=200, output_tokens=57).workload["context"] == 512
    assert fixed_task(context=1000).workload["context"] == 1024


def test_a_container_counts_its_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_machine, "_GROUP", tmp_path)
    free = shared_machine.cores()
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    assert shared_machine.cores() == 1
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert shared_machine.cores() == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert shared_machine.cores() == free
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("150000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert shared_machine.cores() == 1

"""The page of the benchmark of trials that share a process, and which configurations it draws."""

from __future__ import annotations

from benchmarks.per_process import drawn, page

from autoscout.backends.pytorch import PyTorchBackend


def test_only_configurations_that_may_share_are_drawn() -> None:
    backend = PyTorchBackend()
    hardware = {"device": "cuda", "gpus": 1, "processes": 1, "cores": 8, "native_bf16": True, "memory_gb": 80.0}
    task = backend.task({"workload": {"model": "gpt-124m"}, "hardware": hardware})
    found = drawn(backend, task, 6)
    assert found[0] == backend.space(task).default()
    assert len(set(found)) == 6
    assert {backend.process_of(config, task) for config in found} == {backend.process_of(found[0], task)}


def test_the_page_says_what_sharing_saves_and_what_it_changes() -> None:
    one = {
        "alone_s": 60.0,
        "shared_s": 20.0,
        "start_s": [5.0],
        "step_ratio": [1.0, 1.1],
        "memory_ratio": [0.9, 1.0],
        "status": [["ok"] * 8] * 2,
    }
    other = {**one, "shared_s": 30.0}
    text = page([{"system": "pytorch", "model": "tiny", "processes": 2, "where": "a machine", "rounds": [one, other]}])
    assert "| `pytorch`, tiny, 2 processes | a machine | 8, 2 | 60 | 25 | 2.50 (2.00, 3.00) | 1.050 (" in text

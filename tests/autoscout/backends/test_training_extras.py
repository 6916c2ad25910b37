"""Real runs of DeepSpeed and of fine-tuning on CPU processes: stages, batches and adapters learn the same. Needs their packages."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from training_running import tuned

import autoscout
from autoscout.backends.deepspeed import DeepSpeedBackend
from autoscout.backends.finetune import FinetuneBackend
from autoscout.core.config import Config
from autoscout.core.trial import Measurement, Status
from autoscout.execute.local import LocalExecutor, LocalOptions

pytestmark = [pytest.mark.training, pytest.mark.slow]

CPU = {"device": "cpu", "gpus": 0, "processes": 2, "cores": 2, "native_bf16": True, "memory_gb": 8.0}
DEEPSPEED = {"model": "micro", "most_steps": 6, "loss_steps": 5, "limit_s": 1200.0}
FINETUNE = {"model": "random-micro", "most_steps": 6, "loss_steps": 5, "global_batch": 8, "limit_s": 600.0}


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOSCOUT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # tests share their cores, and spinning threads would wait for each other
    monkeypatch.setenv("PYTHONPATH", str(Path(autoscout.__file__).parents[1]))


def measure(backend: Any, given: dict[str, Any], folder: Path, wanted: dict[str, Any]) -> Measurement:
    task = backend.task(given)
    space = backend.space(task)
    config = space.project({**space.default(), **wanted}, Config(wanted))
    assert all(config[name] == value for name, value in wanted.items())
    launch = backend.render(config, task, seed=1)
    with LocalExecutor(LocalOptions(folder=folder)) as executor:
        found: Measurement = backend.parse(
            executor.submit(replace(launch, resources=replace(launch.resources, cpus=1))).result(1200.0), task
        )
    return found


def same_loss(backend: Any, given: dict[str, Any], folder: Path, wanted: list[dict[str, Any]], near: float) -> None:
    found = [measure(backend, given, folder, one) for one in wanted]
    assert [one.status for one in found] == [Status.OK] * len(found), [one.reason for one in found]
    losses = [one.metrics["loss_after"] for one in found]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=near)


def test_all_stages_of_zero_learn_the_same(tmp_path: Path) -> None:
    stages: list[dict[str, Any]] = [
        {"zero_stage": 0},
        {"zero_stage": 1, "reduce_scatter": False, "round_robin_gradients": True},
        {"zero_stage": 2, "overlap_comm": True, "micro_batch": 2},
        {"zero_stage": 3, "recompute": "full", "reduce_bucket_size": 500_000},
    ]
    same_loss(DeepSpeedBackend(), {"workload": DEEPSPEED, "hardware": CPU}, tmp_path, stages, near=1e-4)


def test_the_command_searches_deepspeed_in_its_own_way(tmp_path: Path) -> None:
    """`autoscout tune` with a small budget: real processes of ZeRO 0 to 3, in the stages of DeepSpeed's own tuner."""
    campaign = {
        "system": "deepspeed",
        "name": "zero",
        "workload": DEEPSPEED,
        "hardware": {**CPU, "native_bf16": False},
        "set": {"recompute": "none", "micro_batch": 4},
        "search": {"searcher": "grid", "options": {"stages": [["zero_stage"]]}, "warm_start": False},  # the first of DeepSpeed's stages
        "budget": {"trials": 4},
    }
    report, trials = tuned(tmp_path, campaign)
    assert {trial.config["zero_stage"] for trial in trials} == {0, 1, 2, 3}
    assert {trial.proposal.origin.by for trial in trials if trial.proposal.repeat == 0} == {"default", "grid"}
    assert all(trial.measurement.metrics.get("tokens_per_s") for trial in trials), [trial.measurement.reason for trial in trials]
    best = json.loads((tmp_path / "zero" / "best" / "ds_config.json").read_text())
    assert best["zero_optimization"]["stage"] == report["answer"]["zero_stage"]


@pytest.mark.parametrize("method", ["lora", "full"])
def test_batching_and_precision_do_not_change_what_is_learnt(tmp_path: Path, method: str) -> None:
    ways: list[dict[str, Any]] = [
        {"batching": "pad"},
        {"batching": "sort", "micro_batch": 1, "gradient_checkpointing": True, "attention": "eager", "optimizer": "loop"},
        {"batching": "pack", "micro_batch": 2},
        {"batching": "pack", "precision": "bf16-base" if method == "lora" else "bf16"},
    ]
    given = {"workload": {**FINETUNE, "method": method}, "hardware": {**CPU, "processes": 1}}
    same_loss(FinetuneBackend(), given, tmp_path, ways, near=1e-3)


def test_a_folder_and_examples_of_the_user_are_fine_tuned_and_saved(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 64}
    LlamaForCausalLM(LlamaConfig(**shape)).save_pretrained(tmp_path / "model")
    rows = [{"input_ids": [(row + at) % 64 for at in range(4 + row % 9)]} for row in range(40)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    workload = {**FINETUNE, "model": str(tmp_path / "model"), "examples": str(tmp_path / "rows.jsonl"), "length": 16}
    backend = FinetuneBackend()
    given = {"workload": workload, "hardware": {**CPU, "processes": 1}}
    assert measure(backend, given, tmp_path / "trials", {"batching": "pack"}).status is Status.OK
    task = backend.task(given)
    for name, text in backend.export(backend.space(task).default(), task).items():
        (tmp_path / name).write_text(text)
    command = ["env", "STEPS=3", f"RESULT={tmp_path / 'tuned'}", "sh", str(tmp_path / "run.sh")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tuned" / "adapter_config.json").exists()

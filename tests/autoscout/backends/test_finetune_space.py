"""The knobs of the `finetune` backend, its batches, and what a task may say. Neither PyTorch nor transformers is needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autoscout.backends.finetune import FinetuneBackend
from autoscout.backends.finetune.batching import micro_batches, rows, targets
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Task
from autoscout.testing.backend import BackendSuite, example

CPU = {"device": "cpu", "gpus": 0, "processes": 1, "cores": 4, "native_bf16": False, "memory_gb": 16.0}
GPU = {"device": "cuda", "gpus": 2, "processes": 2, "cores": 16, "native_bf16": True, "memory_gb": 80.0}
TASKS = [
    example(FinetuneBackend),
    {"workload": {"method": "full"}, "hardware": GPU},
    {"workload": {"free_lora": True, "rank": 12, "targets": ["q_proj"]}, "hardware": CPU},
]


def task_of(hardware: dict[str, Any] = CPU, **workload: Any) -> Task:
    return FinetuneBackend().task({"workload": workload, "hardware": hardware})


def faults_of(**workload: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        task_of(**workload)
    return [str(fault) for fault in caught.value.faults]


class TestFinetuneWithoutTransformers(BackendSuite):
    @pytest.fixture
    def backend(self) -> FinetuneBackend:
        return FinetuneBackend()

    @pytest.fixture(params=TASKS, ids=["example", "full on GPUs", "free adapters"])
    def given(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        found: dict[str, Any] = request.param
        return found


def test_the_default_is_the_trainers() -> None:
    default = FinetuneBackend().space(task_of(global_batch=32)).default()
    expected = {"micro_batch": 8, "batching": "pad", "gradient_checkpointing": False, "attention": "sdpa", "optimizer": "fused"}
    assert {name: default[name] for name in expected} == expected


def test_adapters_stay_as_the_user_wants_them_unless_freed() -> None:
    assert not {"lora_rank", "lora_targets"} & set(FinetuneBackend().space(task_of()).knobs)
    task = task_of(rank=12, targets=["q_proj", "v_proj"])
    work = json.loads(FinetuneBackend().render(FinetuneBackend().space(task).default(), task, seed=1).files["train.json"])
    assert work["lora"] == {"r": 12, "lora_alpha": 24, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    free = task_of(free_lora=True, rank=12)
    assert 12 in FinetuneBackend().space(free).knobs["lora_rank"]
    assert "lora_rank" not in FinetuneBackend().space(task_of(free_lora=True, method="full")).knobs


def test_the_hand_over_speaks_to_the_trainer() -> None:
    task = task_of(GPU, global_batch=32)
    space = FinetuneBackend().space(task)
    wanted = Config(batching="pack", precision="bf16", micro_batch=4, gradient_checkpointing=True)
    files = FinetuneBackend().export(space.project({**space.default(), **wanted}, wanted), task)
    found = json.loads(files["training_arguments.json"])
    assert found["per_device_train_batch_size"] * found["gradient_accumulation_steps"] * 2 == 32
    assert (found["bf16"], found["packing"], found["gradient_checkpointing"], found["optim"]) == (True, True, True, "adamw_torch_fused")
    assert json.loads(files["lora.json"])["r"] == 8
    assert "--nproc-per-node 2" in files["run.sh"]


def test_bad_descriptions_are_refused_with_the_next_step(tmp_path: Path) -> None:
    assert "config.json cannot be read" in faults_of(model=str(tmp_path))[0]
    (tmp_path / "config.json").write_text("{}")
    assert "with a model_type" in faults_of(model=str(tmp_path))[0]
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert task_of(model=str(tmp_path)).workload["model"] == str(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "hello"}\n')
    assert "`text` or `input_ids`" in faults_of(examples=str(tmp_path / "rows.jsonl"))[0]
    assert "JSON lines" in faults_of(examples=str(tmp_path / "none.jsonl"))[0]
    assert "qlora" in faults_of(method="qlora")[0]


def test_packing_loses_nothing_and_fits() -> None:
    random = np.random.default_rng(1)
    for _ in range(50):
        examples = [list(range(int(size))) for size in random.integers(2, 65, size=20)]
        packed = rows(examples, "pack", 64)
        assert all(sum(map(len, row)) <= 64 for row in packed)
        assert sorted(map(len, (example for row in packed for example in row))) == sorted(map(len, examples))
        assert len(packed) <= sum(map(len, examples)) / 64 * 11 / 9 + 2, "first fit, longest first, is near the fewest rows"


def test_padding_and_sorting_keep_a_row_per_example() -> None:
    examples = [[1, 2], [1, 2, 3, 4], [1, 2, 3]]
    assert [len(row[0]) for row in rows(examples, "pad", 8)] == [2, 4, 3]
    assert [len(row[0]) for row in rows(examples, "sort", 8)] == [4, 3, 2]
    assert [len(batch) for batch in micro_batches(rows(examples, "pad", 8), 2)] == [2, 1]
    assert targets(examples) == 6, "useful work is the same however it is batched"

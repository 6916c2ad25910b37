"""The knobs of the `pytorch` backend: PyTorch's defaults, its refusals, and what a task may say. No PyTorch is needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from autoscout.backends.pytorch import PyTorchBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction, Task
from autoscout.study.campaign import read_campaign
from autoscout.testing.backend import BackendSuite, example

CPU = {"device": "cpu", "gpus": 0, "processes": 2, "cores": 4, "native_bf16": False, "memory_gb": 16.0}
GPU = {"device": "cuda", "gpus": 1, "processes": 1, "cores": 16, "native_bf16": True, "memory_gb": 140.0}
OWN = {
    "command": "torchrun --nproc-per-node 2 train.py --mb {micro_batch}",
    "knobs": {"micro_batch": {"values": [1, 2, 4], "help": "rows"}},
}


def task_of(hardware: dict[str, Any] = CPU, objective: dict[str, Any] | None = None, **workload: Any) -> Task:
    return PyTorchBackend().task({"workload": workload, "hardware": hardware, "objective": objective or {}})


def faults_of(hardware: dict[str, Any] = CPU, **workload: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        task_of(hardware, **workload)
    return [str(fault) for fault in caught.value.faults]


TASKS = [
    example(PyTorchBackend),
    {"workload": {}, "hardware": {**CPU, "processes": 4}},
    {"workload": {}, "hardware": GPU},
    {"workload": {"model": "gpt-1b"}, "hardware": {**GPU, "gpus": 8, "processes": 8}},
    {"workload": OWN, "hardware": CPU},
]
NAMES = ["example", "four processes", "one GPU", "eight GPUs", "a script"]


class TestPyTorchWithoutPyTorch(BackendSuite):
    @pytest.fixture
    def backend(self) -> PyTorchBackend:
        return PyTorchBackend()

    @pytest.fixture(params=TASKS, ids=NAMES)
    def given(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        found: dict[str, Any] = request.param
        return found


def test_the_default_is_what_pytorch_does_by_itself() -> None:
    task = task_of()
    default = PyTorchBackend().space(task).default()
    expected = {"dp": 2, "tp": 1, "pp": 1, "data_parallel": "ddp", "bucket_mb": 25, "static_graph": False, "micro_batch": 4}
    assert {name: default[name] for name in expected} == expected
    assert default["threads"] == 1, "torchrun sets one thread for each of several processes"
    assert PyTorchBackend().space(task_of({**CPU, "processes": 1})).default()["threads"] == 4
    on_gpu = PyTorchBackend().space(task_of(GPU)).default()
    expected = {"precision": "fp32", "attention": "auto", "optimizer": "foreach", "compile": "off", "recompute": "none", "loss_chunks": 1}
    assert {name: on_gpu[name] for name in expected} == expected
    assert "dp" not in on_gpu, "one GPU has nothing to split"


def test_every_configuration_uses_all_processes_and_the_same_batch() -> None:
    space = PyTorchBackend().space(task_of({**CPU, "processes": 4}))
    for config in space.enumerate(Config(recompute="none", attention="auto", optimizer="loop")):
        assert config["dp"] * config["tp"] * config["pp"] == 4  # type: ignore[operator]
        assert 16 % (config["dp"] * config["micro_batch"]) == 0  # type: ignore[operator]


@pytest.mark.parametrize(
    "refused",
    [
        {"tp": 2, "data_parallel": "ddp"},
        {"pp": 2, "data_parallel": "ddp"},
        {"pp": 2, "schedule": "1f1b", "micro_batch": 16},
        {"pp": 4, "schedule": "interleaved"},
        {"pp": 2, "loss_chunks": 4},
        {"dp": 4, "micro_batch": 8},
    ],
)
def test_what_pytorch_refuses_is_never_tried(refused: dict[str, Any]) -> None:
    space = PyTorchBackend().space(task_of({**CPU, "processes": 4}))
    assert not space.feasible(Config(refused))


def test_half_precision_where_the_processor_has_it() -> None:
    assert "precision" not in PyTorchBackend().space(task_of()).knobs
    assert PyTorchBackend().space(task_of({**CPU, "native_bf16": True})).knobs["precision"].values == ("fp32", "bf16")
    gpu = PyTorchBackend().space(task_of(GPU))
    assert not gpu.feasible(Config(attention="flash", precision="tf32")), "the flash kernel takes half precision only"


def test_compiling_on_a_cpu_must_be_asked_for() -> None:
    assert "compile" not in PyTorchBackend().space(task_of()).knobs
    assert "compile" in PyTorchBackend().space(task_of(compile=True)).knobs


def test_one_of_every_family_is_tried_first() -> None:
    task = task_of()
    families = [(config["dp"], config["tp"], config["pp"]) for config in PyTorchBackend().hints(task)]
    assert families == [(2, 1, 1), (1, 2, 1), (1, 1, 2)]
    first = PyTorchBackend().hints(task_of(GPU))[0]
    assert (first["precision"], first["optimizer"], first["compile"]) == ("bf16", "fused", "default")


def test_the_loss_guards_every_goal() -> None:
    objective = task_of().objective
    assert (objective.metric, objective.direction) == ("tokens_per_s", Direction.MAXIMIZE)
    assert [str(guard) for guard in objective.guards] == ["loss_after<=1.02x"]
    own = task_of(objective={"metric": "step_ms", "guards": ["loss_after<=1.5x"]}).objective
    assert (own.direction, [str(guard) for guard in own.guards]) == (Direction.MINIMIZE, ["loss_after<=1.5x"])
    assert task_of(objective={"limits": ["loss_after<=5"]}).objective.guards == (), "the user said what counts"


def test_a_filled_command_runs_where_it_was_given() -> None:
    task = PyTorchBackend().task({"workload": OWN, "hardware": CPU})
    config = PyTorchBackend().space(task).default()
    launch = PyTorchBackend().render(config, task, seed=1)
    given = json.loads(launch.files["train_input.json"])
    assert given["argv"] == ["torchrun", "--nproc-per-node", "2", "train.py", "--mb", "1"]
    assert (given["ranks"], given["cwd"]) == (0, str(Path.cwd()))
    assert given["config"] == {"micro_batch": 1, "threads": 1}
    files = PyTorchBackend().export(config, task)
    assert "exec torchrun --nproc-per-node 2 train.py --mb 1" in files["run.sh"]
    assert json.loads(files["settings.json"]) == given["config"]


def test_the_hand_over_launches_all_processes() -> None:
    task = task_of({**GPU, "gpus": 4, "processes": 4})
    files = PyTorchBackend().export(PyTorchBackend().space(task).default(), task)
    assert "-m torch.distributed.run --standalone --nproc-per-node 4" in files["run.sh"]
    assert "#SBATCH --gpus-per-node=4" in files["run.sbatch"]
    assert sys.executable in files["bench_run.sh"]


def test_bad_descriptions_are_refused_with_the_next_step() -> None:
    assert "Did you mean 'tiny'" in faults_of(model="tinny")[0]
    assert "multiple of 2" in faults_of(global_batch=7)[0]
    assert "name the knobs that your script reads" in faults_of(command="python train.py")[0]
    assert "--train-cmd" in faults_of(knobs={"a": [1, 2]})[0]
    assert "cannot be read as a command" in faults_of(command="python 'train.py", knobs={"a": [1, 2]})[0]
    assert "must be a folder" in faults_of(command="python train.py", cwd="/no/such/folder", knobs={"a": [1, 2]})[0]
    assert any("rang" in fault for fault in faults_of(command="python train.py", knobs={"a": {"rang": [1, 2]}}))
    assert len(faults_of(model="tinny", foo=1, settled=-1.0)) == 3, "all at once"
    assert any("device" in fault for fault in faults_of({**CPU, "device": "tpu"}))


def test_the_recipe_is_a_good_campaign() -> None:
    campaign = read_campaign(Path(__file__).parents[3] / "recipes" / "pytorch_script.yaml")
    task = PyTorchBackend().task({"workload": campaign.workload, "hardware": CPU})
    assert set(PyTorchBackend().space(task).knobs) == {"micro_batch", "precision", "recompute", "bucket_mb", "compile", "threads"}

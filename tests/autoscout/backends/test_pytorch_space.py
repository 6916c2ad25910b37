"""The knobs of the `pytorch` backend: PyTorch's defaults, its refusals, and what a task may say. No PyTorch is needed."""

from __future__ import annotations

import json
import subprocess
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
    "command": "torchrun --nproc-per-node 2 train.py [--mb {micro_batch}]",
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


def launched(task: Task, **wanted: Any) -> dict[str, Any]:
    """What the trial program is told."""
    space = PyTorchBackend().space(task)
    config = space.project({**space.default(), **wanted}, Config(wanted))
    assert all(config[name] == value for name, value in wanted.items()), config
    answer: dict[str, Any] = json.loads(PyTorchBackend().render(config, task, seed=1).files["train_input.json"])
    return answer


def test_the_first_trial_is_the_script_as_the_user_runs_it() -> None:
    """Not the smallest value of each knob, which nobody trains with."""
    first = launched(task_of(**OWN))
    assert first["argv"] == ["/bin/sh", "-c", "exec torchrun --nproc-per-node 2 train.py "]
    assert (first["ranks"], first["cwd"], first["program"]) == (0, str(Path.cwd()), "torchrun")
    assert first["config"] == {"threads": 1}
    second = launched(task_of(**OWN), micro_batch=4)
    assert second["argv"][-1] == "exec torchrun --nproc-per-node 2 train.py --mb 4"
    assert second["config"] == {"micro_batch": 4, "threads": 1}


def test_a_default_that_the_user_names_is_the_first_value() -> None:
    knobs = {"micro_batch": {"values": [1, 8], "default": 8}, "bucket_mb": [5, 25]}
    task = task_of(command="python train.py --mb {micro_batch}", knobs=knobs)
    assert launched(task)["config"] == {"micro_batch": 8, "threads": 1}
    assert PyTorchBackend().space(task).knobs["micro_batch"].ordered, "it is no category"


def test_a_flag_that_is_called_as_a_knob_is_where_the_knob_begins() -> None:
    """It stayed as it was: every trial ran the same command under another label."""
    knobs = {
        "micro_batch": [1, 2, 4],
        "lr": {"range": [0.001, 0.1], "log": True},
        "attention": ["eager", "sdpa"],
        "fused": {"type": "bool"},
    }
    command = "torchrun train.py --micro-batch 8 --attention=flash --lr 0.01 --fused"
    task = task_of(command=command, knobs=knobs)
    assert launched(task)["argv"][-1] == f"exec {command}", "what the user runs"
    assert (
        launched(task, micro_batch=2, attention="sdpa")["argv"][-1]
        == "exec torchrun train.py --micro-batch 2 --attention=sdpa --lr 0.01 --fused"
    )
    assert PyTorchBackend().space(task).knobs["micro_batch"].values == (1, 2, 4, 8)
    again = PyTorchBackend().task({"workload": task.workload, "hardware": task.hardware})
    assert again.workload == task.workload, "a resumed study reads the same"
    wrong = faults_of(command=command, knobs={**knobs, "micro_batch": {"values": [1, 2, 8], "default": 2}})
    assert "the command has --micro-batch 8, which is what you run" in wrong[0]


def test_rules_and_conditions_leave_out_what_the_script_is_not_told() -> None:
    knobs = {"strategy": ["ddp", "fsdp"], "micro_batch": [1, 2, 4], "bucket_mb": {"values": [5, 25], "when": "strategy == 'ddp'"}}
    task = task_of(command="python train.py", knobs=knobs, constraints=["micro_batch * 2 <= 4"])
    space = PyTorchBackend().space(task)
    assert space.check(space.default()) == []
    assert not space.feasible(Config(micro_batch=4))
    assert launched(task)["config"] == {"threads": 1}
    assert launched(task, strategy="ddp", bucket_mb=5)["config"] == {"strategy": "ddp", "bucket_mb": 5, "threads": 1}


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("python train.py --mb {micro_btch}", "Did you mean 'micro_batch'"),
        ("python train.py --mb {micro_batch}", "give the knob its default"),
        ("python train.py --bucket-mb {bucket_mb}", "has no value unless"),
        ("python train.py '", "cannot be read as a command"),
    ],
)
def test_slots_that_would_stay_text_are_refused(command: str, rule: str) -> None:
    """They stayed in the command as they were written, and the script died of them."""
    knobs = {
        "strategy": ["ddp", "fsdp"],
        "micro_batch": [1, 2],
        "bucket_mb": {"values": [5, 25], "default": 5, "when": "strategy == 'ddp'"},
    }
    assert any(rule in fault for fault in faults_of(command=command, knobs=knobs)), faults_of(command=command, knobs=knobs)


def test_a_command_may_be_a_line_for_the_shell() -> None:
    knobs = {"micro_batch": {"values": [1, 2], "default": 1}}
    for command in ("X=1 python train.py --mb {micro_batch}", "cd /tmp && python train.py --mb {micro_batch}"):
        task = task_of(command=command, knobs=knobs)
        assert launched(task)["argv"] == ["/bin/sh", "-c", command.replace("{micro_batch}", "1")]
        assert launched(task)["program"] in ("python", "cd")
        script = PyTorchBackend().export(PyTorchBackend().space(task).default(), task)["run.sh"]
        assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
        assert script.endswith(command.replace("{micro_batch}", "1") + "\n")


def test_a_long_range_needs_its_default() -> None:
    assert "needs a default" in faults_of(command="python train.py", knobs={"rate": {"range": [1, 1000]}})[0]


def test_a_filled_command_runs_where_it_was_given() -> None:
    task = task_of(**OWN)
    space = PyTorchBackend().space(task)
    files = PyTorchBackend().export(space.project({**space.default(), "micro_batch": 2}, Config(micro_batch=2)), task)
    assert "exec torchrun --nproc-per-node 2 train.py --mb 2" in files["run.sh"]
    assert json.loads(files["settings.json"]) == {"micro_batch": 2, "threads": 1}


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

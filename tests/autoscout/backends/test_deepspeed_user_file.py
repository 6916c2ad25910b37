"""The user's own DeepSpeed file: the first trial runs it, lists in it are the scope, its `autotuning` section is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscout.backends.deepspeed import DeepSpeedBackend
from autoscout.backends.deepspeed.stages import experiments
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Task
from autoscout.simulators.training import TrainingModel
from autoscout.study.campaign import build_campaign
from autoscout.study.setup import DEFAULT_TRIALS, prepare

GPUS = {"gpus": "8xA100-80", "cores": 16, "native_bf16": True}
CPU = {"device": "cpu", "gpus": 0, "processes": 2, "cores": 4, "native_bf16": False, "memory_gb": 16.0}
COMMAND = "deepspeed --master_port {port} train.py --deepspeed_config {ds_config}"
OWN: dict[str, Any] = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95]}},
    "zero_optimization": {
        "stage": 3,
        "overlap_comm": True,
        "reduce_bucket_size": 2e8,
        "sub_group_size": 1e9,
        "offload_optimizer": {"device": "cpu", "pin_memory": False, "buffer_count": 4},
    },
}


def task_of(file: dict[str, Any], hardware: dict[str, Any] = GPUS, command: str = COMMAND, **workload: Any) -> Task:
    return DeepSpeedBackend().task({"workload": {"command": command, "ds_config": file, **workload}, "hardware": hardware})


def rendered(task: Task, **wanted: Any) -> tuple[dict[str, Any], str]:
    """The file and the command of a configuration."""
    backend = DeepSpeedBackend()
    space = backend.space(task)
    config = space.project({**space.default(), **wanted}, Config(wanted))
    assert all(config[name] == value for name, value in wanted.items()), config
    files = backend.render(config, task, seed=1).files
    return json.loads(files["ds_config.json"]), json.loads(files["train_input.json"])["argv"][-1]


def with_section(**section: Any) -> dict[str, Any]:
    return {**OWN, "autotuning": {"enabled": True, **section}}


def test_the_first_trial_runs_the_users_file() -> None:
    """Its ZeRO stage, precision, offloading and batch; not DeepSpeed's defaults in their place."""
    file, _ = rendered(task_of(OWN))
    zero = file["zero_optimization"]
    assert {name: zero[name] for name in OWN["zero_optimization"]} == OWN["zero_optimization"]
    assert {name: file[name] for name in OWN if name != "zero_optimization"} == {
        name: value for name, value in OWN.items() if name != "zero_optimization"
    }
    assert file["train_batch_size"] == 4 * 2 * 8
    assert file["fp16"] == {"enabled": False}


def test_a_script_with_an_optimizer_of_its_own_gets_none_in_the_file() -> None:
    file = {"train_batch_size": 64, "zero_optimization": {"stage": 1}}
    assert "optimizer" not in rendered(task_of(file))[0]
    assert "offload_optimizer" not in DeepSpeedBackend().space(task_of(file)).knobs, "DeepSpeed offloads only its own"


def test_what_a_knob_turns_off_is_gone_from_the_users_file() -> None:
    """`none` left the user's section in its place, and every such trial offloaded."""
    file, _ = rendered(task_of(OWN), zero_stage=3, offload_optimizer="none", offload_param="none")
    assert not {"offload_optimizer", "offload_param"} & set(file["zero_optimization"])
    assert file["zero_optimization"]["sub_group_size"] == 1e9, "nobody turned that off"
    assert rendered(task_of(OWN), precision="fp16")[0]["bf16"] == {"enabled": False}
    legacy = {**OWN, "zero_optimization": {"stage": 2, "cpu_offload": True}}
    assert rendered(task_of(legacy))[0]["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert "cpu_offload" not in rendered(task_of(legacy), offload_optimizer="none")[0]["zero_optimization"]


def test_lists_in_the_file_are_the_scope() -> None:
    zero = {"stage": [2, 3], "reduce_bucket_size": [5e7, 5e8], "sub_group_size": [1e8, 1e9]}
    task = task_of({**OWN, "zero_optimization": zero})
    space = DeepSpeedBackend().space(task)
    assert space.knobs["zero_stage"].values == (2, 3)
    assert space.knobs["reduce_bucket_size"].values == (50_000_000, 500_000_000)
    first, _ = rendered(task)
    assert {name: first["zero_optimization"][name] for name in zero} == {"stage": 2, "reduce_bucket_size": 5e7, "sub_group_size": 1e8}
    second, _ = rendered(task, **{"zero_stage": 3, "zero_optimization.sub_group_size": 1_000_000_000})
    assert second["zero_optimization"]["sub_group_size"] == 1_000_000_000
    assert second["optimizer"]["params"]["betas"] == [0.9, 0.95], "a list of an optimizer is no scope"
    devices = {"stage": 3, "offload_optimizer": [{"device": "cpu"}, {"device": "none"}]}
    assert DeepSpeedBackend().space(task_of({**OWN, "zero_optimization": devices})).knobs["offload_optimizer"].values == ("cpu", "none")


def test_the_batch_follows_from_micro_batch_and_accumulation() -> None:
    assert task_of(OWN).workload["global_batch"] == 64
    only_whole = {**OWN, "train_batch_size": 64}
    del only_whole["train_micro_batch_size_per_gpu"], only_whole["gradient_accumulation_steps"]
    assert DeepSpeedBackend().space(task_of(only_whole)).default()["micro_batch"] == 8, "the whole share, as DeepSpeed does"
    with pytest.raises(ConfigError, match="DeepSpeed refuses it"):
        task_of({**OWN, "train_batch_size": 128})


def test_the_autotuning_section_is_read_and_left_out_of_the_launch() -> None:
    mapped = {
        "train_micro_batch_size_per_gpu": "--per_device_train_batch_size",
        "gradient_accumulation_steps": "--gradient_accumulation_steps",
    }
    file = with_section(arg_mappings=mapped, metric="latency", fast=False, max_train_micro_batch_size_per_gpu=4)
    file |= {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto"}
    command = "deepspeed train.py --deepspeed {ds_config} --per_device_train_batch_size 2 --gradient_accumulation_steps=4 --lr 1e-5"
    task = task_of(file, command=command)
    assert task.workload["global_batch"] == 2 * 4 * 8
    assert task.objective.metric == "step_ms"
    written, line = rendered(task)
    assert "autotuning" not in written
    assert written["train_micro_batch_size_per_gpu"] == "auto", "the Trainer fills it in from its flags"
    assert "--per_device_train_batch_size 2 --gradient_accumulation_steps=4 --lr" in line
    assert "--per_device_train_batch_size 4 --gradient_accumulation_steps=2 --lr" in rendered(task, micro_batch=4)[1]
    assert DeepSpeedBackend().space(task).knobs["micro_batch"].values[-1] == 4
    again = DeepSpeedBackend().task({"workload": task.workload, "hardware": task.hardware})
    assert again.workload == task.workload, "a resumed study reads the same"


def test_a_flag_that_the_command_lacks_is_added() -> None:
    file = with_section(arg_mappings={"train_micro_batch_size_per_gpu": "--mb"})
    assert rendered(task_of(file))[1].endswith("--mb 4")


def test_the_largest_batch_is_the_work_where_nothing_else_says() -> None:
    file = {"zero_optimization": {"stage": 1}, "autotuning": {"max_train_batch_size": 32}}
    assert task_of(file).workload["global_batch"] == 32


def test_the_fast_mode_leaves_the_other_knobs_alone() -> None:
    backend = DeepSpeedBackend()
    assert set(backend.space(task_of(with_section())).knobs) - set(backend.resting(task_of(with_section()))) == {
        "zero_stage",
        "micro_batch",
    }
    assert backend.resting(task_of(with_section(fast=False))) == ()
    assert backend.resting(task_of(OWN)) == ()


def test_auto_stays_with_the_trainer() -> None:
    zero = {"stage": 3, "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto"}
    task = task_of({**OWN, "bf16": {"enabled": "auto"}, "zero_optimization": zero})
    file, _ = rendered(task)
    assert (file["bf16"], file["zero_optimization"]["reduce_bucket_size"]) == ({"enabled": "auto"}, "auto")
    assert "precision" not in DeepSpeedBackend().space(task).knobs, "the Trainer refuses to be contradicted"
    assert rendered(task, reduce_bucket_size=5_000_000)[0]["zero_optimization"]["reduce_bucket_size"] == 5_000_000
    with pytest.raises(ConfigError, match="arg_mappings"):
        task_of({**OWN, "train_micro_batch_size_per_gpu": "auto"})


@pytest.mark.parametrize(("model", "gpus", "batch"), [("gpt-1b", "8xA100-80", 256), ("gpt-350m", "4xA40", 128), ("gpt-1b", "1xH100", 32)])
def test_the_built_in_models_begin_where_they_are_predicted_to_fit(model: str, gpus: str, batch: int) -> None:
    """In half precision, with a micro-batch and a ZeRO stage that hold it."""
    task = DeepSpeedBackend().task({"workload": {"model": model, "global_batch": batch}, "hardware": {"gpus": gpus, "cores": 8}})
    default = DeepSpeedBackend().space(task).default()
    assert default["precision"] in ("bf16", "fp16")
    predicted = TrainingModel().predict([default], task)
    assert predicted.feasible[0] >= 0.9, (default, predicted)


def test_the_search_settles_precision_before_the_zero_stage_and_fits_the_default_budget() -> None:
    """At fp32 and the largest micro-batch the stage was chosen for memory that half precision does not need."""
    given = {"system": "deepspeed", "workload": {"model": "gpt-1b"}, "hardware": GPUS}
    setup = prepare(build_campaign(given, where="test"), backend=DeepSpeedBackend())
    search = setup.campaign.search
    assert search.searcher == "grid"
    stages = search.options["stages"]
    assert stages[0] == ["precision"]
    assert "zero_stage" in stages[1]
    assert experiments(setup.space, stages) <= DEFAULT_TRIALS


def test_faults_name_the_file_the_field_and_the_next_step(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text(json.dumps({"zero_optimization": {"stage": []}, "autotuning": {"arg_mappings": [1]}}))
    with pytest.raises(ConfigError) as caught:
        DeepSpeedBackend().task({"workload": {"command": COMMAND, "ds_config": str(path)}, "hardware": CPU})
    fields = {fault.field for fault in caught.value.faults}
    assert {"zero_optimization.stage", "autotuning.arg_mappings"} <= fields
    assert str(path) in str(caught.value)

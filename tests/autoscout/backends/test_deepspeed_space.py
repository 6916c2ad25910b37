"""The knobs of the `deepspeed` backend and the file that they fill. DeepSpeed is not needed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscout.backends.deepspeed import DeepSpeedBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Task
from autoscout.core.trial import Measurement, Status, Trial
from autoscout.study.campaign import build_campaign, read_campaign
from autoscout.study.plugin_options import build_options
from autoscout.study.setup import prepare
from autoscout.testing.backend import BackendSuite, example

CPU = {"device": "cpu", "gpus": 0, "processes": 2, "cores": 4, "native_bf16": False, "memory_gb": 16.0}
GPU = {"device": "cuda", "gpus": 4, "processes": 4, "cores": 16, "native_bf16": True, "memory_gb": 80.0}
OWN = {"command": "deepspeed --master_port {port} train.py --deepspeed_config {ds_config}", "global_batch": 16}


def task_of(hardware: dict[str, Any] = CPU, **workload: Any) -> Task:
    return DeepSpeedBackend().task({"workload": workload, "hardware": hardware})


def file_of(task: Task, **wanted: Any) -> dict[str, Any]:
    backend = DeepSpeedBackend()
    space = backend.space(task)
    config = space.project({**space.default(), **wanted}, Config(wanted))
    found: dict[str, Any] = json.loads(backend.render(config, task, seed=1).files["ds_config.json"])
    return found


def faults_of(hardware: dict[str, Any] = CPU, **workload: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        task_of(hardware, **workload)
    return [str(fault) for fault in caught.value.faults]


TASKS = [
    example(DeepSpeedBackend),
    {"workload": {"nvme_path": "/scratch"}, "hardware": GPU},
    {"workload": OWN, "hardware": CPU},
]
NAMES = ["example", "GPUs", "a script"]


class TestDeepSpeedWithoutDeepSpeed(BackendSuite):
    @pytest.fixture
    def backend(self) -> DeepSpeedBackend:
        return DeepSpeedBackend()

    @pytest.fixture(params=TASKS, ids=NAMES)
    def given(self, request: pytest.FixtureRequest) -> dict[str, Any]:
        found: dict[str, Any] = request.param
        return found


def test_the_default_is_plain_data_parallelism() -> None:
    found = file_of(task_of(global_batch=16))
    assert found["zero_optimization"] == {"stage": 0}
    batch = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    assert [found[name] for name in batch] == [16, 8, 1]
    assert found["optimizer"]["params"]["torch_adam"] is True, "needs no compiler"


def test_batches_always_multiply_to_the_same_work() -> None:
    task = task_of(global_batch=16)
    for micro in (1, 2, 4, 8):
        found = file_of(task, micro_batch=micro)
        assert found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * 2 == found["train_batch_size"] == 16


def test_sections_of_inactive_knobs_are_left_out() -> None:
    task = task_of(GPU, nvme_path="/scratch")
    one = file_of(task, zero_stage=1)["zero_optimization"]
    assert "stage3_prefetch_bucket_size" not in one
    assert "offload_param" not in one
    assert one["reduce_bucket_size"] == 500_000_000
    three = file_of(task, zero_stage=3, offload_optimizer="nvme", offload_param="nvme")["zero_optimization"]
    assert three["offload_optimizer"] == {"device": "nvme", "pin_memory": True, "nvme_path": "/scratch"}
    assert three["offload_param"]["nvme_path"] == "/scratch"
    assert "allgather_bucket_size" not in three


def test_offloading_takes_deepspeeds_own_optimizer() -> None:
    found = file_of(task_of(GPU), zero_stage=2, offload_optimizer="cpu")
    assert found["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert "torch_adam" not in found["optimizer"]["params"]


def test_what_deepspeed_refuses_is_never_tried() -> None:
    space = DeepSpeedBackend().space(task_of(GPU, nvme_path="/scratch"))
    for refused in ({"zero_stage": 2, "offload_optimizer": "nvme"}, {"zero_stage": 2, "offload_param": "cpu"}, {"micro_batch": 3}):
        assert not space.feasible(Config(refused)), refused  # type: ignore[arg-type]
    assert "offload_optimizer" not in DeepSpeedBackend().space(task_of()).knobs, "a CPU has nowhere to take the load to"


def test_the_users_file_is_kept_below_the_knobs(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps({"train_batch_size": 32, "gradient_clipping": 1.0, "zero_optimization": {"stage": 1, "sub_group_size": 7}}))
    task = task_of(ds_config=str(path))
    assert task.workload["global_batch"] == 32
    found = file_of(task, zero_stage=2)
    assert (found["gradient_clipping"], found["zero_optimization"]["sub_group_size"], found["zero_optimization"]["stage"]) == (1.0, 7, 2)


def test_a_script_gets_the_file_and_a_port() -> None:
    backend = DeepSpeedBackend()
    task = backend.task({"workload": OWN, "hardware": CPU})
    config = backend.space(task).default()
    given = json.loads(backend.render(config, task, seed=1).files["train_input.json"])
    line = 'exec deepspeed --master_port "$AUTOSCOUT_PORT" train.py --deepspeed_config "$AUTOSCOUT_FOLDER/ds_config.json"'
    assert given["argv"] == ["/bin/sh", "-c", line]
    script = backend.export(config, task)["run.sh"]
    assert f'{line} "$@"' in script
    assert 'export AUTOSCOUT_FOLDER="$here"' in script
    assert "recompute" not in config, "a script recomputes by its own means"


def test_bad_descriptions_are_refused_with_the_next_step(tmp_path: Path) -> None:
    assert "{ds_config} is its path" in faults_of(command="deepspeed train.py", global_batch=4)[0]
    assert "train_batch_size" in faults_of(command="deepspeed train.py {ds_config}")[0]
    assert "no-such-file" in faults_of(ds_config=str(tmp_path / "no-such-file.json"))[0]
    (tmp_path / "list.json").write_text("[1]")
    assert "one JSON object" in faults_of(ds_config=str(tmp_path / "list.json"))[0]


def test_small_spaces_are_searched_as_deepspeed_does() -> None:
    """A grid in stages: few combinations, each told apart by the file it fills."""
    given = {"system": "deepspeed", "workload": {"model": "micro"}, "hardware": CPU}
    setup = prepare(build_campaign(given, where="test"), backend=DeepSpeedBackend())
    assert setup.campaign.search.searcher == "grid"
    options = build_options(setup.searcher, setup.campaign.search.options, "search")
    searcher = setup.searcher(setup.space, setup.task, 0, options=options)
    first = searcher.ask(100)
    assert [proposal.config["zero_stage"] for proposal in first] == [0, 1, 2, 3]
    told = [
        Trial(proposal=proposal, measurement=Measurement(status=Status.OK, metrics={"tokens_per_s": float(number), "loss_after": 5.0}))
        for number, proposal in enumerate(first)
    ]
    searcher.tell(told)
    second = searcher.ask(100)
    assert {proposal.config["zero_stage"] for proposal in second} == {3}, "the winner is fixed"
    assert len({(proposal.config["micro_batch"], proposal.config["recompute"]) for proposal in second}) == len(second) == 8


@pytest.mark.parametrize("more", [{"search": {"searcher": "random"}}, {"budget": {"trials": 6}}])
def test_a_named_searcher_or_a_small_budget_is_left_alone(more: dict[str, Any]) -> None:
    campaign = build_campaign({"system": "deepspeed", "workload": {"model": "micro"}, "hardware": CPU, **more}, where="test")
    assert prepare(campaign, backend=DeepSpeedBackend()).campaign.search == campaign.search


def test_hosts_reach_the_launcher_and_slurm() -> None:
    hardware = {**GPU, "gpus": 8, "processes": 8, "nodes": 2, "hosts": {"one": 4, "two": 4}}
    command = "deepspeed --hostfile {hostfile} train.py --deepspeed_config={ds_config}"
    backend = DeepSpeedBackend()
    task = backend.task({"workload": {"command": command, "global_batch": 32}, "hardware": hardware})
    launch = backend.render(backend.space(task).default(), task, seed=1)
    assert launch.files["hostfile"] == "one slots=4\ntwo slots=4\n"
    assert launch.resources.gpus == 4, "those of this machine"
    files = backend.export(backend.space(task).default(), task)
    line = 'deepspeed --hostfile "$AUTOSCOUT_FOLDER/hostfile" train.py --deepspeed_config="$AUTOSCOUT_FOLDER/ds_config.json"'
    assert line in files["run.sh"]
    assert "#SBATCH --nodes=2" in files["run.sbatch"]
    assert "#SBATCH --gpus-per-node=4" in files["run.sbatch"]
    assert (launch.resources.nodes, launch.resources.first_only) == (2, True), "DeepSpeed's launcher reaches the other by itself"
    assert "every host of one run must have as many slots" in faults_of({**hardware, "hosts": {"one": 6, "two": 2}})[0]
    assert "cannot be shared equally" in faults_of({**hardware, "gpus": 7, "processes": 7, "hosts": {}})[0]


def test_the_recipe_is_a_good_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    campaign = read_campaign(Path(__file__).parents[3] / "recipes" / "deepspeed_script.yaml")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds_config.json").write_text('{"gradient_clipping": 1.0}')
    given = {
        "workload": campaign.workload,
        "hardware": {**GPU, **campaign.hardware, "processes": 8},
        "goal": {"slo": list(campaign.goal.slo)},
    }
    task = DeepSpeedBackend().task(given)
    assert file_of(task, zero_stage=3)["gradient_clipping"] == 1.0

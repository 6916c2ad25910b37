"""Knobs, rules and launches of the `megatron` backend. Megatron is not needed."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from megatron_checkout import LOGS, make_checkout

from autoscout.backends.megatron import MegatronBackend
from autoscout.backends.pytorch import PyTorchBackend
from autoscout.core.config import Config
from autoscout.core.errors import ConfigError
from autoscout.core.task import Direction, Task
from autoscout.engines.table import table_for, versions
from autoscout.study.campaign import read_campaign
from autoscout.study.start import find_simulator
from autoscout.testing.backend import BackendSuite, example

CPU = {"device": "cpu", "gpus": 0, "processes": 2, "cores": 2, "native_bf16": False, "memory_gb": 16.0}
GOLDEN = LOGS / "launches.txt"
DENSE = {"model": "llama-3.2-3b", "global_batch": 128}
ROUTED = {"model": "qwen3-30b-a3b", "global_batch": 256}

LAUNCHES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("a small GPT", {"gpus": "1xH100", "cores": 8}, {"model": "gpt-350m", "global_batch": 32}, {"precision": "bf16", "micro_batch": 4}),
    (
        "pipeline, interleaved",
        {"gpus": "8xA100-80", "cores": 8},
        DENSE,
        {"tp": 2, "pp": 2, "dp": 2, "virtual_stages": 7, "recompute": "full", "recompute_method": "block", "recompute_layers": 2},
    ),
    (
        "overlap of everything",
        {"gpus": "8xA100-80", "cores": 8},
        DENSE,
        {
            "tp": 4,
            "dp": 2,
            "sequence_parallel": True,
            "tp_comm_overlap": True,
            "tp_comm_sms": 12,
            "distributed_optimizer": True,
            "overlap_grad_reduce": True,
            "overlap_param_gather": True,
            "bucket_mb": 8,
            "grad_reduce_in_bf16": True,
        },
    ),
    ("long sequences", {"gpus": "8xH100", "cores": 8}, {**DENSE, "sequence": 32768}, {"cp": 4, "dp": 2, "recompute": "selective"}),
    (
        "experts on two nodes, fp8",
        {"gpus": "16xH100", "nodes": 2, "cores": 8},
        ROUTED,
        {"tp": 2, "dp": 8, "ep": 8, "expert_tp": 1, "moe_dispatcher": "alltoall", "moe_grouped_gemm": True, "precision": "fp8"},
    ),
    ("without Transformer Engine", {"gpus": "8xA100-80", "cores": 8}, {**DENSE, "transformer_engine": False}, {"tp": 2, "dp": 4}),
    (
        "fp16 and buckets by number",
        {"gpus": "8xA40", "cores": 8},
        DENSE,
        {"precision": "fp16", "overlap_grad_reduce": True, "bucket_count": 4},
    ),
    (
        "data of the user",
        {"gpus": "8xA100-80", "cores": 8},
        {**DENSE, "arguments": "--data-path my_text --tokenizer-type GPT2BPETokenizer"},
        {},
    ),
]


BACKEND = MegatronBackend()  # keeps the spaces that it has built


def task_of(hardware: dict[str, Any] = CPU, **workload: Any) -> Task:
    return BACKEND.task({"workload": workload, "hardware": hardware})


def config_of(task: Task, **wanted: Any) -> Config:
    space = BACKEND.space(task)
    found = space.project({**space.default(), **wanted}, Config(wanted))
    assert all(found[name] == value for name, value in wanted.items()), found
    return found


def faults_of(hardware: dict[str, Any] = CPU, **workload: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        task_of(hardware, **workload)
    return [str(fault) for fault in caught.value.faults]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkout(tmp_path_factory.mktemp("checkout") / "Megatron-LM")


@pytest.fixture(scope="module")
def launched(checkout: Path) -> dict[str, tuple[Task, Config]]:
    """The task and configuration of every launch."""
    found = {}
    for name, hardware, workload, wanted in LAUNCHES:
        task = task_of(hardware, checkout=str(checkout), **workload)
        found[name] = (task, config_of(task, **wanted))
    return found


class TestMegatronWithoutMegatron(BackendSuite):
    @pytest.fixture
    def backend(self) -> MegatronBackend:
        return MegatronBackend()

    @pytest.fixture(params=["example", "experts on a CPU", "a GPU", "a checkout"])
    def given(self, request: pytest.FixtureRequest, checkout: Path) -> dict[str, Any]:
        found: dict[str, dict[str, Any]] = {
            "example": dict(example(MegatronBackend)),
            "experts on a CPU": {"workload": {"model": "micro-moe"}, "hardware": {**CPU, "processes": 4}},
            "a GPU": {"workload": {}, "hardware": {"gpus": "1xH200", "cores": 8}},
            "a checkout": {"workload": {**ROUTED, "checkout": str(checkout)}, "hardware": {"gpus": "8xH100", "cores": 8}},
        }
        return found[request.param]


def launches(launched: dict[str, tuple[Task, Config]]) -> str:
    told = []
    for name, (task, config) in launched.items():
        run = json.loads(BACKEND.render(config, task, seed=1).files["run.json"])
        told.append(f"# {name}\n{shlex.join(run['argv'])}\n")
    return "\n".join(told).replace(sys.executable, "python")


def test_launches_change_only_on_purpose(launched: dict[str, tuple[Task, Config]], check_recorded: Callable[[Path, str], None]) -> None:
    check_recorded(GOLDEN, launches(launched))


@pytest.mark.parametrize("this", LAUNCHES, ids=lambda this: this[0])
def test_the_hand_over_is_whole(this: Any, launched: dict[str, tuple[Task, Config]]) -> None:
    name, hardware, workload, wanted = this
    task, config = launched[name]
    files = BACKEND.export(config, task)
    assert {"run.sh", "run.sbatch", "bench_run.sh", "arguments.txt", "settings.json"} <= files.keys()
    for script in ("run.sh", "bench_run.sh", "run.sbatch"):
        subprocess.run(["sh", "-n"], input=files[script], text=True, check=True)
    listed = shlex.split(files["arguments.txt"])
    assert listed[listed.index("--global-batch-size") + 1] == str(workload["global_batch"])
    assert "{" not in files["run.sh"].partition("torch.distributed.run")[2].replace("${", ""), "nothing is left to fill in"
    if "tp_comm_sms" in wanted:
        overlap = yaml.safe_load(files["tp_comm_overlap.yaml"])
        assert {entry["num_sm"] for entry in overlap.values()} == {wanted["tp_comm_sms"]}
        assert '--tp-comm-overlap-cfg "$here/tp_comm_overlap.yaml"' in files["run.sh"]
    if hardware.get("nodes", 1) > 1:
        assert "srun --nodes=2 --ntasks=2" in files["run.sbatch"]
        assert "MASTER_ADDR" in files["run.sbatch"]


def test_run_sh_starts_the_script_of_the_checkout(tmp_path: Path) -> None:
    """The launcher is Python here, since torchrun needs PyTorch."""
    checkout = make_checkout(tmp_path / "Megatron-LM")
    (checkout / "pretrain_gpt.py").write_text("import json, os, sys; print(json.dumps([os.getcwd(), sys.argv[1:]]))")
    task = task_of({"gpus": "2xA100-80", "cores": 2}, checkout=str(checkout), launcher=sys.executable, **DENSE)
    for name, text in BACKEND.export(config_of(task, tp=2), task).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(["sh", str(tmp_path / "run.sh"), "--train-iters", "5"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    folder, words = json.loads(done.stdout)
    assert Path(folder) == checkout
    assert words[words.index("--tensor-model-parallel-size") + 1] == "2"
    assert words[-2:] == ["--train-iters", "5"]


def test_everything_of_the_papers_table_is_a_knob(checkout: Path) -> None:
    space = BACKEND.space(task_of({"gpus": "8xA100-80", "cores": 8}, checkout=str(checkout), **ROUTED))
    table = ("pp", "tp", "dp", "ep", "cp", "sequence_parallel", "recompute", "micro_batch", "bucket_count", "tp_comm_sms", "bucket_mb")
    assert set(table) <= space.knobs.keys()
    assert {"virtual_stages", "recompute_modules", "distributed_optimizer", "precision", "overlap_grad_reduce"} <= space.knobs.keys()


def test_the_layout_to_begin_with_holds_the_model(checkout: Path) -> None:
    for name, layout in (("llama-3.2-3b", (1, 1, 8)), ("llama-3.1-8b", (2, 1, 4)), ("gpt-350m", (1, 1, 8))):
        default = BACKEND.space(task_of({"gpus": "8xA100-80", "cores": 8}, checkout=str(checkout), model=name, global_batch=64)).default()
        assert (default["tp"], default["pp"], default["dp"]) == layout, name
        assert default["precision"] == "bf16"


@pytest.mark.parametrize(
    "refused",
    [
        {"tp": 3},  # 24 heads, but not 8 processes
        {"tp": 8, "sequence_parallel": False, "tp_comm_overlap": True},
        {"pp": 8},  # 28 layers
        {"pp": 4, "virtual_stages": 2},
        {"pp": 4, "dp": 2, "virtual_stages": 7, "micro_batch": 32},  # two micro-batches for four stages
        {"dp": 8, "overlap_param_gather": True, "distributed_optimizer": False},
        {"dp": 8, "micro_batch": 3},
        {"cp": 8, "sequence_parallel": True},
        {"recompute": "full", "recompute_modules": "core_attn"},
        {"recompute": "selective", "recompute_modules": "moe"},
        {"precision": "fp8"},  # not on an A100
        {"tp": 2, "recompute": "full", "distribute_saved_activations": True, "sequence_parallel": True},
    ],
    ids=str,
)
def test_what_megatron_refuses_is_never_tried(refused: dict[str, Any], checkout: Path) -> None:
    space = BACKEND.space(task_of({"gpus": "8xA100-80", "cores": 8}, checkout=str(checkout), **DENSE))
    assert not space.feasible(Config(refused))


def test_the_file_for_megatron_core_holds_fields_of_its_classes() -> None:
    task = task_of({**CPU, "processes": 4}, model="micro-moe", global_batch=16)
    config = config_of(task, pp=2, dp=2, ep=2, virtual_stages=2, recompute="selective", recompute_modules="core_attn+moe")
    found = json.loads(BACKEND.render(config, task, seed=1).files["megatron.json"])
    core = found["TransformerConfig"]
    assert (core["pipeline_model_parallel_size"], core["virtual_pipeline_model_parallel_size"], core["pipeline_dtype"]) == (2, 2, "float32")
    assert (core["num_moe_experts"], core["expert_model_parallel_size"], core["moe_router_topk"]) == (4, 2, 2)
    assert core["recompute_modules"] == ["core_attn", "moe"]
    assert (found["micro_batch_size"], found["global_batch_size"], found["data_parallel_size"]) == (1, 16, 2)
    table = table_for("megatron", str(task.software["megatron-core"]))
    for owner in ("TransformerConfig", "DistributedDataParallelConfig", "OptimizerConfig"):
        assert all(owner in table.flags[name].of for name in found[owner])


def test_knobs_that_seldom_matter_rest_until_they_are_freed() -> None:
    assert "bucket_count" in BACKEND.resting(task_of())
    assert "bucket_count" not in BACKEND.resting(task_of(free=["bucket_count"]))
    assert BACKEND.resting(task_of(free=["all"])) == ()
    assert "there is no such knob" in faults_of(free=["bukket_count"])[0]
    assert "bucket_count" in faults_of(free=["bukket_count"])[0]


def test_a_checkout_says_which_version_it_is(checkout: Path) -> None:
    task = task_of({"gpus": "8xA100-80", "cores": 8}, checkout=str(checkout), **DENSE)
    assert task.workload["core_version"] == "0.16.1"
    assert BACKEND.table(task).version == "0.16.1"
    assert {"0.16.1", "0.19.2"} <= set(versions("megatron"))


def test_bad_descriptions_are_refused_with_the_next_step(tmp_path: Path, checkout: Path) -> None:
    gpus = {"gpus": "8xA100-80", "cores": 8}
    assert "must be a folder with pretrain_gpt.py" in faults_of(gpus, checkout=str(tmp_path), **DENSE)[0]
    assert "trains on GPUs" in faults_of(checkout=str(checkout))[0]
    assert "belongs to a checkout" in faults_of(arguments="--bf16")[0]
    assert "belongs to the built-in runner" in faults_of(gpus, checkout=str(checkout), depths=[1, 2], **DENSE)[0]
    assert "latent attention" in faults_of(gpus, model="deepseek-v3")[0]
    assert "unknown model" in faults_of(gpus, model="no-such-model")[0]
    assert "cannot be shared equally" in faults_of({"gpus": "9xA100-80", "nodes": 2, "cores": 8}, model="gpt-350m")[0]


def test_tflops_are_a_goal_of_this_backend_only(checkout: Path) -> None:
    given = {"workload": {**DENSE, "checkout": str(checkout)}, "hardware": {"gpus": "8xA100-80", "cores": 8}}
    assert BACKEND.task({**given, "objective": {"metric": "tflops_per_gpu"}}).objective.direction is Direction.MAXIMIZE
    with pytest.raises(ConfigError, match="tflops_per_gpu"):
        PyTorchBackend().task({"workload": {"model": "tiny"}, "hardware": CPU, "objective": {"metric": "tflops_per_gpu"}})


def test_the_recipe_is_a_good_campaign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_checkout(tmp_path / "Megatron-LM")
    monkeypatch.chdir(tmp_path)
    campaign = read_campaign(Path(__file__).parents[3] / "recipes" / "megatron_lm.yaml")
    hardware = {**campaign.hardware, "gpu": "A100-80", "cores": 8}
    task = BACKEND.task({"workload": campaign.workload, "hardware": hardware, "objective": {"limits": list(campaign.goal.slo)}})
    assert task.workload["core_version"] == "0.16.1"
    assert BACKEND.space(task).default()["tp"] == 2


def test_the_training_simulator_is_a_prior_on_gpus(checkout: Path) -> None:
    for hardware, workload in (
        ({"gpus": "8xA100-80", "cores": 8}, {**DENSE, "checkout": str(checkout)}),
        ({"gpus": "8xH100", "cores": 8}, {**ROUTED, "checkout": str(checkout)}),
        ({"gpus": "1xH200", "cores": 8}, {}),
    ):
        task = task_of(hardware, **workload)
        assert find_simulator(BACKEND.space(task), task) == "training"
    task = task_of()
    assert find_simulator(BACKEND.space(task), task) == "", "it knows no processors"
